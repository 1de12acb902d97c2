// A server on @modelcontextprotocol/sdk (v1), the legacy era, that announces changes, asks its client and has tasks:
// see README.md. Streamable HTTP at /mcp, the transport of 2024-11-05 at /sse. `typescript-v1.mjs --port N [--name NAME]`
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { InMemoryTaskMessageQueue, InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { ElicitResultSchema, SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';
import { Sessions } from './sessions.mjs';
import { FORM, POEM, text, World } from './world.mjs';

const TASK = { ttl: 60_000, pollInterval: 50 };

const { values: options } = parseArgs({
  options: { port: { type: 'string' }, name: { type: 'string', default: 'typescript-v1-peer' } },
});
const world = new World(options.name);
const sessions = new Sessions(world);

createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  const body = request.method === 'POST' ? await json(request) : undefined;
  const route = `${request.method} ${pathname}`;
  if (route === 'GET /sse') await openOldSession(response);
  else if (route === 'POST /message') await sessions.byId.get(searchParams.get('sessionId'))?.handlePostMessage(request, response, body);
  else if (pathname === '/mcp') await sessions.serve(request, response, body, openSession);
  else response.writeHead(404).end();
}).listen(Number(options.port), '127.0.0.1');

async function openSession() {
  const transport = sessions.newTransport(StreamableHTTPServerTransport);
  await connect(transport);
  return transport;
}

async function openOldSession(response) {
  const transport = new SSEServerTransport('/message', response);
  sessions.byId.set(transport.sessionId, transport);
  response.once('close', () => sessions.byId.delete(transport.sessionId));
  await connect(transport);
  world.countStream(response);
}

async function connect(transport) {
  const server = build();
  const session = world.openSession(server);
  server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => (session.subscribed.add(params.uri), {}));
  server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => (session.subscribed.delete(params.uri), {}));
  await server.connect(transport);
  server.server.onclose = session.close;
}

function build() {
  const changing = { listChanged: true };
  const store = new AskedTaskStore();
  const server = new McpServer({ name: options.name, version: '1.0.0' }, {
    capabilities: {
      tools: changing, prompts: changing, resources: { ...changing, subscribe: true },
      tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } },
    },
    taskStore: store,
    taskMessageQueue: new InMemoryTaskMessageQueue(),
  });
  world.registerEntries(server);
  registerChangingTools(server);
  registerAskingTools(server);
  registerTasks(server, store);
  return server;
}

function registerChangingTools(server) {
  const uris = { uris: z.array(z.string()) };
  server.registerTool('touch', { description: 'Announces updates', inputSchema: uris }, async ({ uris }) => {
    await world.untilHeard();
    for (const uri of uris) await world.updated(uri);
    return text('touched');
  });
  const kind = { kind: z.enum(['tools', 'prompts', 'resources']) };
  server.registerTool('toggle', { description: 'Adds or removes an entry', inputSchema: kind }, async ({ kind }) => {
    await world.untilHeard();
    world.toggle(kind);
    return text(`toggled ${kind}`);
  });
}

function registerAskingTools(mcp) {
  const { server } = mcp;
  const on = ({ requestId: relatedRequestId }) => ({ relatedRequestId });
  const elicit = (message, extra) => server.elicitInput({ mode: 'form', message, requestedSchema: FORM }, on(extra));
  mcp.registerTool('ask-both', { description: 'Asks the user and the model' }, async (extra) => {
    const [user, poem] = await Promise.all([elicit('Who?', extra), server.createMessage(POEM, on(extra))]);
    return text(`${user.action} ${user.content.name}: ${poem.content.text}`);
  });
  mcp.registerTool('ask-twice', { description: 'Asks the user, and again' }, async (extra) => {
    const first = await elicit('Who?', extra);
    const second = await elicit(`Sure, ${first.content.name}?`, extra);
    return text(`${first.content.name}, ${second.content.name}`);
  });
}

/** Emits an event when a client first reads a task. */
class AskedTaskStore extends InMemoryTaskStore {
  #asked = new EventEmitter();

  async getTask(taskId, ...more) {
    const task = await super.getTask(taskId, ...more);
    this.#asked.emit(taskId);
    return task;
  }

  firstAsked(taskId) {
    return once(this.#asked, taskId);
  }
}

/** Tools that can only be called as tasks. */
function registerTasks(server, store) {
  const register = (name, description, work) => {
    const config = { description, inputSchema: { topic: z.string() }, execution: { taskSupport: 'required' } };
    server.experimental.tasks.registerToolTask(name, config, {
      async createTask({ topic }, { taskStore, sendRequest }) {
        const task = await taskStore.createTask(TASK);
        // The work begins when the client first reads the state, so that every client sees the task working.
        store.firstAsked(task.taskId).then(() => work(topic, task, sendRequest, taskStore)).then(
          (result) => taskStore.storeTaskResult(task.taskId, result.isError ? 'failed' : 'completed', result),
          (error) => taskStore.updateTaskStatus(task.taskId, 'failed', error.message),
        );
        return { task };
      },
      getTask: (_, { taskId, taskStore }) => taskStore.getTask(taskId),
      getTaskResult: (_, { taskId, taskStore }) => taskStore.getTaskResult(taskId),
    });
  };
  register('ponder', 'Takes a while', async (topic) => text(`pondered ${topic}`));
  register('ponder-in-vain', 'Fails', async (topic) => ({ ...text(`no idea of ${topic}`), isError: true }));
  register('ponder-and-ask', 'Asks while it runs', async (topic, { taskId }, sendRequest, taskStore) => {
    await taskStore.updateTaskStatus(taskId, 'input_required', 'Who?');
    const params = { mode: 'form', message: `Who pondered ${topic}?`, requestedSchema: FORM };
    const { content } = await sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema, { relatedTask: { taskId } });
    await taskStore.updateTaskStatus(taskId, 'working', 'Thanks');
    return text(`${content.name} pondered ${topic}`);
  });
}
