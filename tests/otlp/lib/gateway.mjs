// Fanlight in front of the servers.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { answersOk, freePort, isListening, start, stop, waitUntilReady } from '../../interop/lib/processes.mjs';
import { LegacyClient, ModernClient } from './client.mjs';

const READY_TIMEOUT_MS = 30_000;
const BACKEND = path.join(import.meta.dirname, 'backend.mjs');
// A short time-out for the server that must time out, long ones for the others.
const SHORT = '1500ms', LONG = '60s';

export async function startGateway(binary, store, protocol, work) {
  const mcpServers = {};
  for (const [name, broken, timeout] of [['alpha', '0', SHORT], ['beta', '1', LONG]]) {
    const port = await freePort();
    const command = [process.execPath, BACKEND, name, store.http, `${port}`];
    const backend = await start(command, { env: { ...process.env, BROKEN_LISTS: broken }, logFile: path.join(work, `${name}.log`) });
    // A connection to a server that is not up yet is retried only after a while.
    await waitUntilReady(backend, name, () => isListening(port), READY_TIMEOUT_MS);
    mcpServers[name] = { type: 'http', url: `http://127.0.0.1:${port}/mcp`, timeout };
  }
  for (const [name, timeout] of [['gamma', SHORT], ['delta', LONG]]) {
    mcpServers[name] = { command: process.execPath, args: [BACKEND, name, store.http], timeout };
  }
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
  #modern;

  constructor(child, url, admin, traceFile, store) {
    Object.assign(this, { url, admin, traceFile });
    this.#child = child;
    this.#store = store;
    this.#modern = new ModernClient(url, store);
  }

  /** A request of a modern client. */
  request(method, params, carry, options) {
    return this.#modern.request(method, params, carry, options);
  }

  /** A legacy client with a session. */
  session() {
    return LegacyClient.open(this.url, this.#store);
  }

  /** The links of all spans of a trace, read from the file, since the store keeps none. */
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
