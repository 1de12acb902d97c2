#!/usr/bin/env node
// The reference server on the TypeScript server SDK. It passes the official suite by itself, so a check that is lost
// through Fanlight is Fanlight's fault. It supports every revision over Streamable HTTP on loopback, or over stdio.
//
//   main.mjs [--port N] [--eras legacy|modern|both]     prints one line, `listening on URL`
//   main.mjs --stdio [--eras …]
import { randomBytes, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import {
  NodeStreamableHTTPServerTransport,
  localhostHostValidation,
  localhostOriginValidation,
  toNodeHandler,
  toWebRequest,
} from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler, createRequestStateCodec, isLegacyRequest } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { registerExtraPrompt, registerPrompts, registerResources } from './data.mjs';
import { EventLog } from './events.mjs';
import { registerInputTools } from './input.mjs';
import { registerExtraTool, registerTools } from './tools.mjs';

const MAX_SESSIONS = 256;

const { values: options } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    eras: { type: 'string', default: 'both' },
    stdio: { type: 'boolean', default: false },
  },
});

const states = createRequestStateCodec({ key: randomBytes(32) });

/** The state that all sessions and requests share: entries that are added and removed, and the sessions to notify. */
const world = {
  extraTool: false,
  extraPrompt: false,
  changed: { tools: () => {}, prompts: () => {} },
  toggleTool() {
    this.extraTool = !this.extraTool;
    this.changed.tools();
  },
  togglePrompt() {
    this.extraPrompt = !this.extraPrompt;
    this.changed.prompts();
  },
};

function build() {
  const server = new McpServer(
    { name: 'reference-typescript', version: '1.0.0', title: 'Reference server on the TypeScript SDK' },
    {
      instructions: 'A server for conformance runs.',
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        completions: {},
        logging: {},
      },
      cacheHints: { 'tools/list': { ttlMs: 1000, cacheScope: 'public' } },
      requestState: { verify: states.verify },
    },
  );
  registerTools(server, world);
  registerInputTools(server, states);
  registerResources(server);
  registerPrompts(server, world);
  return server;
}

if (options.stdio) {
  serveStdio(buildChanging, { legacy: options.eras === 'modern' ? 'reject' : 'serve' });
} else {
  serveHttp();
}

/** Over stdio one server lives as long as its connection, and so do its changing entries. */
function buildChanging() {
  const server = build();
  let [tool, prompt] = [undefined, undefined];
  world.changed = {
    tools: () => (tool = tool ? void tool.remove() : registerExtraTool(server)),
    prompts: () => (prompt = prompt ? void prompt.remove() : registerExtraPrompt(server)),
  };
  return server;
}

function serveHttp() {
  const handler = createMcpHandler(build, { legacy: 'reject' });
  const modern = toNodeHandler(handler);
  const sessions = new Map();
  const tellSessions = (method) => sessions.forEach(({ server }) => void server.server.notification({ method }).catch(() => {}));
  world.changed = {
    tools() {
      handler.notify.toolsChanged();
      tellSessions('notifications/tools/list_changed');
    },
    prompts() {
      handler.notify.promptsChanged();
      tellSessions('notifications/prompts/list_changed');
    },
  };
  const hostAllowed = localhostHostValidation();
  const originAllowed = localhostOriginValidation();

  const listener = createServer(async (request, response) => {
    if (!hostAllowed(request, response) || !originAllowed(request, response)) return;
    if (!request.url.startsWith('/mcp')) return void response.writeHead(404).end();
    const body = request.method === 'POST' ? await readJson(request) : undefined;
    const isLegacy = options.eras !== 'modern' && (await isLegacyRequest(await toWebRequest(request, body)));
    if (options.eras === 'legacy' || isLegacy) await legacy(sessions, request, response, body);
    else await modern(request, response, body);
  });
  listener.listen(Number(options.port), '127.0.0.1', () => {
    console.log(`listening on http://127.0.0.1:${listener.address().port}/mcp`);
  });
  process.once('SIGTERM', () => process.exit(0));
}

/** Serves a legacy request on its session; an `initialize` without one opens a session. */
async function legacy(sessions, request, response, body) {
  const id = request.headers['mcp-session-id'];
  let transport = id === undefined ? undefined : sessions.get(id)?.transport;
  if (id !== undefined && transport === undefined) {
    return refuse(response, 404, 'no such session');
  }
  if (transport === undefined) {
    if (body?.method !== 'initialize') return refuse(response, 400, 'no session: send initialize first');
    if (sessions.size >= MAX_SESSIONS) return refuse(response, 503, 'too many sessions');
    const server = build();
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new EventLog(),
      retryInterval: 100,
      onsessioninitialized: (opened) => void sessions.set(opened, { transport, server }),
      onsessionclosed: (closed) => void sessions.delete(closed),
    });
    await server.connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

function refuse(response, status, message) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32600, message } }));
}

async function readJson(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    return undefined;
  }
}
