// Fanlight as the protected resource: reached directly, and through nginx, which terminates TLS or
// authenticates users itself.
import { readFileSync } from 'node:fs';
import { resourceAt, startFanlight } from './gateway.mjs';
import { checkGuide } from './guide.mjs';
import { INITIALIZE, send } from './http.mjs';
import { checkClients } from './legs.mjs';
import { checkBehindNginx } from './nginx.mjs';
import { LEEWAY_S, SCOPES } from './setting.mjs';
import { checkTraffic, differences, signInAll } from './traffic.mjs';
import { checkUsers } from './users.mjs';

const STREAM_LIFE_S = 3;
const STREAM_GRACE_MS = 10_000;

export async function checkFanlight(checks, context, clients) {
  await checkDirectly(checks, context, clients);
  await checkUsers(checks, context);
  await checkBehindNginx(checks, context, clients);
  await checkGuide(checks, context, clients.filter(({ era }) => era === 'modern'));
}

async function checkDirectly(checks, context, clients) {
  const origin = `http://127.0.0.1:${context.ports.plain}`;
  const resource = resourceAt(origin);
  const fanlight = await startFanlight(context, { name: 'direct', port: context.ports.plain, publicUrl: origin });
  const name = 'direct';
  const reached = { ...context, name, resource };
  const tokens = await signInAll(reached);
  await checkTraffic(checks, { ...reached, tokens });
  await checks.one(`${name}  the transport of 2024-11-05 wants a token, too`, () => checkSse(resource));
  await checks.one(`${name}  a stream ends with its token`, () => checkStreamEnds(context, resource));
  const used = [...Object.values(tokens), ...(await checkClients(checks, reached, clients))];
  await checks.one(`${name}  no token is in the log or in the traces`, () => findTokens(fanlight, used));
}

/** Checks the HTTP+SSE endpoint, whose URL is a separate resource. */
async function checkSse({ origin, metadataUrl }) {
  const { status, challenge } = await send(`${origin}/sse`, { method: 'GET' });
  return differences({ status, metadata: challenge?.resource_metadata }, { status: 401, metadata: metadataUrl.replace(/mcp$/, 'sse') });
}

/** Checks that a legacy session's stream ends with its token, which Fanlight accepts for a few seconds. */
async function checkStreamEnds({ jwt }, { url }) {
  const exp = Math.floor(Date.now() / 1000) - LEEWAY_S + STREAM_LIFE_S;
  const token = await jwt.forge({ aud: url, scope: SCOPES.usual.join(' '), exp });
  const opened = await send(url, { token, message: INITIALIZE });
  const headers = { 'mcp-session-id': opened.headers.get('mcp-session-id'), 'mcp-protocol-version': '2025-11-25' };
  await send(url, { token, headers, message: { method: 'notifications/initialized' }, id: undefined });
  const signal = AbortSignal.timeout(STREAM_LIFE_S * 1_000 + STREAM_GRACE_MS);
  const { status, response } = await send(url, { method: 'GET', token, headers, signal });
  if (status !== 200) return [`the stream was answered with ${status}`];
  const opening = Date.now();
  try {
    await response.text();
  } catch (error) {
    return error.name === 'TimeoutError' ? ['the stream is still open'] : [];
  }
  return Date.now() - opening < 500 ? ['the stream ended before its token'] : [];
}

/** Searches everything that operators see for tokens or their signatures. */
async function findTokens({ admin, logFile }, tokens) {
  const places = { log: readFileSync(logFile, 'utf8') };
  for (const page of ['/api/traces', '/api/config', '/api/sessions', '/metrics']) {
    places[page] = await (await fetch(`http://${admin}${page}`)).text();
  }
  const secrets = tokens.flatMap((token) => [token, token.split('.')[2] ?? token]);
  const found = Object.entries(places).filter(([, text]) => secrets.some((secret) => text.includes(secret)));
  return [...found.map(([place]) => `${place} has a token`), ...(tokens.length < 5 ? ['there were hardly any tokens'] : [])];
}
