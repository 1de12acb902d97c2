// A server on @modelcontextprotocol/server (v2), both eras over Streamable HTTP, that announces changes and asks its
// client: see README.md. `typescript-v2.mjs --port N [--name NAME]`
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import { createMcpHandler, fromJsonSchema, inputRequired, inputResponse, isLegacyRequest, McpServer } from '@modelcontextprotocol/server';
import { Sessions } from './sessions.mjs';
import { FORM, POEM, text, World } from './world.mjs';

const { values: options } = parseArgs({
  options: { port: { type: 'string' }, name: { type: 'string', default: 'typescript-v2-peer' } },
});
const world = new World(options.name);
const sessions = new Sessions(world);
const handler = createMcpHandler(buildModern, { legacy: 'reject' });
const modern = toNodeHandler(handler);
const CHANGED = { tools: 'toolsChanged', prompts: 'promptsChanged', resources: 'resourcesChanged' };

createServer(async (request, response) => {
  const body = request.method === 'POST' ? await json(request) : undefined;
  const isLegacy = await isLegacyRequest(await toWebRequest(request, body));
  await (isLegacy ? sessions.serve(request, response, body, openSession) : modern(request, response, body));
}).listen(Number(options.port), '127.0.0.1');

async function openSession() {
  const server = build(true);
  const session = world.openSession(server);
  const transport = sessions.newTransport(NodeStreamableHTTPServerTransport);
  server.server.setRequestHandler('resources/subscribe', ({ params }) => (session.subscribed.add(params.uri), {}));
  server.server.setRequestHandler('resources/unsubscribe', ({ params }) => (session.subscribed.delete(params.uri), {}));
  await server.connect(transport);
  server.server.onclose = session.close;
  return transport;
}

function buildModern() {
  const server = build(false);
  for (const kind of world.extra) world.registerExtra(server, kind);
  return server;
}

function build(isLegacy) {
  const changing = { listChanged: true };
  const server = new McpServer({ name: options.name, version: '1.0.0' }, {
    capabilities: { tools: changing, prompts: changing, resources: { ...changing, subscribe: true } },
  });
  world.registerEntries(server);
  registerChangingTools(server, isLegacy);
  registerAskingTools(server);
  return server;
}

function registerChangingTools(server, isLegacy) {
  const argument = (name, schema) => fromJsonSchema({ type: 'object', properties: { [name]: schema }, required: [name] });
  const uris = argument('uris', { type: 'array', items: { type: 'string' } });
  server.registerTool('touch', { description: 'Announces updates', inputSchema: uris }, async ({ uris }) => {
    if (isLegacy) await world.untilHeard();
    for (const uri of uris) {
      handler.notify.resourceUpdated(uri);
      await world.updated(uri);
    }
    return text('touched');
  });
  const kind = argument('kind', { enum: Object.keys(CHANGED) });
  server.registerTool('toggle', { description: 'Adds or removes an entry', inputSchema: kind }, async ({ kind }) => {
    if (isLegacy) await world.untilHeard();
    world.toggle(kind);
    handler.notify[CHANGED[kind]]();
    return text(`toggled ${kind}`);
  });
}

/** Registers tools written for modern clients; for a legacy client, the SDK turns their input into server requests. */
function registerAskingTools(server) {
  const elicit = (message) => inputRequired.elicit({ message, requestedSchema: FORM });
  const name = (ctx, key) => inputResponse(ctx.mcpReq.inputResponses, key)?.content?.name;
  server.registerTool('ask-both', { description: 'Asks the user and the model' }, async (ctx) => {
    const user = inputResponse(ctx.mcpReq.inputResponses, 'name');
    const poem = ctx.mcpReq.inputResponses?.poem;
    if (user?.kind === 'elicit' && poem) return text(`${user.action} ${user.content.name}: ${poem.content.text}`);
    return inputRequired({ inputRequests: { name: elicit('Who?'), poem: inputRequired.createMessage(POEM) } });
  });
  server.registerTool('ask-twice', { description: 'Asks the user, and again' }, async (ctx) => {
    const [first, second] = [name(ctx, 'first'), name(ctx, 'second')];
    if (second !== undefined) return text(`${ctx.mcpReq.requestState()}, ${second}`);
    if (first === undefined) return inputRequired({ inputRequests: { first: elicit('Who?') } });
    return inputRequired({ inputRequests: { second: elicit(`Sure, ${first}?`) }, requestState: first });
  });
}
