// A small instrumented MCP server: its tools return the `_meta` and the headers of the call, and each call has a span
// below the context in `_meta`.
//
//   node backend.mjs NAME COLLECTOR            over stdio, revision 2025-11-25
//   node backend.mjs NAME COLLECTOR PORT       over HTTP on loopback, revision 2026-07-28
import http from 'node:http';
import readline from 'node:readline';
import { CLIENT, exportSpan, newSpanId, parse, SERVER } from './otlp.mjs';

const [name, collector, port] = process.argv.slice(2);
const MODERN = '2026-07-28', LEGACY = '2025-11-25';
const ASKED = 'elicitation/create';
const QUESTION = { message: 'Go on?', requestedSchema: { type: 'object', properties: {} } };
const info = { name, version: '1' };
const TOOLS = ['echo', 'fail', 'refuse', 'hang', 'die', 'ask'].map((tool) => ({ name: tool, inputSchema: { type: 'object' } }));
const BROKEN_LISTS = process.env.BROKEN_LISTS === '1';

const UNKNOWN = { error: { code: -32601, message: 'there is no such method here' } };

const complete = (result) => (port ? { resultType: 'complete', ...result } : result);

/**
 * `peer` has the headers, and functions for the call: `notify`, `ask`, and `left`, which resolves when the client has
 * cancelled.
 */
async function answer({ id, method, params }, peer) {
  switch (method) {
    case 'initialize':
      return { result: { protocolVersion: LEGACY, capabilities: { tools: {} }, serverInfo: info } };
    case 'server/discover':
      if (!port) return UNKNOWN;
      return { result: complete({ supportedVersions: [MODERN], capabilities: { tools: {}, prompts: {} }, ttlMs: 0, cacheScope: 'private' }) };
    case 'tools/list':
      return { result: complete({ tools: TOOLS, ...(port ? { ttlMs: 0, cacheScope: 'private' } : {}) }) };
    case 'prompts/list':
      return traced(params, method, () =>
        BROKEN_LISTS
          ? { error: { code: -32603, message: 'no prompts today' } }
          : { result: complete({ prompts: [{ name: 'p' }], ttlMs: 0, cacheScope: 'private' }) });
    case 'tools/call':
      return traced(params, params.name, (span) => call(params, peer, { id, span }));
    default:
      return UNKNOWN;
  }
}

async function call({ name: tool, _meta, inputResponses }, peer, { id, span }) {
  const got = { backend: name, meta: _meta ?? null, headers: peer.headers };
  const content = [{ type: 'text', text: JSON.stringify(got) }];
  const progressToken = _meta?.progressToken;
  switch (tool) {
    case 'refuse': return { error: { code: -32602, message: 'refused' } };
    case 'die': return process.exit(7);
    case 'hang':
      if (progressToken !== undefined) peer.notify({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
      await peer.left(id);
      return undefined;
    case 'ask':
      if (!port) return { result: { content, answered: await ask(peer, span) } };
      if (inputResponses) return { result: complete({ content, answered: inputResponses.q }) };
      return { result: { resultType: 'input_required', inputRequests: { q: { method: ASKED, params: QUESTION } }, requestState: 's' } };
    default: return { result: complete({ content, ...(tool === 'fail' ? { isError: true } : {}) }) };
  }
}

/** Sends a server request within a span, and the span's context with it. */
async function ask(peer, within) {
  const own = { trace: within.trace, id: newSpanId(), parent: within.id, name: `${name} ${ASKED}`, kind: CLIENT, start: Date.now() };
  const traceparent = `00-${own.trace}-${own.id}-01`;
  const { result } = await peer.ask({ method: ASKED, params: { ...QUESTION, _meta: { traceparent } } });
  await exportSpan(collector, name, { ...own, end: Date.now() });
  return result;
}

/** Runs work within a span below the context of the request, as instrumented servers do. */
async function traced(params, what, work) {
  const parent = parse(params?._meta?.traceparent);
  const span = { trace: parent?.trace, id: newSpanId(), parent: parent?.span, name: `${name} ${what}`, kind: SERVER, start: Date.now() };
  const result = await work(span);
  if (parent?.flags === '01') await exportSpan(collector, name, { ...span, end: Date.now() });
  return result;
}

const text = (message) => JSON.stringify({ jsonrpc: '2.0', ...message });

function serveHttp() {
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    if (request.method !== 'POST') return response.writeHead(405).end();
    const message = JSON.parse(Buffer.concat(chunks).toString());
    if (message.id === undefined) return response.writeHead(202).end();
    const { traceparent = null } = request.headers;
    const notify = (notification) => {
      if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`data: ${text(notification)}\n\n`);
    };
    const left = () => new Promise((resolve) => response.on('close', resolve));
    const reply = await answer(message, { headers: { traceparent }, notify, left });
    if (!reply || response.destroyed) return response.end();
    const body = text({ id: message.id, ...reply });
    if (response.headersSent) return response.end(`data: ${body}\n\n`);
    return response.writeHead(200, { 'content-type': 'application/json' }).end(body);
  });
  server.listen(Number(port), '127.0.0.1');
}

async function serveStdio() {
  const write = (message) => process.stdout.write(`${text(message)}\n`);
  const pending = new Map(), running = new Map();
  const peer = {
    headers: null,
    notify: write,
    ask: (request) => new Promise((resolve) => {
      const id = `q${pending.size}`;
      pending.set(id, resolve);
      write({ id, ...request });
    }),
    left: (id) => new Promise((resolve) => running.set(id, resolve)),
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const message = JSON.parse(line);
    if (message.method === 'notifications/cancelled') running.get(message.params.requestId)?.();
    else if (message.method === undefined) pending.get(message.id)?.(message);
    else if (message.id !== undefined) answer(message, peer).then((reply) => reply && write({ id: message.id, ...reply }));
  }
}

if (port) serveHttp();
else await serveStdio();
