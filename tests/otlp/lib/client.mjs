// An instrumented client of the gateway: each request has a span of the client, whose context is sent with it.
import { CLIENT, exportSpan, newSpanId, newTraceId, parse, SERVER } from './otlp.mjs';

const MODERN = '2026-07-28', LEGACY = '2025-11-25';
const ACCEPTED = { action: 'accept', content: {} };

/** A client of the modern era. `carry` selects the carriers of the context: `{ meta, header }`. */
export class ModernClient {
  constructor(url, store) {
    Object.assign(this, { url, store });
  }

  /** `onMessage` gets the messages before the response; `signal` aborts the request. */
  async request(method, params, carry, { signal, onMessage } = {}) {
    return traced(this.store, async (own) => {
      const { meta, header } = carry(own);
      const _meta = {
        'io.modelcontextprotocol/protocolVersion': MODERN,
        'io.modelcontextprotocol/clientCapabilities': {},
        ...(meta ? { traceparent: meta } : {}),
        baggage: 'who=test',
        ...params._meta,
      };
      const headers = {
        'mcp-protocol-version': MODERN, 'mcp-method': method,
        ...(params.name ? { 'mcp-name': params.name } : {}),
        ...(header ? { traceparent: header } : {}),
      };
      return exchange(this.url, headers, { id: 1, method, params: { ...params, _meta } }, { signal, onMessage });
    });
  }
}

/** A client of the legacy era, with a session. Its response to a server request has a span below the request's span. */
export class LegacyClient {
  #headers = {};
  #lastId = 0;

  static async open(url, store) {
    const client = new LegacyClient();
    Object.assign(client, { url, store });
    const params = { protocolVersion: LEGACY, capabilities: { elicitation: {} }, clientInfo: { name: 'legacy', version: '1' } };
    const { session } = await exchange(url, {}, { id: 0, method: 'initialize', params });
    client.#headers = { 'mcp-protocol-version': LEGACY, 'mcp-session-id': session };
    await client.send({ method: 'notifications/initialized' });
    return client;
  }

  /** A request with the context in `_meta`; `onMessage(message, id)` gets the messages before the response. */
  async request(method, params, onMessage = () => {}) {
    const id = ++this.#lastId;
    return traced(this.store, (own) => {
      const message = { id, method, params: { ...params, _meta: { traceparent: own('01'), ...params._meta } } };
      return exchange(this.url, this.#headers, message, { onMessage: (message) => onMessage(message, id) });
    });
  }

  /** Responds to a server request. */
  async answer({ id, method, params }) {
    const parent = parse(params._meta?.traceparent), start = Date.now();
    await this.send({ id, result: ACCEPTED });
    if (!parent) return;
    const span = { trace: parent.trace, id: newSpanId(), parent: parent.span, name: `client ${method}`, kind: SERVER };
    await exportSpan(this.store.http, 'client', { ...span, start, end: Date.now() });
  }

  /** A message without a response. */
  send(message) {
    return exchange(this.url, this.#headers, message);
  }
}

/** Makes a request within a span of the client, and returns its outcome with the span's ids. */
async function traced(store, request) {
  const ids = { trace: newTraceId(), span: newSpanId() };
  const start = Date.now();
  let outcome;
  try {
    outcome = await request((flags) => `00-${ids.trace}-${ids.span}-${flags}`);
  } catch (error) {
    outcome = { error };
  }
  await exportSpan(store.http, 'client', { trace: ids.trace, id: ids.span, name: 'client', kind: CLIENT, start, end: Date.now() });
  return { ...ids, ...outcome };
}

/** One POST: `{ answer, session }`. */
async function exchange(url, more, message, { signal, onMessage = () => {} } = {}) {
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...more };
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', ...message }), signal });
  const session = response.headers.get('mcp-session-id');
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
    const text = await response.text();
    return { session, answer: text ? JSON.parse(text) : undefined };
  }
  let answer;
  for await (const message of events(response.body)) {
    if ('result' in message || 'error' in message) answer = message;
    else await onMessage(message);
  }
  return { session, answer };
}

/** The messages of an event stream as they arrive. */
async function* events(body) {
  let text = '';
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const whole = text.split('\n\n');
    text = whole.pop();
    for (const event of whole) {
      const data = event.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n');
      if (data.trim()) yield JSON.parse(data);
    }
  }
}
