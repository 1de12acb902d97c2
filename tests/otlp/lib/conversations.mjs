// Traces of more than one request and response: lists of several servers, server requests,
// cancellations.
import { differences, kind, named, ours } from './cases.mjs';

const ASKED = 'elicitation/create';

/** Checks a list to which one server contributes nothing: the CLIENT spans are siblings below one SERVER span, and one has failed. */
export async function lists(checks, gateway, store, label) {
  await checks.one(`${label}  list    prompts/list  one of two fails`, async () => {
    const sent = await gateway.request('prompts/list', {}, (own) => ({ meta: own('01') }));
    const spans = await store.trace(sent.trace, (spans) =>
      named('client', 'alpha prompts/list', 'beta prompts/list')(spans) && ours(spans).length >= 3);
    const [server] = kind(ours(spans), 'SERVER');
    const clients = Object.fromEntries(kind(ours(spans), 'CLIENT').map((span) => [span.attributes['fanlight.backend.name'], span]));
    if (!server || Object.keys(clients).sort().join() !== 'alpha,beta') return unexpected(spans);
    const theirs = (backend) => spans.find((span) => span.name === `${backend} prompts/list`);
    return differences([
      ['the prompts', sent.answer.result?.prompts?.map((prompt) => prompt.name).join(), 'alpha__p'],
      ['the parent of SERVER', server.parent, sent.span],
      ['error.type of SERVER', server.attributes['error.type'], undefined],
      ['what is missing', Number(server.attributes['fanlight.partial_failures']), 1],
      ['a hit of the cache', String(server.attributes['fanlight.cache.hit']), 'false'],
      ...['alpha', 'beta'].flatMap((backend) => [
        [`the name of CLIENT to ${backend}`, clients[backend].name, 'prompts/list'],
        [`the parent of CLIENT to ${backend}`, clients[backend].parent, server.id],
        [`the parent of ${backend}'s span`, theirs(backend)?.parent, clients[backend].id],
        [`error.type of CLIENT to ${backend}`, clients[backend].attributes['error.type'], backend === 'beta' ? '-32603' : undefined],
      ]),
    ]);
  });
}

/** Checks that a server request's spans mirror the call's spans, below them. */
export async function serverRequests(checks, gateway, store, label) {
  await checks.one(`${label}  request delta__ask  by a request`, async () => {
    const theirs = ['delta ask', `delta ${ASKED}`, `client ${ASKED}`];
    const own = ['tools/call delta__ask', 'tools/call ask'];
    const { sent, spans } = await callWithRequest('delta__ask', (spans) =>
      named(...theirs, ...own)(spans) && spans.filter((span) => span.name === ASKED).length >= 2);
    const found = (part, name) => kind(ours(spans), part).find((span) => span.name === name);
    const [call, forwarded] = [found('SERVER', 'tools/call delta__ask'), found('CLIENT', 'tools/call ask')];
    const [received, relayed] = [found('SERVER', ASKED), found('CLIENT', ASKED)];
    if (!call || !forwarded || !received || !relayed) return unexpected(spans);
    const other = (name) => spans.find((span) => span.name === name);
    return differences([
      ['the response that the backend received', sent.answer.result?.answered?.action, 'accept'],
      ['the parent of the call', call.parent, sent.span],
      ['the parent of CLIENT', forwarded.parent, call.id],
      ["the parent of the backend's span", other('delta ask')?.parent, forwarded.id],
      ["the parent of the backend's request", other(`delta ${ASKED}`)?.parent, other('delta ask')?.id],
      ['the parent of its SERVER', received.parent, other(`delta ${ASKED}`)?.id],
      ['the parent of its CLIENT', relayed.parent, received.id],
      ["the parent of the client's response", other(`client ${ASKED}`)?.parent, relayed.id],
      ['the backend of the request', received.attributes['fanlight.backend.name'], 'delta'],
      ['errors', failed(spans).join(), ''],
    ]);
  });
  await checks.one(`${label}  request beta__ask  by a result`, async () => {
    const { sent, spans } = await callWithRequest('beta__ask', (spans) =>
      named('tools/call beta__ask', ASKED, `client ${ASKED}`)(spans) && spans.filter((span) => span.name === 'beta ask').length >= 2
      && spans.filter((span) => span.name === 'tools/call ask').length >= 2);
    const [call] = kind(ours(spans), 'SERVER');
    const rounds = kind(ours(spans), 'CLIENT').filter((span) => span.name === 'tools/call ask');
    const relayed = kind(ours(spans), 'CLIENT').find((span) => span.name === ASKED);
    if (!call || !relayed || rounds.length !== 2) return unexpected(spans);
    const theirs = spans.filter((span) => span.name === 'beta ask').map((span) => span.parent);
    return differences([
      ['the response that the backend received', sent.answer.result?.answered?.action, 'accept'],
      ['the parent of the call', call.parent, sent.span],
      ['the parents of both rounds', rounds.map((round) => round.parent).join(), `${call.id},${call.id}`],
      ["the parents of the backend's spans", theirs.sort().join(), rounds.map((round) => round.id).sort().join()],
      ['the parent of the request', relayed.parent, call.id],
      ["the parent of the client's response", spans.find((span) => span.name === `client ${ASKED}`)?.parent, relayed.id],
      ['errors', failed(spans).join(), ''],
    ]);
  });

  async function callWithRequest(tool, isWhole) {
    const client = await gateway.session();
    const sent = await client.request('tools/call', { name: tool, arguments: {} }, async (message) => {
      if (message.method === ASKED) await client.answer(message);
    });
    return { sent, spans: await store.trace(sent.trace, isWhole) };
  }
}

/** Checks cancellations in the form of the client's era, once the server works on the request. */
export async function cancellations(checks, gateway, store, label) {
  const params = (tool) => ({ name: tool, arguments: {}, _meta: { progressToken: 1 } });
  const methods = {
    'notifications/cancelled': {
      error: 'cancelled',
      send: async (tool) => {
        const client = await gateway.session();
        return client.request('tools/call', params(tool), (_, requestId) =>
          client.send({ method: 'notifications/cancelled', params: { requestId } }));
      },
    },
    'the stream is closed': {
      error: 'abandoned',
      send: (tool) => {
        const abort = new AbortController();
        const options = { signal: abort.signal, onMessage: () => abort.abort() };
        return gateway.request('tools/call', params(tool), (own) => ({ meta: own('01') }), options);
      },
    },
  };
  const all = ['beta', 'delta'].flatMap((backend) => Object.entries(methods).map(([method, { error, send }]) => ({ backend, method, error, send })));
  await checks.each(all, ({ backend, method }) => `${label}  cancel  ${backend}__hang  ${method}`, async ({ backend, error, send }) => {
    const sent = await send(`${backend}__hang`);
    const spans = await store.trace(sent.trace, named('client', `tools/call ${backend}__hang`, 'tools/call hang', `${backend} hang`));
    const [server] = kind(ours(spans), 'SERVER');
    const client = kind(ours(spans), 'CLIENT').find((span) => span.name === 'tools/call hang');
    if (!server || !client) return unexpected(spans);
    return differences([
      ['the answer', JSON.stringify(sent.answer), undefined],
      ['the parent of SERVER', server.parent, sent.span],
      ['the parent of CLIENT', client.parent, server.id],
      // The call ends when the server has been notified.
      ["the parent of the backend's span", spans.find((span) => span.name === `${backend} hang`)?.parent, client.id],
      ['error.type of SERVER', server.attributes['error.type'], error],
      ['error.type of CLIENT', client.attributes['error.type'], error],
    ]);
  });
}

const failed = (spans) => spans.filter((span) => span.status.includes('ERROR')).map((span) => span.name);
const unexpected = (spans) => [`the store has ${spans.map((span) => `${span.kind} ${span.name}`).join(', ') || 'nothing'}`];
