// Obtains a token by hand: registration, code flow with PKCE, exchange. For checks of single HTTP
// requests.
import { createHash, randomBytes } from 'node:crypto';
import { followTo } from './browser.mjs';

const REDIRECT_URI = 'http://127.0.0.1:1/callback';

/** Signs `user` in for `scope` at `resource`; returns the token endpoint's answer with the `client_id`. */
export async function signIn(authorizationServer, { user, scope, resource }) {
  const metadata = await json(await fetch(`${authorizationServer.issuer}/.well-known/openid-configuration`));
  const registration = { client_name: `by hand, ${user}`, redirect_uris: [REDIRECT_URI], token_endpoint_auth_method: 'none' };
  const { client_id } = await json(await fetch(metadata.registration_endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(registration),
  }));
  const verifier = randomBytes(32).toString('base64url');
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  const question = {
    client_id, scope, resource, response_type: 'code', redirect_uri: REDIRECT_URI,
    code_challenge: challenge, code_challenge_method: 'S256', state: 'by-hand',
  };
  const callback = await followTo(REDIRECT_URI, `${metadata.authorization_endpoint}?${new URLSearchParams(question)}`, user);
  const code = callback.searchParams.get('code');
  if (!code) throw new Error(`no code: ${callback.search}`);
  const exchange = { grant_type: 'authorization_code', code, client_id, redirect_uri: REDIRECT_URI, code_verifier: verifier, resource };
  const tokens = await json(await fetch(metadata.token_endpoint, { method: 'POST', body: new URLSearchParams(exchange) }));
  return { ...tokens, client_id };
}

async function json(response) {
  if (!response.ok) throw new Error(`${response.url} answered ${response.status}: ${await response.text()}`);
  return response.json();
}
