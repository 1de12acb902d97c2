// A small instrumented MCP server: its tools give back the `_meta` and the headers they got, and each call is a span of its
// own below the one that `_meta` names.
//
//   node backend.mjs NAME COLLECTOR            over stdio, revision 2025-11-25
//   node backend.mjs NAME COLLECTOR PORT       over HTTP on loopback, revision 2026-07-28
import http from 'node:http';
import readline from 'node:readline';
import { exportSpan, newSpanId, parse, SERVER } from './otlp.mjs';

const [name, collector, port] = process.argv.slice(2);
const MODERN = '2026-07-28', LEGACY = '2025-11-25';
const info = { name, version: '1' };
const TOOLS = ['echo', 'fail', 'refuse', 'hang', 'die'].map((tool) => ({ name: tool, inputSchema: { type: 'object' } }));
const BROKEN_LISTS = process.env.BROKEN_LISTS === '1';

const complete = (result) => (port ? { resultType: 'complete', ...result } : result);

async function answer({ method, params }, headers) {
  switch (method) {
    case 'initialize':
      return { result: { protocolVersion: LEGACY, capabilities: { tools: {} }, serverInfo: info } };
    case 'server/discover':
      return { result: complete({ supportedVersions: [MODERN], capabilities: { tools: {}, prompts: {} }, ttlMs: 0, cacheScope: 'private' }) };
    case 'tools/list':
      return { result: complete({ tools: TOOLS, ...(port ? { ttlMs: 0, cacheScope: 'private' } : {}) }) };
    case 'prompts/list':
      if (BROKEN_LISTS) return { error: { code: -32603, message: 'no prompts today' } };
      return { result: complete({ prompts: [{ name: 'p' }], ttlMs: 0, cacheScope: 'private' }) };
    case 'tools/call':
      return traced(params, () => call(params, headers));
    default:
      return { error: { code: -32601, message: `no ${method} here` } };
  }
}

function call({ name: tool, _meta }, headers) {
  const got = { backend: name, meta: _meta ?? null, headers };
  const content = [{ type: 'text', text: JSON.stringify(got) }];
  if (tool === 'refuse') return { error: { code: -32602, message: 'refused' } };
  if (tool === 'hang') return new Promise(() => {});
  if (tool === 'die') process.exit(7);
  return { result: complete({ content, ...(tool === 'fail' ? { isError: true } : {}) }) };
}

/** What an instrumented server does: a span below the one that the request names. */
async function traced(params, work) {
  const parent = parse(params._meta?.traceparent);
  const start = Date.now();
  const result = await work();
  if (parent?.flags === '01') {
    const span = { trace: parent.trace, id: newSpanId(), parent: parent.span, name: `${name} ${params.name}` };
    await exportSpan(collector, name, { ...span, kind: SERVER, start, end: Date.now() });
  }
  return result;
}

async function respond(message, headers) {
  if (message.id === undefined) return undefined;
  return { jsonrpc: '2.0', id: message.id, ...(await answer(message, headers)) };
}

if (port) {
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    if (request.method !== 'POST') return response.writeHead(405).end();
    const { traceparent = null } = request.headers;
    const reply = await respond(JSON.parse(Buffer.concat(chunks).toString()), { traceparent });
    if (!reply) return response.writeHead(202).end();
    return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(reply));
  });
  server.listen(Number(port), '127.0.0.1');
} else {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    respond(JSON.parse(line), null).then((reply) => {
      if (reply) process.stdout.write(`${JSON.stringify(reply)}\n`);
    });
  }
}
