// A protected resource of our own, for the self-test: verifies tokens with `jose` and forwards to
// the backend. An enabled fault makes it do something wrong that the checks must notice.
import { createServer } from 'node:http';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import { LEEWAY_S, SCOPES } from './setting.mjs';

const METADATA_PATH = '/.well-known/oauth-protected-resource';
const HOP_HEADERS = ['host', 'connection', 'content-length', 'authorization', 'cookie', 'dpop', 'proxy-authorization', 'mcp-session-id'];

/** The reference's possible faults; each must fail a check. */
export const FAULTS = [
  'acceptsAnyAudience', 'acceptsExpiredTokens', 'takesTokensFromTheQuery', 'acceptsTwoTokens', 'challengesWithoutMetadata', 'namesMissingScopesOnly',
  'believesForwardedHosts', 'forwardsTokens', 'hidesTheChallenge', 'sharesSessions', 'tellsSessionsApart', 'forbidsCaching',
];

export async function startReference({ port, authorizationServers, backend, fault }) {
  const reference = new Reference({ origin: `http://127.0.0.1:${port}`, authorizationServers, backend, fault });
  const server = createServer((request, response) => reference.answer(request, response)).listen(port, '127.0.0.1');
  await once(server, 'listening');
  return { close: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))) };
}

class Reference {
  #origin;
  #issuers;
  #opaque;
  #backend;
  #fault;
  #holders = new Map();

  constructor({ origin, authorizationServers: { jwt, opaque }, backend, fault }) {
    this.#origin = origin;
    this.#issuers = new Map([[jwt.issuer, createRemoteJWKSet(new URL(`${jwt.issuer}/jwks`))]]);
    this.#opaque = opaque;
    this.#backend = backend;
    this.#fault = fault;
  }

  async answer(request, response) {
    const { pathname, searchParams } = new URL(request.url, this.#origin);
    response.setHeader('access-control-allow-origin', '*');
    if (this.#fault !== 'hidesTheChallenge') response.setHeader('access-control-expose-headers', 'WWW-Authenticate, Mcp-Session-Id');
    if (pathname === METADATA_PATH || pathname === `${METADATA_PATH}/mcp`) return this.#metadata(request, response);
    if (pathname !== '/mcp') return response.writeHead(404).end();

    const body = request.method === 'POST' ? await buffer(request) : undefined;
    const message = body && JSON.parse(body);
    const credentials = this.#credentials(request, searchParams);
    if (credentials.isMalformed) return refuse(response, 400, message, this.#challenge({ error: 'invalid_request' }));
    if (!credentials.token) return refuse(response, 401, message, this.#challenge({ scope: SCOPES.usual }));
    const holder = await this.#verify(credentials.token, `${this.#origin}${pathname}`);
    if (!holder) {
      return refuse(response, 401, message, this.#challenge({ error: 'invalid_token', scope: SCOPES.usual }));
    }
    const needed = neededScopes(message);
    const missing = needed.filter((scope) => !holder.scopes.includes(scope));
    if (missing.length > 0) {
      const scope = (this.#fault === 'namesMissingScopesOnly' ? missing : needed).join(' ');
      return refuse(response, 403, message, this.#challenge({ error: 'insufficient_scope', scope }));
    }
    return this.#forward(request, response, { body, message, principal: `${holder.issuer} ${holder.subject}` });
  }

  #metadata(request, response) {
    const { 'x-forwarded-host': forwarded } = request.headers;
    const origin = this.#fault === 'believesForwardedHosts' && forwarded ? `http://${forwarded}` : this.#origin;
    if (this.#fault !== 'forbidsCaching') response.setHeader('cache-control', 'max-age=60');
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({
      resource: `${origin}/mcp`,
      authorization_servers: [...this.#issuers.keys(), this.#opaque.issuer],
      scopes_supported: SCOPES.usual,
      bearer_methods_supported: ['header'],
    }));
  }

  #credentials(request, searchParams) {
    const values = request.headersDistinct.authorization ?? [];
    if (values.length > 1 && this.#fault !== 'acceptsTwoTokens') return { isMalformed: true };
    if (values.length === 0) return { token: this.#fault === 'takesTokensFromTheQuery' ? searchParams.get('access_token') : undefined };
    const token = /^bearer +([^ ]+)$/i.exec(values[0])?.[1];
    return { token, isMalformed: !token };
  }

  async #verify(token, resource) {
    try {
      if (!token.includes('.')) return await this.#introspect(token, resource);
      const { iss } = JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));
      const { payload } = await jwtVerify(token, this.#issuers.get(iss), {
        issuer: iss,
        audience: this.#fault === 'acceptsAnyAudience' ? undefined : resource,
        clockTolerance: this.#fault === 'acceptsExpiredTokens' ? 1e9 : LEEWAY_S,
      });
      return { issuer: iss, subject: payload.sub, scopes: payload.scope?.split(' ') ?? [] };
    } catch {
      return undefined;
    }
  }

  async #introspect(token, resource) {
    const { issuer, resourceClient } = this.#opaque;
    const authorization = `Basic ${btoa(`${resourceClient.client_id}:${resourceClient.client_secret}`)}`;
    const body = new URLSearchParams({ token });
    const answer = await fetch(`${issuer}/token/introspection`, { method: 'POST', headers: { authorization }, body });
    const { active, sub, scope, aud } = await answer.json();
    return active && aud === resource ? { issuer, subject: sub, scopes: scope.split(' ') } : undefined;
  }

  #challenge(parameters) {
    const metadata = this.#fault === 'challengesWithoutMetadata' ? {} : { resource_metadata: `${this.#origin}${METADATA_PATH}/mcp` };
    const all = { ...metadata, ...parameters, ...(parameters.error && { error_description: 'see error' }) };
    return `Bearer ${Object.entries(all).map(([name, value]) => `${name}="${[value].flat().join(' ')}"`).join(', ')}`;
  }

  async #forward(request, response, { body, message, principal }) {
    const session = request.headers['mcp-session-id'];
    const holder = this.#holders.get(session);
    if (session !== undefined && holder !== principal && !(holder && this.#fault === 'sharesSessions')) {
      const status = holder && this.#fault === 'tellsSessionsApart' ? 403 : 404;
      return refuse(response, status, message);
    }
    if (request.method === 'DELETE') return void (this.#holders.delete(session), response.writeHead(200).end());
    const dropped = this.#fault === 'forwardsTokens' ? HOP_HEADERS.slice(0, 3) : HOP_HEADERS;
    const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !dropped.includes(name)));
    const answer = await fetch(this.#backend, { method: request.method, headers, body });
    response.statusCode = answer.status;
    response.setHeader('content-type', answer.headers.get('content-type') ?? 'application/json');
    if (message?.method === 'initialize') {
      const id = crypto.randomUUID();
      this.#holders.set(id, principal);
      response.setHeader('mcp-session-id', id);
    }
    if (answer.body) Readable.fromWeb(answer.body).pipe(response);
    else response.end();
  }
}

/** All scopes of the operation, including those that the token has. */
function neededScopes(message) {
  if (message?.method !== 'tools/call') return message?.id === undefined ? [] : [SCOPES.read];
  return SCOPES.scopesOf(message.params.name);
}

function refuse(response, status, message, challenge) {
  if (challenge) response.setHeader('www-authenticate', challenge);
  response.writeHead(status, { 'content-type': 'application/json' });
  const id = message?.id;
  response.end(id === undefined ? undefined : JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32000, message: 'refused' } }));
}
