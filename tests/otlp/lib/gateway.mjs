// Fanlight in front of the three backends, and a client of it that is instrumented.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { answersOk, freePort, start, stop, waitUntilReady } from '../../interop/lib/processes.mjs';
import { CLIENT, exportSpan, newSpanId, newTraceId } from './otlp.mjs';

const REVISION = '2026-07-28';
const READY_TIMEOUT_MS = 30_000;
const BACKEND = path.join(import.meta.dirname, 'backend.mjs');

export async function startGateway(binary, store, protocol, work) {
  const mcpServers = {};
  for (const [name, broken] of [['alpha', '0'], ['beta', '1']]) {
    const port = await freePort();
    const command = [process.execPath, BACKEND, name, store.http, `${port}`];
    await start(command, { env: { ...process.env, BROKEN_LISTS: broken }, logFile: path.join(work, `${name}.log`) });
    mcpServers[name] = { type: 'http', url: `http://127.0.0.1:${port}/mcp`, timeout: '700ms' };
  }
  mcpServers.gamma = { command: process.execPath, args: [BACKEND, 'gamma', store.http], timeout: '700ms' };
  const telemetry = { endpoint: protocol === 'grpc' ? store.grpc : store.http, protocol };
  const config = path.join(work, `fanlight-${protocol.replace('/', '-')}.json`);
  writeFileSync(config, JSON.stringify({ telemetry, mcpServers }));
  const [listen, admin] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
  const traceFile = `${config}.traces`;
  const command = [binary, 'run', '--config', config, '--listen', listen, '--admin', admin, '--trace-file', traceFile];
  const env = { ...process.env, OTEL_BSP_SCHEDULE_DELAY: '50' };
  const child = await start(command, { env, logFile: path.join(work, 'fanlight.log') });
  await waitUntilReady(child, 'fanlight', () => answersOk(`http://${admin}/readyz`), READY_TIMEOUT_MS);
  return new Gateway(child, `http://${listen}/mcp`, `http://${admin}`, traceFile, store);
}

class Gateway {
  #child;
  #store;

  constructor(child, url, admin, traceFile, store) {
    Object.assign(this, { url, admin, traceFile });
    this.#child = child;
    this.#store = store;
  }

  /** A request with a span of the client's around it; `carry` says what of it goes out: `{ meta, header }`. */
  async request(method, params, carry, { signal } = {}) {
    const ids = { trace: newTraceId(), span: newSpanId() };
    const own = (flags) => `00-${ids.trace}-${ids.span}-${flags}`;
    const { meta, header } = carry(own);
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': REVISION,
      'io.modelcontextprotocol/clientCapabilities': {},
      ...(meta ? { traceparent: meta } : {}),
      baggage: 'who=test',
    };
    const headers = {
      'content-type': 'application/json', accept: 'application/json, text/event-stream',
      'mcp-protocol-version': REVISION, 'mcp-method': method,
      ...(params.name ? { 'mcp-name': params.name } : {}),
      ...(header ? { traceparent: header } : {}),
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } });
    const began = Date.now();
    const exported = () =>
      exportSpan(this.#store.http, 'client', { trace: ids.trace, id: ids.span, name: 'client', kind: CLIENT, start: began, end: Date.now() });
    try {
      const answer = await fetch(this.url, { method: 'POST', headers, body, signal });
      const text = await answer.text();
      await exported();
      const events = text.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5));
      return { ...ids, answer: JSON.parse(text.startsWith('{') ? text : events.at(-1)) };
    } catch (error) {
      await exported();
      return { ...ids, error };
    }
  }

  /** The links of all spans of a trace, from the file: the store keeps none. */
  links(trace) {
    const lines = readFileSync(this.traceFile, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
    const spans = lines.flatMap((line) => line.resourceSpans).flatMap((r) => r.scopeSpans).flatMap((s) => s.spans);
    return spans.filter((span) => span.traceId === trace).flatMap((span) => span.links ?? []);
  }

  async metrics() {
    return (await fetch(`${this.admin}/metrics`)).text();
  }

  stop() {
    return stop(this.#child);
  }
}
