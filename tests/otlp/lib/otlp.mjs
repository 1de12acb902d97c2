// Exports spans of the test's client and servers, as any instrumented program does: OTLP over HTTP, in JSON.
import { randomBytes } from 'node:crypto';

export const INTERNAL = 1, SERVER = 2, CLIENT = 3;

export const newTraceId = () => randomBytes(16).toString('hex');
export const newSpanId = () => randomBytes(8).toString('hex');

/** The parts of a `traceparent` of version 00; undefined for other texts. */
export function parse(traceparent) {
  const match = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(traceparent ?? '');
  return match ? { trace: match[1], span: match[2], flags: match[3] } : undefined;
}

/** Sends one span of `service` to the collector at `endpoint`. */
export async function exportSpan(endpoint, service, { trace, id, parent, name, kind, start, end }) {
  const nanos = (milliseconds) => `${BigInt(Math.round(milliseconds * 1000)) * 1000n}`;
  const span = {
    traceId: trace, spanId: id, name, kind,
    ...(parent ? { parentSpanId: parent } : {}),
    startTimeUnixNano: nanos(start), endTimeUnixNano: nanos(end), status: {},
  };
  const attributes = [{ key: 'service.name', value: { stringValue: service } }];
  const body = { resourceSpans: [{ resource: { attributes }, scopeSpans: [{ scope: { name: 'test' }, spans: [span] }] }] };
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${endpoint}/v1/traces`, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`the store answered ${service}'s span with ${answer.status}: ${await answer.text()}`);
  await answer.arrayBuffer();
}
