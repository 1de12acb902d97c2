// Single HTTP requests to a protected resource, and the contents of a challenge.

const TIMEOUT_MS = 10_000;
const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'by-hand', version: '1.0.0' },
  'io.modelcontextprotocol/clientCapabilities': {},
};

export const INITIALIZE = {
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'by-hand', version: '1.0.0' } },
};
export const LIST = { method: 'tools/list', params: {} };

/** A modern `tools/call` with its mirrored headers. */
export const call = (name) => ({
  message: { method: 'tools/call', params: { name, arguments: {}, _meta: META } },
  headers: { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': name },
});

/** Sends a request; `token` becomes `Authorization: Bearer`, `message` a JSON-RPC body. */
export async function send(url, { method = 'POST', token, headers = {}, message, id = 7, signal } = {}) {
  const response = await fetch(url, {
    method,
    headers: {
      accept: method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream',
      ...(message && { 'content-type': 'application/json' }),
      ...(token && { authorization: `Bearer ${token}` }),
      ...headers,
    },
    body: message && JSON.stringify({ jsonrpc: '2.0', id, ...message }),
    signal: signal ?? AbortSignal.timeout(TIMEOUT_MS),
  });
  const answer = { status: response.status, headers: response.headers, challenge: challengeOf(response) };
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
  return isStream && method === 'GET' ? { ...answer, response } : { ...answer, body: await response.text() };
}

/** The JSON-RPC message of an answer, which may be an event stream with one event. */
export function messageIn({ body }) {
  const data = body.startsWith('{') ? body : /^data: ?(\{.*)$/m.exec(body)?.[1];
  return data === undefined ? undefined : JSON.parse(data);
}

/** The parameters of `WWW-Authenticate: Bearer` by name, with sorted scopes; `undefined` without the header. */
function challengeOf({ headers }) {
  const value = headers.get('www-authenticate');
  if (value === null) return undefined;
  // A further challenge repeats this for tokens bound to a key (RFC 9449, 7.1).
  const [, scheme, rest] = /^(\S+) ?(.*)$/.exec(value.replace(/, DPoP .*$/, ''));
  const parameters = {};
  let left = rest;
  while (left !== '') {
    const found = /^([a-z_]+)="((?:[^"\\]|\\.)*)"(?:, |$)/.exec(left);
    if (!found || found[1] in parameters) throw new Error(`not a challenge by RFC 6750: ${value}`);
    parameters[found[1]] = found[2];
    left = left.slice(found[0].length);
  }
  if (parameters.scope !== undefined) parameters.scope = parameters.scope.split(' ').sort();
  return { scheme, ...parameters };
}
