#!/usr/bin/env node
// Reaches a protected server of the suite by way of a Fanlight whose user signs in: the user opens the links that Fanlight gives,
// agrees, and has the browser sent to the suite's authorization server, which asks nothing, and back.
//
//   signing-in.mjs URL
//
// From the suite: MCP_CONFORMANCE_PROTOCOL_VERSION decides the era, MCP_CONFORMANCE_CONTEXT has what the operator of Fanlight
// would know. From the runner: CONFORMANCE_WORK is the folder for what Fanlight keeps, CONFORMANCE_SCENARIO is the name of the
// scenario. A scenario in which signing in has to fail ends as any other: the suite judges what it has seen.
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { stopAll } from '../../interop/lib/processes.mjs';
import { Browser } from '../lib/browser.mjs';
import { withFanlight } from '../lib/fanlight.mjs';

const MODERN = '2026-07-28';
const DEADLINE_MS = 18_000;
const TOOL = 'test-tool';
/** The document about a client that the suite's authorization server takes for its own, whoever serves it. */
const CLIENT_DOCUMENT = 'https://conformance-test.local/client-metadata.json';
/** A user gives up sooner than a server that always wants more. */
const PATIENCE = 5;

const revision = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? MODERN;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const { CONFORMANCE_WORK: work, CONFORMANCE_SCENARIO: scenario } = process.env;

// The Fanlight that was started here must not outlive this process.
process.on('SIGTERM', () => abort('ended from outside'));
setTimeout(() => abort(`not done within ${DEADLINE_MS} ms`), DEADLINE_MS).unref();

const stateDir = path.join(work, 'state');
mkdirSync(stateDir, { recursive: true, mode: 0o700 });
const backend = { url: process.argv.at(-1), auth: { type: 'user', ...client() } };
await withFanlight({ only: backend }, { name: path.basename(work), work, options: { stateDir } }, exercise);

/** What an operator writes down of Fanlight as a client. */
function client() {
  if (scenario === 'auth/basic-cimd') return { clientId: CLIENT_DOCUMENT };
  const { client_id: clientId, client_secret: clientSecret } = context;
  return clientId ? { clientId, clientSecret } : {};
}

async function exercise(target) {
  const mode = revision === MODERN ? { pin: MODERN } : 'legacy';
  const options = { versionNegotiation: { mode }, capabilities: { elicitation: { url: {} } } };
  const client = new Client({ name: 'reference-client', version: '1.0.0' }, options);
  const browser = new Browser();
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    await browser.agree(params.url);
    return { action: 'accept' };
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(target)));
  for (let attempt = 0; attempt < PATIENCE; attempt += 1) {
    // Twice, since a server may want more of a call that it has let pass before.
    if ((await calls(client, browser)) && (await calls(client, browser))) break;
  }
  await client.listTools().catch((error) => console.error(`no list: ${error.message}`));
  await client.close();
}

/** Whether the call is carried out; a legacy client opens the links of its error itself. */
async function calls(client, browser) {
  try {
    await client.callTool({ name: TOOL, arguments: {} });
    return true;
  } catch (error) {
    console.error(`not called: ${error.message}`);
    for (const { url } of error.data?.elicitations ?? error.elicitations ?? []) await browser.agree(url);
    return false;
  }
}

async function abort(message) {
  console.error(message);
  await stopAll();
  process.exit(1);
}
