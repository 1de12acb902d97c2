// The store: otelite, on loopback, in a temporary folder.
import path from 'node:path';
import { mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { answersOk, freePort, start, waitUntilReady } from '../../interop/lib/processes.mjs';

const START_TIMEOUT_MS = 20_000;
const TRACE_TIMEOUT_MS = 15_000;
const POLL_MS = 50;

export async function startStore(binary, work) {
  const [api, http, grpc] = [await freePort(), await freePort(), await freePort()];
  const folder = path.join(work, 'otelite');
  mkdirSync(folder);
  const env = { ...process.env, HOME: work, OTELITE_OTLP_HTTP_PORT: `${http}`, OTELITE_OTLP_GRPC_PORT: `${grpc}` };
  const command = [binary, 'serve', '--addr', `127.0.0.1:${api}`, '--storage-path', folder];
  const process_ = await start(command, { env, logFile: path.join(work, 'otelite.log') });
  const base = `http://127.0.0.1:${api}`;
  await waitUntilReady(process_, 'otelite', () => answersOk(`${base}/api/health`), START_TIMEOUT_MS);
  return new Store(base, `http://127.0.0.1:${http}`, `http://127.0.0.1:${grpc}`);
}

class Store {
  constructor(base, http, grpc) {
    Object.assign(this, { base, http, grpc });
  }

  /** The spans of the trace, once `isWhole` accepts them, or else the spans stored at the end of the time. */
  async trace(id, isWhole) {
    const until = Date.now() + TRACE_TIMEOUT_MS;
    for (;;) {
      const answer = await fetch(`${this.base}/api/traces/${id}`);
      const spans = answer.ok ? (await answer.json()).spans.map(plain) : (await answer.arrayBuffer(), []);
      if (isWhole(spans) || Date.now() > until) return spans;
      await sleep(POLL_MS);
    }
  }
}

const plain = (span) => ({
  id: span.span_id, parent: span.parent_span_id || undefined, name: span.name, kind: span.kind.toUpperCase(),
  attributes: span.attributes, status: span.status.code.toUpperCase(),
});
