// The requests, and the spans that the store must have after each.
import { setTimeout as sleep } from 'node:timers/promises';
import { newSpanId, newTraceId, parse } from './otlp.mjs';

const BACKENDS = [{ name: 'alpha', http: true }, { name: 'beta', http: true }, { name: 'gamma', http: false }];

/** The carriers of the client's context, and the trace in which each puts the gateway's spans. */
const CARRIERS = {
  '_meta only': (own) => ({ meta: own('01') }),
  'header only': (own) => ({ header: own('01') }),
  'both equal': (own) => ({ meta: own('01'), header: own('01') }),
  'both different': (own) => ({ meta: own('01'), header: `00-${newTraceId()}-${newSpanId()}-01` }),
};

export const kind = (spans, name) => spans.filter((span) => span.kind.includes(name));
/** Whether all of these spans are stored. */
export const named = (...names) => (spans) => names.every((name) => spans.some((span) => span.name === name));
export const ours = (spans) => spans.filter((span) => 'mcp.method.name' in span.attributes);

/** Checks the whole chain of spans for every carrier and every server. */
export async function chains(checks, gateway, store, label) {
  const all = BACKENDS.flatMap((backend) => Object.entries(CARRIERS).map(([name, carry]) => ({ backend, name, carry })));
  await checks.each(all, ({ backend, name }) => `${label}  chain   ${backend.name}  ${name}`, async ({ backend, name, carry }) => {
    const sent = await gateway.request('tools/call', { name: `${backend.name}__echo`, arguments: {} }, carry);
    const spans = await store.trace(sent.trace, named('client', `tools/call ${backend.name}__echo`, 'tools/call echo', `${backend.name} echo`));
    const links = ['links', gateway.links(sent.trace).length, name === 'both different' ? 1 : 0];
    return [...chain(spans, sent, backend), ...differences([links])];
  });
}

/** The differences between found and expected values, each under a name. */
export function differences(all) {
  return all.filter(([, found, wanted]) => found !== wanted).map(([what, found, wanted]) => `${what} is ${found}, not ${wanted}`);
}

/** Checks the chain client → SERVER → CLIENT → the server's span, each below the previous one. */
function chain(spans, sent, backend) {
  const [server] = kind(ours(spans), 'SERVER');
  // The trace may also contain list requests that preceded the call.
  const client = kind(ours(spans), 'CLIENT').find((span) => span.name === 'tools/call echo');
  if (!server || !client) return [`the store has ${spans.map((span) => `${span.kind} ${span.name}`).join(', ') || 'nothing'}`];
  const theirs = spans.find((span) => span.name.startsWith(`${backend.name} `));
  const got = JSON.parse(sent.answer.result.content[0].text);
  return differences([
    ['the client', spans.find((span) => span.name === 'client')?.id, sent.span],
    ['the parent of SERVER', server.parent, sent.span],
    ['the parent of CLIENT', client.parent, server.id],
    ["the parent of the backend's span", theirs?.parent, client.id],
    ['the name of SERVER', server.name, `tools/call ${backend.name}__echo`],
    ['the name of CLIENT', client.name, 'tools/call echo'],
    ['the tool on CLIENT', client.attributes['gen_ai.tool.name'], 'echo'],
    ['the backend on CLIENT', client.attributes['fanlight.backend.name'], backend.name],
    ['the transport', client.attributes['network.transport'], backend.http ? 'tcp' : 'pipe'],
    ['what the backend got in _meta', got.meta.traceparent, `00-${sent.trace}-${client.id}-01`],
    ['baggage', got.meta.baggage, 'who=test'],
    ...(backend.http ? [['what the backend got in headers', got.headers.traceparent, got.meta.traceparent]] : []),
  ]);
}

/** Checks that a trace begins without a valid context, and that an unsampled context is propagated as such. */
export async function roots(checks, gateway, store, label) {
  const contexts = {
    neither: () => ({}),
    malformed: (own) => ({ meta: own('01').toUpperCase() }),
    'malformed header': (own) => ({ header: `${own('01')}-` }),
  };
  const all = BACKENDS.flatMap((backend) => Object.entries(contexts).map(([name, carry]) => ({ backend, name, carry })));
  await checks.each(all, ({ backend, name }) => `${label}  root    ${backend.name}  ${name}`, async ({ backend, carry }) => {
    const sent = await gateway.request('tools/call', { name: `${backend.name}__echo`, arguments: {} }, carry);
    const got = parse(JSON.parse(sent.answer.result.content[0].text).meta.traceparent);
    if (!got || got.trace === sent.trace) return [`the backend got ${JSON.stringify(got)}`];
    const spans = await store.trace(got.trace, named(`tools/call ${backend.name}__echo`));
    const [server] = kind(ours(spans), 'SERVER');
    return server && !server.parent ? [] : [`SERVER is ${JSON.stringify(server)}`];
  });
  await checks.each(BACKENDS, (backend) => `${label}  flags   ${backend.name}  not sampled`, async (backend) => {
    const params = { name: `${backend.name}__echo`, arguments: {} };
    const unsampled = await gateway.request('tools/call', params, (own) => ({ meta: own('00') }));
    const sampled = await gateway.request('tools/call', params, (own) => ({ meta: own('01') }));
    const got = parse(JSON.parse(unsampled.answer.result.content[0].text).meta.traceparent);
    const problems = got.trace === unsampled.trace && got.flags === '00' ? [] : [`the backend got ${JSON.stringify(got)}`];
    // Once the later span is stored, the earlier one would be too.
    await store.trace(sampled.trace, named(`tools/call ${backend.name}__echo`, 'tools/call echo'));
    const spans = ours(await store.trace(unsampled.trace, () => true));
    return spans.length === 0 ? problems : [...problems, `${spans.length} spans of it were exported`];
  });
}

/** Checks that an error is on both spans with one error.type, and that a client's mistake is no error of the SERVER span. */
export async function errors(checks, gateway, store, label) {
  const cases = [
    { what: 'isError', tool: 'alpha__fail', error: ['tool_error', 'tool_error'] },
    { what: 'isError', tool: 'gamma__fail', error: ['tool_error', 'tool_error'] },
    { what: 'JSON-RPC error', tool: 'beta__refuse', error: [undefined, '-32602'], isMistake: true },
    { what: 'JSON-RPC error', tool: 'gamma__refuse', error: [undefined, '-32602'], isMistake: true },
    { what: 'timeout', tool: 'alpha__hang', client: 'timeout' },
    { what: 'timeout', tool: 'gamma__hang', client: 'timeout' },
    { what: 'hang-up', tool: 'beta__hang', abort: 300, error: ['abandoned', 'abandoned'] },
    { what: 'backend death', tool: 'gamma__die', client: 'backend_exited' },
  ];
  // One case after the other, since the exit of a server affects all of its calls.
  for (const { what, tool, error, client: clientError, abort, isMistake } of cases) {
    await checks.one(`${label}  error   ${tool}  ${what}`, async () => {
      const signal = abort ? AbortSignal.timeout(abort) : undefined;
      const sent = await gateway.request('tools/call', { name: tool, arguments: {} }, (own) => ({ meta: own('01') }), { signal });
      const spans = await store.trace(sent.trace, named(`tools/call ${tool}`, `tools/call ${tool.split('__')[1]}`));
      const [server] = kind(ours(spans), 'SERVER');
      const clients = kind(ours(spans), 'CLIENT').filter((span) => span.attributes['mcp.method.name'] === 'tools/call');
      if (!server || clients.length === 0) return [`the store has ${JSON.stringify(spans)}`];
      const found = [server, clients[0]].map((span) => span.attributes['error.type']);
      const problems = [];
      if (server.parent !== sent.span || clients.some((span) => span.parent !== server.id)) problems.push('a parent is wrong');
      if (error && `${found}` !== `${error}`) problems.push(`error.type is ${found}, not ${error}`);
      if (clientError && found[1] !== clientError) problems.push(`error.type of CLIENT is ${found[1]}, not ${clientError}`);
      if (isMistake && server.attributes['rpc.response.status_code'] !== '-32602') problems.push('SERVER has no rpc.response.status_code');
      if (!found[0] && !isMistake) problems.push('SERVER has no error.type');
      if (server.status.includes('ERROR') === Boolean(isMistake)) problems.push(`the status of SERVER is ${server.status}`);
      return problems;
    });
  }
}

/** The gateway's counters of its exports. */
export async function nothingDropped(checks, gateway, label) {
  await checks.one(`${label}  drops`, async () => {
    await sleep(100);
    const lines = (await gateway.metrics()).split('\n').filter((line) => line.startsWith('fanlight_spans_dropped_total'));
    return lines.length && lines.every((line) => line.endsWith(' 0')) ? [] : lines.length ? lines : ['no such metric'];
  });
}
