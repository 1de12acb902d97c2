// The required answers of a protected resource to single requests, by the specification
// (2026-07-28, basic/authorization), RFC 6750, 8707 and 9728. Each check returns the differences.
import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { isDeepStrictEqual } from 'node:util';
import { OAuthProtectedResourceMetadataSchema } from '@modelcontextprotocol/sdk/shared/auth.js';
import { call, INITIALIZE, LIST, messageIn, send } from './http.mjs';
import { LEEWAY_S, SCOPES } from './setting.mjs';
import { signIn } from './sign-in.mjs';

const ERROR_TEXT = /^[\x20-\x21\x23-\x5b\x5d-\x7e]+$/; // RFC 6750 §3: what error_description may hold

/** Checks single requests with the tokens of `signInAll`. */
export async function checkTraffic(checks, context) {
  const challenge = { scheme: 'Bearer', resource_metadata: context.resource.metadataUrl };
  for (const [what, check] of Object.entries(CHECKS)) {
    await checks.one(`${context.name}  ${what}`, () => check({ ...context, challenge }));
  }
}

/** Obtains tokens of both users by hand. */
export async function signInAll({ resource, jwt, opaque }) {
  const usual = SCOPES.usual.join(' ');
  const at = (server, user, scope, where = resource.url) => signIn(server, { user, scope, resource: where });
  const [alice, aliceAgain, bob, reader, elsewhere, opaqueAlice, opaqueElsewhere] = (
    await Promise.all([
      at(jwt, 'alice', usual), at(jwt, 'alice', usual), at(jwt, 'bob', usual), at(jwt, 'bob', SCOPES.read),
      at(jwt, 'alice', usual, jwt.resources.at(-1)), at(opaque, 'alice', usual), at(opaque, 'alice', usual, opaque.resources.at(-1)),
    ])
  ).map(({ access_token: token }) => token);
  return { alice, aliceAgain, bob, reader, elsewhere, opaqueAlice, opaqueElsewhere };
}

const CHECKS = {
  async 'a request without a token learns where to get one'({ resource, challenge }) {
    const expected = { ...challenge, scope: SCOPES.usual.toSorted() };
    const post = await send(resource.url, { message: LIST });
    const others = await Promise.all(['GET', 'DELETE'].map((method) => send(resource.url, { method })));
    const error = messageIn(post);
    return [
      ...[post, ...others].flatMap(({ status, challenge }) => differences({ status, challenge }, { status: 401, challenge: expected })),
      ...differences({ id: error?.id, hasError: error?.error !== undefined }, { id: 7, hasError: true }),
    ];
  },

  async 'the challenge may be read by a page'({ resource }) {
    const { headers } = await send(resource.url, { message: LIST, headers: { origin: resource.origin } });
    const exposed = headers.get('access-control-expose-headers')?.toLowerCase().split(/, */) ?? [];
    return exposed.includes('www-authenticate') || exposed.includes('*') ? [] : [`exposed: ${exposed}`];
  },

  async 'the metadata are those of the endpoint, for any page, and may be cached'({ resource, jwt, opaque }) {
    const found = [];
    for (const url of [resource.metadataUrl, resource.rootMetadataUrl]) {
      const answer = await send(url, { method: 'GET', headers: { accept: 'application/json' } });
      const metadata = OAuthProtectedResourceMetadataSchema.parse(JSON.parse(answer.body));
      const { resource: named, authorization_servers: servers, scopes_supported: scopes, bearer_methods_supported: methods } = metadata;
      const expected = {
        named: resource.url, servers: [jwt.issuer, opaque.issuer], scopes: SCOPES.usual.toSorted(), methods: ['header'],
        status: 200, type: 'application/json', origin: '*', isCached: true,
      };
      const { headers, status } = answer;
      found.push(...differences({
        named, servers, scopes: scopes?.toSorted(), methods, status,
        type: headers.get('content-type')?.split(';')[0],
        origin: headers.get('access-control-allow-origin'),
        isCached: /max-age=[1-9]/.test(headers.get('cache-control') ?? ''),
      }, expected));
    }
    return found;
  },

  async 'no header of a request changes the metadata or the challenge'({ resource }) {
    const headers = {
      'x-forwarded-host': 'attacker.example', 'x-forwarded-proto': 'https', 'x-forwarded-prefix': '/attacker',
      forwarded: 'host=attacker.example;proto=https', 'x-original-url': 'https://attacker.example/',
    };
    const metadata = await send(resource.metadataUrl, { method: 'GET', headers: { ...headers, accept: '*/*' } });
    const challenge = await send(resource.url, { message: LIST, headers });
    const shown = `${metadata.body} ${challenge.headers.get('www-authenticate')} ${challenge.body}`;
    return shown.includes('attacker') || metadata.status !== 200 ? [`${metadata.status} ${shown}`] : [];
  },

  async 'a token with its scopes lists and calls'({ resource, tokens }) {
    const answer = await send(resource.url, { token: tokens.alice, ...call('note') });
    return differences({ status: answer.status, text: textIn(answer) }, { status: 200, text: 'noted' });
  },

  async 'an opaque token is accepted by introspection, until it is revoked'({ resource, opaque, tokens }) {
    const accepted = await send(resource.url, { token: tokens.opaqueAlice, ...call('note') });
    const { access_token: token, client_id } = await signIn(opaque, { user: 'bob', scope: SCOPES.usual.join(' '), resource: resource.url });
    await opaque.revoke(token, client_id);
    const refused = await send(resource.url, { token, ...call('note') });
    return [
      ...differences({ status: accepted.status, text: textIn(accepted) }, { status: 200, text: 'noted' }),
      ...differences({ status: refused.status, error: refused.challenge?.error }, { status: 401, error: 'invalid_token' }),
    ];
  },

  async 'a token that is not good here is refused as such'({ resource, jwt, opaque, tokens, challenge }) {
    const now = Math.floor(Date.now() / 1000);
    const scope = SCOPES.all.join(' ');
    const good = { aud: resource.url, scope };
    const [head, payload, signature] = (await jwt.forge(good)).split('.');
    const flipped = `${signature.slice(0, 5)}${signature[5] === 'A' ? 'B' : 'A'}${signature.slice(6)}`;
    const bad = {
      'of another resource': tokens.elsewhere,
      'of another resource, opaque': tokens.opaqueElsewhere,
      'of no resource': await jwt.forge({ scope }),
      expired: await jwt.forge({ ...good, exp: now - LEEWAY_S - 5 }),
      'not yet valid': await jwt.forge({ ...good, nbf: now + LEEWAY_S + 30 }),
      'of another issuer': await jwt.forge({ ...good, iss: opaque.issuer }),
      'of an unknown issuer': await jwt.forge({ ...good, iss: 'https://attacker.example' }),
      'of the issuer with a slash': await jwt.forge({ ...good, iss: `${jwt.issuer}/` }),
      'without a signature': `${encode({ alg: 'none', typ: 'at+jwt' })}.${payload}.`,
      'signed with the public key as a secret': await hmacWithPublicKey(jwt, payload),
      'with an altered signature': `${head}.${payload}.${flipped}`,
      'with a critical extension': await jwt.forge(good, { header: { crit: ['exp'], exp: now } }).catch(() => 'a.b.c'),
      'cut short': `${head}.${payload}`,
      'of letters': 'abc',
    };
    const found = [];
    for (const [name, token] of Object.entries(bad)) {
      const { status, challenge: { error, scheme, resource_metadata, error_description } = {} } = await send(resource.url, { token, ...call('note') });
      const expected = { status: 401, ...challenge, error: 'invalid_token' };
      found.push(...differences({ status, scheme, resource_metadata, error }, expected).map((text) => `${name}: ${text}`));
      if (error_description !== undefined && !ERROR_TEXT.test(error_description)) found.push(`${name}: ${error_description}`);
    }
    return found;
  },

  async 'a token is read from the header alone'({ resource, tokens }) {
    const inQuery = await send(`${resource.url}?access_token=${tokens.alice}`, call('note'));
    const inCookie = await send(resource.url, { ...call('note'), headers: { ...call('note').headers, cookie: `access_token=${tokens.alice}` } });
    return [inQuery, inCookie].flatMap(({ status }) => differences({ status }, { status: 401 }));
  },

  async 'a malformed header is a bad request'({ resource, tokens }) {
    const found = [];
    for (const authorization of ['Bearer', `Bearer ${tokens.alice} ${tokens.alice}`, 'Bearer =']) {
      const { status } = await send(resource.url, { ...call('note'), headers: { ...call('note').headers, authorization } });
      if (![400, 401].includes(status)) found.push(`${authorization}: ${status}`);
    }
    const status = await statusWithTwoHeaders(resource.url, [tokens.alice, tokens.bob]);
    return [...found, ...differences({ status }, { status: 400 })];
  },

  async 'a token without the scope of the operation is told all scopes that it needs'({ resource, tokens, challenge }) {
    const found = [];
    for (const [token, tool, scope] of [[tokens.reader, 'note', SCOPES.scopesOf('note')], [tokens.alice, 'refund', SCOPES.scopesOf('refund')]]) {
      const { status, challenge: { error, scheme, resource_metadata, scope: told } = {} } = await send(resource.url, { token, ...call(tool) });
      const expected = { status: 403, ...challenge, error: 'insufficient_scope', told: scope.toSorted() };
      found.push(...differences({ status, scheme, resource_metadata, error, told }, expected));
    }
    return found;
  },

  async 'a session is of use to its principal alone, with any token'({ resource, tokens }) {
    const opened = await send(resource.url, { token: tokens.alice, message: INITIALIZE });
    const session = opened.headers.get('mcp-session-id');
    if (!session) return [`no session: ${opened.status} ${opened.body}`];
    const unknown = session.replace(/[0-9a-f]/gi, (digit) => (digit === '0' ? '1' : '0'));
    const found = [];
    for (const method of ['POST', 'GET', 'DELETE']) {
      const message = method === 'POST' ? LIST : undefined;
      const as = (token, id) => send(resource.url, { method, token, message, headers: { 'mcp-session-id': id, 'mcp-protocol-version': '2025-11-25' } });
      const never = await as(tokens.bob, unknown);
      for (const [who, token] of [['another user', tokens.bob], ['the namesake of another issuer', tokens.opaqueAlice]]) {
        const stolen = await as(token, session);
        const shown = ({ status, body }) => ({ status, body: body?.replaceAll(session, '').replaceAll(unknown, '') });
        found.push(...differences(shown(stolen), { ...shown(never), status: 404 }).map((text) => `${method} by ${who}: ${text}`));
      }
    }
    const headers = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
    const own = await send(resource.url, { token: tokens.aliceAgain, message: LIST, headers });
    return [...found, ...differences({ status: own.status }, { status: 200 })];
  },

  async 'no credential of a client reaches the server'({ resource, tokens, backend }) {
    const before = backend.requests.length;
    const { message, headers } = call('note');
    const more = { cookie: 'session=secret', dpop: 'proof', 'proxy-authorization': 'Basic c2VjcmV0' };
    await send(resource.url, { token: tokens.alice, message, headers: { ...headers, ...more } });
    const seen = backend.requests.slice(before);
    const shown = JSON.stringify(backend.requests.map(({ headers }) => headers));
    const names = ['authorization', 'cookie', 'dpop', 'proxy-authorization'].filter((name) => seen.some(({ headers }) => name in headers));
    const leaked = Object.entries(tokens).filter(([, token]) => shown.includes(token)).map(([name]) => `the token ${name}`);
    return [...names, ...leaked, ...(seen.length === 0 ? ['the server was not called'] : [])];
  },
};

/** Sends two Authorization headers, which `fetch` would join; returns the status. */
async function statusWithTwoHeaders(url, tokens) {
  const { message, headers } = call('note');
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, ...message });
  const fields = [
    ['Host', new URL(url).host], ['Content-Type', 'application/json'], ['Accept', 'application/json, text/event-stream'],
    ['Content-Length', Buffer.byteLength(body)], ...Object.entries(headers),
    ...tokens.map((token) => ['Authorization', `Bearer ${token}`]),
  ];
  const request = (url.startsWith('https:') ? https : http).request(url, { method: 'POST', headers: fields.flat().map(String), signal: AbortSignal.timeout(10_000) }).end(body);
  const [response] = await once(request, 'response');
  response.resume();
  return response.statusCode;
}

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

const textIn = (answer) => messageIn(answer)?.result?.content?.[0]?.text;

/** The classic forgery: a verifier that lets the token choose the algorithm uses the public key as an HMAC secret. */
async function hmacWithPublicKey(jwt, payload) {
  const signed = `${encode({ alg: 'HS256', kid: 'ec', typ: 'at+jwt' })}.${payload}`;
  const secret = Buffer.from(JSON.stringify(jwt.publicKeys[0]));
  const key = await crypto.subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  const signature = await crypto.subtle.sign('HMAC', key, Buffer.from(signed));
  return `${signed}.${Buffer.from(signature).toString('base64url')}`;
}

/** The members of `expected` whose values in `actual` differ. */
export function differences(actual, expected) {
  return Object.keys(expected)
    .filter((name) => !isDeepStrictEqual(actual[name], expected[name]))
    .map((name) => `${name}: ${JSON.stringify(actual[name])} instead of ${JSON.stringify(expected[name])}`);
}
