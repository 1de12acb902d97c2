// Runs one plan with one SDK client and prints the report as JSON. Shared by the two TypeScript drivers, which differ
// only in how they connect and in the shape of their errors.
//
//   stdin:  {target: {url} | {sse} | {command, args, env, cwd}, era: "legacy" | "modern", steps: [{id, method, params}]}
//   stdout: {server, lists, steps}, with every result as the SDK returns it.
import { renameSync, writeFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { notificationsSince, unwatch, watch } from './notifications.mjs';

const REQUEST_TIMEOUT_MS = 20_000;

export const CLIENT_INFO = { name: 'fanlight-interop', version: '1.0.0' };

/** The capabilities of this client. */
export const CAPABILITIES = { elicitation: { form: {} }, sampling: {} };

/** The client's fixed responses to server requests; the requests are in the report. */
const ANSWERS = {
  'elicitation/create': { action: 'accept', content: { name: 'Ada "é" Lovelace', check: true, integer: 7 } },
  'sampling/createMessage': {
    role: 'assistant', model: 'a-model', stopReason: 'endTurn', content: { type: 'text', text: 'façade \u2028' },
  },
};

const asked = [];

/** The handler for server requests of this method. */
export const answering = (method) => (request) => {
  // The keys that name the call or connection differ between runs.
  const { _meta, ...params } = request.params;
  asked.push({ method, params });
  return ANSWERS[method];
};

/**
 * @param sdk {connect(target, era): Promise<Client>, callTool(client, params, options), wireError(error),
 *             runTask?(client, params, options, seen)}
 */
export async function runDriver(sdk) {
  try {
    const report = await runPlan(sdk, JSON.parse(await text(process.stdin)));
    process.stdout.write(JSON.stringify(report));
  } catch (error) {
    console.error(`${error.name}: ${error.message}`);
    process.exit(1); // also when a transport is still open
  }
}

async function runPlan(sdk, job) {
  const client = await sdk.connect(job.target, job.era);
  const report = { server: describeServer(client), lists: await readLists(client), steps: {} };
  for (const step of job.steps) {
    report.steps[step.id] = await runStep(sdk, client, step);
  }
  await client.close();
  return report;
}

function describeServer(client) {
  return {
    era: client.getProtocolEra?.() ?? 'legacy',
    serverInfo: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions() ?? null,
  };
}

/** Every list the server has the capability for, all pages; `null` for a capability it lacks. */
async function readLists(client) {
  const capabilities = client.getServerCapabilities() ?? {};
  const read = (capability, member, list) => (capabilities[capability] ? allPages(member, list) : null);
  return {
    tools: await read('tools', 'tools', (page) => client.listTools(page, options())),
    resources: await read('resources', 'resources', (page) => client.listResources(page, options())),
    resourceTemplates: await read('resources', 'resourceTemplates', (page) =>
      client.listResourceTemplates(page, options())),
    prompts: await read('prompts', 'prompts', (page) => client.listPrompts(page, options())),
  };
}

/** `items` of all pages, and `rest`: the other members of the first page. */
async function allPages(member, list) {
  const { [member]: items, nextCursor, ...rest } = await list(undefined);
  for (let cursor = nextCursor; cursor !== undefined; ) {
    const page = await list({ cursor });
    items.push(...page[member]);
    cursor = page.nextCursor;
  }
  return { items, rest };
}

async function runStep(sdk, client, { method, params }) {
  const progress = [];
  const task = {};
  asked.length = 0;
  // Fanlight's own, on a machine so busy that a process takes seconds to start.
  const isOwn = ({ message }) => message === 'waiting for the server to start';
  const restore = tapProgress(client.transport, (update) => isOwn(update) || progress.push(update));
  const requestOptions = { ...options(), onprogress: () => {} }; // makes the SDK send a progress token
  const send = {
    'tools/call': () => sdk.callTool(client, params, requestOptions),
    'resources/read': () => client.readResource(params, options()),
    'prompts/get': () => client.getPrompt(params, options()),
    'completion/complete': () => client.complete(params, options()),
    watch: () => watch(client, params, options()),
    unwatch: () => unwatch(client, options()),
    announce: () => sdk.callTool(client, { name: params.name, arguments: params.arguments }, requestOptions),
    list: () => namesListed(client, params.kind),
    replaceFile: () => replaceFile(params),
    inParts: () => readInParts(sdk, client, params, requestOptions),
    // An SDK without tasks calls the tool like any other.
    task: () => (sdk.runTask ? sdk.runTask(client, params, requestOptions, task) : sdk.callTool(client, params, requestOptions)),
  }[method];
  try {
    const outcome = { result: await send(), progress, asked: inAnyOrder(asked) };
    if (params.count !== undefined) outcome.notifications = await notificationsSince(params.count);
    if (sdk.runTask && method === 'task') outcome.task = task;
    return outcome;
  } catch (error) {
    const wireError = sdk.wireError(error);
    return wireError ? { error: wireError, progress } : { clientFailure: `${error.name}: ${error.message}` };
  } finally {
    restore();
  }
}

/** Replaces a file in the way that most editors do, so that no reader sees part of it. */
function replaceFile({ file, text: content }) {
  writeFileSync(`${file}.new`, content);
  renameSync(`${file}.new`, file);
  return {};
}

/** Calls a tool whose result is shortened, and reads the text that it lacks in parts of so many bytes. */
async function readInParts(sdk, client, { name, arguments: given, bytes }, requestOptions) {
  const { content } = await sdk.callTool(client, { name, arguments: given }, requestOptions);
  const { uri, size } = content.find(({ type }) => type === 'resource_link');
  const parts = [];
  for (let from = 0; from < size; from += bytes) {
    const { contents: [part] } = await client.readResource({ uri: `${uri}?bytes=${from}-${from + bytes - 1}` }, options());
    parts.push(part.text === undefined ? Buffer.from(part.blob, 'base64') : Buffer.from(part.text));
  }
  const line = await sdk.callTool(client, { name: 'read_result', arguments: { uri, lines: '2-2' } }, requestOptions);
  return { text: Buffer.concat(parts).toString(), line: line.content[0].text };
}

/** The key of the entries of a list: name or URI. */
async function namesListed(client, kind) {
  const list = { tools: 'listTools', prompts: 'listPrompts', resources: 'listResources' }[kind];
  const { items } = await allPages(kind, (page) => client[list](page, options()));
  return { kind, names: items.map(({ uri, name }) => uri ?? name) };
}

/** Concurrent server requests may arrive in any order. */
function inAnyOrder(requests) {
  return requests.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
}

/**
 * Reads progress before the SDK does: both TypeScript SDKs lose an update that arrives in one read with the response,
 * since they resolve the call first.
 */
function tapProgress(transport, onUpdate) {
  const deliver = transport.onmessage;
  transport.onmessage = (message, ...more) => {
    if (message.method === 'notifications/progress') {
      const { progressToken, ...update } = message.params;
      onUpdate(update);
    }
    return deliver.call(transport, message, ...more);
  };
  return () => (transport.onmessage = deliver);
}

function options() {
  return { timeout: REQUEST_TIMEOUT_MS };
}
