#!/usr/bin/env node
// The client that the suite's mock servers grade, on the TypeScript client SDK. It lists everything, calls every tool,
// reads every resource and gets every prompt, with arguments generated from the schemas.
//
//   main.mjs [--through LEG] URL      --through: by way of a Fanlight with the servers of a leg (lib/servers.mjs)
//
// The suite sets MCP_CONFORMANCE_PROTOCOL_VERSION, which decides the era, and MCP_CONFORMANCE_CONTEXT, which may name the calls.
// The runner sets CONFORMANCE_WORK, the folder for Fanlight's configuration and log.
import path from 'node:path';
import { Client, ProtocolError, SdkHttpError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { stopAll } from '../../interop/lib/processes.mjs';
import { withFanlight } from '../lib/fanlight.mjs';
import { LEGS } from '../lib/servers.mjs';

const MODERN = '2026-07-28';
const DEADLINE_MS = 12_000;
const RICH_SCHEMA_TOOL = 'json_schema_2020_12_tool';
const ECHO_TOOL = 'json_schema_echo';

const revision = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? MODERN;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const url = process.argv.at(-1);

// The Fanlight started here must not outlive this process.
process.on('SIGTERM', () => abort('ended from outside'));
setTimeout(() => abort(`not done within ${DEADLINE_MS} ms`), DEADLINE_MS).unref();

if (process.argv[2] === '--through') {
  const work = process.env.CONFORMANCE_WORK;
  const leg = LEGS.find(({ name }) => name === process.argv[3]);
  await withFanlight(leg.backends({ url }), { name: path.basename(work), work }, exercise);
} else {
  await exercise(url);
}

async function exercise(target) {
  const mode = revision === MODERN ? { pin: MODERN } : 'legacy';
  const capabilities = { elicitation: { form: { applyDefaults: true } } };
  const client = new Client({ name: 'reference-client', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
  client.setRequestHandler('elicitation/create', async ({ params }) => ({
    action: 'accept',
    // The SDK fills in defaults; other values are generated.
    content: revision === MODERN ? madeUp(params.requestedSchema) : {},
  }));
  await client.connect(new StreamableHTTPClientTransport(new URL(target)));
  const has = client.getServerCapabilities() ?? {};

  const { tools } = await client.listTools();
  const calls = context.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: argumentsFor(tool, tools) }));
  for (const call of calls) await tolerant(() => client.callTool(call));
  if (has.resources) {
    const { resources } = await client.listResources();
    for (const { uri } of resources) await tolerant(() => client.readResource({ uri }));
  }
  if (has.prompts) {
    const { prompts } = await client.listPrompts();
    for (const { name } of prompts) await tolerant(() => client.getPrompt({ name }));
  }
  await client.close();
}

/**
 * A server may refuse generated arguments, or return a result that the SDK rejects; the client has failed only if it
 * cannot continue. A JSON-RPC error with an HTTP status other than 200 is an SdkHttpError.
 */
async function tolerant(request) {
  try {
    await request();
  } catch (error) {
    const isAnswer = error instanceof ProtocolError || error instanceof SdkHttpError || error.code === 'INVALID_RESULT';
    if (!isAnswer) throw error;
    console.error(`refused: ${error.code} ${error.message}`);
  }
}

async function abort(message) {
  console.error(message);
  await stopAll();
  process.exit(1);
}

function argumentsFor(tool, tools) {
  if (tool.name === ECHO_TOOL) return { schema: tools.find(({ name }) => name === RICH_SCHEMA_TOOL)?.inputSchema };
  return madeUp(tool.inputSchema);
}

function madeUp(schema) {
  const value = { string: 'text', number: 5, integer: 5, boolean: true, array: [], object: {}, null: null };
  const properties = Object.entries(schema?.properties ?? {});
  return Object.fromEntries(properties.map(([name, { type, enum: values }]) => [name, values?.[0] ?? value[type] ?? 'text']));
}
