#!/usr/bin/env node
// Streamable HTTP in front of a stdio server, so that the suite, which speaks HTTP, can grade one.
//
//   bridge.mjs PROGRAM [ARGUMENT…]        prints one line, `listening on URL`
//
// A legacy session has a separate process; all modern requests share one. Messages are unchanged except for the ids of
// modern requests, which must be unique within a process. The bridge adds nothing: there are no event ids, and no
// header is compared with the body.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { localhostHostValidation, localhostOriginValidation } from '@modelcontextprotocol/node';

const [program, ...args] = process.argv.slice(2);
const MAX_SESSIONS = 6; // the suite's clients do not end theirs; the longest unused gives way
const MODERN = '2026-07-28';
const PROTOCOL_VERSION = 'io.modelcontextprotocol/protocolVersion';
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
/** Errors for which modern revisions define an HTTP status. */
const STATUSES = { '-32601': 404, '-32602': 400, '-32020': 400, '-32021': 400, '-32022': 400 };

/** One process, its running requests, and the streams that listen to it. */
class Server {
  #calls = new Map();
  #next = 1;
  listening;

  constructor({ renames }) {
    this.renames = renames;
    this.child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.child.stdin.on('error', () => {}); // it ended, which its output says
    this.child.once('exit', () => this.#calls.forEach(({ reply }) => reply.drop()));
    createInterface({ input: this.child.stdout }).on('line', (line) => this.#receive(JSON.parse(line)));
  }

  /** Sends a request; its messages go to `reply`. */
  request(message, reply) {
    const id = this.renames ? `bridge-${this.#next++}` : message.id;
    this.#calls.set(id, { id: message.id, reply, message });
    reply.onClosed(() => {
      // A closed stream cancels a modern request; over stdio, a notification does.
      if (!this.#calls.delete(id) || !this.renames) return;
      this.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } });
    });
    this.send({ ...message, id });
  }

  send(message) {
    this.child.stdin.write(`${JSON.stringify(message)}\n`);
  }

  end() {
    this.listening?.drop();
    this.child.stdin.end();
    this.child.kill('SIGTERM');
  }

  #receive(message) {
    if (message.method === undefined) {
      const call = this.#calls.get(message.id);
      this.#calls.delete(message.id);
      call?.reply.end(this.#restored({ ...message, id: call.id }));
    } else {
      this.#requestOf(message)?.say(this.#restored(message));
    }
  }

  /** Over stdio most messages do not name their request: the newest request that can have caused it is chosen. */
  #requestOf({ method, params }) {
    const calls = [...this.#calls.values()].reverse();
    const subscription = this.#calls.get(params?._meta?.[SUBSCRIPTION]);
    if (subscription) return subscription.reply;
    if (params?.progressToken !== undefined) {
      return calls.find(({ message }) => message.params?._meta?.progressToken === params.progressToken)?.reply;
    }
    const isNews = /list_changed$|resources\/updated$/.test(method);
    const newest = calls.find(({ message }) => message.method !== 'subscriptions/listen')?.reply;
    return isNews ? this.listening : (newest ?? this.listening);
  }

  /** A subscription is named by its request's id, which the bridge has replaced. */
  #restored(message) {
    const part = message.params ? 'params' : 'result';
    const call = this.#calls.get(message[part]?._meta?.[SUBSCRIPTION]);
    if (!call) return message;
    return { ...message, [part]: { ...message[part], _meta: { ...message[part]._meta, [SUBSCRIPTION]: call.id } } };
  }
}

/**
 * The response to one HTTP request: JSON if the first message is the last and the client accepts it, else an event
 * stream.
 */
class Reply {
  #response;
  #statuses;

  constructor(response, { statuses = {}, headers = {} } = {}) {
    this.#response = response;
    this.#statuses = statuses;
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  }

  begin() {
    if (this.#response.headersSent) return;
    this.#response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    this.#response.flushHeaders();
  }

  say(message) {
    this.begin();
    this.#response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
  }

  end(message) {
    if (!this.#response.headersSent) {
      return answer(this.#response, this.#statuses[message.error?.code] ?? 200, message);
    }
    this.say(message);
    this.#response.end();
  }

  drop() {
    this.#response.destroy();
  }

  onClosed(action) {
    this.#response.once('close', action);
  }
}

const sessions = new Map();
let modern;
const hostAllowed = localhostHostValidation();
const originAllowed = localhostOriginValidation();

const listener = createServer(async (request, response) => {
  if (!hostAllowed(request, response) || !originAllowed(request, response)) return;
  const id = request.headers['mcp-session-id'];
  const session = take(id);
  if (id !== undefined && !session) return refuse(response, 404, 'no such session');
  if (request.method === 'POST') return post(request, response, session);
  if (!session) return refuse(response, 405, 'only POST without a session');
  if (request.method === 'GET') {
    session.listening = new Reply(response);
    return session.listening.begin();
  }
  sessions.delete(id);
  session.end();
  response.writeHead(204).end();
});

async function post(request, response, session) {
  const message = await readJson(request);
  if (message?.jsonrpc !== '2.0') return refuse(response, 400, 'not one JSON-RPC message');
  if (!session && message.method === 'initialize' && !message.params?._meta?.[PROTOCOL_VERSION]) {
    const id = randomUUID();
    return open(id).request(message, new Reply(response, { headers: { 'mcp-session-id': id } }));
  }
  const server = session ?? (modern ??= openModern());
  if (message.id !== undefined && message.method !== undefined) {
    return server.request(message, new Reply(response, { statuses: session ? {} : STATUSES }));
  }
  server.send(message);
  response.writeHead(202).end();
}

/**
 * A stdio server may choose its era by the first request, but not by `server/discover`, which may be a probe. So the
 * bridge first sends a request of its own that only a modern client would send; the suite's first request may be
 * malformed.
 */
function openModern() {
  const server = new Server({ renames: true });
  const _meta = { [PROTOCOL_VERSION]: MODERN, [CAPABILITIES]: {} };
  server.send({ jsonrpc: '2.0', id: 'bridge', method: 'tools/list', params: { _meta } });
  return server;
}

function open(id) {
  const server = new Server({ renames: false });
  sessions.set(id, server);
  const [[oldest, unused]] = sessions;
  if (sessions.size > MAX_SESSIONS) {
    sessions.delete(oldest);
    unused.end();
  }
  return server;
}

/** The session with an id, which becomes the most recently used. */
function take(id) {
  const session = sessions.get(id);
  if (session) sessions.delete(id) && sessions.set(id, session);
  return session;
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

function refuse(response, status, message) {
  answer(response, status, { jsonrpc: '2.0', id: null, error: { code: -32600, message } });
}

function answer(response, status, message) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(message));
}

listener.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${listener.address().port}/mcp`));
process.once('SIGTERM', () => {
  for (const server of [...sessions.values(), modern]) server?.end();
  process.exit(0);
});
