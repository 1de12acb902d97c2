// A real authorization server, `oidc-provider`, in this process. It signs in the user that the
// browser names, without a page, and records the clients' requests.
import { createServer } from 'node:http';
import { once } from 'node:events';
import { exportJWK, generateKeyPair, importJWK, SignJWT } from 'jose';
import Provider from 'oidc-provider';
import { USER_HEADER } from './setting.mjs';

const GROUPS = { alice: ['operators'], bob: ['readers'] };
const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;

/**
 * `resources`: the resource indicators of its tokens (RFC 8707). `format`: the access tokens' format, `jwt` or `opaque`.
 * `rotates`: whether each refresh token is good once. `clients`: clients that need no registration; the first is the resource itself, which introspects opaque tokens.
 */
export async function startAuthorizationServer({ resources, scopes, format = 'jwt', clients = [], rotates = false }) {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const keys = [await signingKey('ES256', 'ec'), await signingKey('RS256', 'rsa')];
  const requests = [];
  const documents = new Map();
  const lifetimes = new Map();
  const provider = new Provider(issuer, {
    ...configuration({ resources, scopes, format, clients, keys, lifetimes, rotates }),
    fetch: (url) => answerFrom(documents, url),
  });
  signInWithoutPage(provider);
  record(provider, requests);
  server.on('request', provider.callback());

  return {
    issuer,
    provider,
    requests,
    resources,
    scopes,
    resourceClient: clients[0],
    /** Publishes a client ID metadata document at its https URL; only this server sees it. */
    publishClient: (url, metadata) => documents.set(url, { client_id: url, ...metadata }),
    /**
     * The first token of the client with this name expires after `seconds`. It is dated back by `leeway`, so that a
     * resource with that leeway refuses it from then on.
     */
    limitLifetime: (name, { seconds, leeway }) => lifetimes.set(name, { seconds, leeway }),
    requestsOf: (name) => requests.filter((request) => request.client === name),
    /** Revokes a token as its client. */
    revoke: (token, client_id) =>
      fetch(`${issuer}/token/revocation`, { method: 'POST', body: new URLSearchParams({ token, client_id }) }),
    /** Signs a token like this server's, with any content. */
    async forge(claims, { header = {}, key = keys[0] } = {}) {
      const now = Math.floor(Date.now() / 1000);
      return new SignJWT({ iss: issuer, sub: 'alice', iat: now, exp: now + 3600, jti: crypto.randomUUID(), ...claims })
        .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: 'at+jwt', ...header })
        .sign(await importJWK(key, key.alg));
    },
    publicKeys: keys.map(({ d, p, q, dp, dq, qi, ...key }) => key),
    /** Answers nobody until it is resumed; its state stays. */
    pause: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))),
    resume: async () => void (await once(server.listen(new URL(issuer).port, '127.0.0.1'), 'listening')),
    close: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))),
  };
}

function configuration({ resources, scopes, format, clients, keys, lifetimes, rotates }) {
  return {
    clients,
    jwks: { keys },
    scopes: ['openid', 'offline_access', ...scopes],
    cookies: { keys: [crypto.randomUUID()] },
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    // Consent covers every requested scope.
    loadExistingGrant: async (ctx) => {
      const { client, session, params } = ctx.oidc;
      const grant = new ctx.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope(['openid', 'offline_access', ...scopes].join(' '));
      for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, scopes.join(' '));
      await grant.save();
      return grant;
    },
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    issueRefreshToken: async (_ctx, client) => client.grantTypeAllowed('refresh_token'),
    // A legacy client may refresh twice at once: for its stream, which ends with the token, and for
    // its call.
    rotateRefreshToken: rotates,
    pkce: { required: () => true },
    extraTokenClaims: (_ctx, token) => ({ groups: GROUPS[token.accountId] ?? [] }),
    // A client registers with the scopes that it requests first; it may request others later.
    extraClientMetadata: { properties: ['any_scope'], validator: (_ctx, _name, _value, metadata) => void delete metadata.scope },
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    ttl: { AccessToken: (_ctx, token) => token.resourceServer?.accessTokenTTL ?? HOUR_S, Session: DAY_S, Grant: DAY_S, Interaction: HOUR_S, RefreshToken: DAY_S, IdToken: HOUR_S },
    formats: { customizers: { jwt: (_ctx, token, parts) => backdate(token, parts, lifetimes) } },
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      introspection: { enabled: true, allowedPolicy: async () => true },
      revocation: { enabled: true, allowedPolicy: async () => true },
      clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
      resourceIndicators: {
        enabled: true,
        defaultResource: (_ctx, _client, oneOf) => oneOf,
        useGrantedResource: async () => true,
        getResourceServerInfo: (ctx, resource, client) => {
          if (!resources.includes(resource)) throw new InvalidTarget();
          const isFirst = ctx.oidc.params.grant_type === 'authorization_code';
          const accessTokenTTL = (isFirst && lifetimes.get(client.clientName)?.seconds) || HOUR_S;
          const jwt = { sign: { alg: 'ES256' } };
          return { scope: scopes.join(' '), audience: resource, accessTokenTTL, accessTokenFormat: format, jwt };
        },
      },
    },
  };
}

class InvalidTarget extends Error {
  error = 'invalid_target';
  status = 400;
  statusCode = 400;
  expose = true;
  allow_redirect = true;
}

function backdate({ client }, parts, lifetimes) {
  const limit = lifetimes.get(client?.clientName);
  if (limit && parts.payload.exp - parts.payload.iat === limit.seconds) {
    parts.payload.iat -= limit.leeway;
    parts.payload.exp -= limit.leeway;
  }
  return parts;
}

/** Interactions end at once: the browser's header names the user. */
function signInWithoutPage(provider) {
  provider.use(async (ctx, next) => {
    if (!ctx.path.startsWith('/interaction/')) return next();
    const accountId = ctx.get(USER_HEADER) || 'alice';
    ctx.respond = false;
    await provider.interactionFinished(ctx.req, ctx.res, { login: { accountId }, consent: {} });
  });
}

/** Records each request: the client, the relevant parameters, and the status of the answer. */
function record(provider, requests) {
  provider.use(async (ctx, next) => {
    await next();
    const { route, client, params = {}, body = {} } = ctx.oidc ?? {};
    const { scope, resource, grant_type: grant, code_challenge_method: pkce } = params;
    const name = client?.clientName ?? body.client_name ?? client?.clientId;
    const account = ctx.oidc?.account?.accountId;
    requests.push({ route, client: name, clientId: client?.clientId, account, scope, resource, grant, pkce, status: ctx.status });
  });
}

async function answerFrom(documents, url) {
  const document = documents.get(String(url));
  return document ? Response.json(document) : new Response('not found', { status: 404 });
}

async function signingKey(alg, kid) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return { ...(await exportJWK(privateKey)), alg, kid, use: 'sig' };
}
