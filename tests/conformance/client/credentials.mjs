#!/usr/bin/env node
// Reaches a protected server of the suite by way of a Fanlight that gets the credentials: lists its tools and calls them.
//
//   credentials.mjs URL
//
// From the suite: MCP_CONFORMANCE_PROTOCOL_VERSION decides the era, MCP_CONFORMANCE_CONTEXT has what the operator of Fanlight
// would know. From the runner: CONFORMANCE_WORK is the folder for Fanlight's configuration and log, CONFORMANCE_SCENARIO is
// the name of the scenario.
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { stopAll } from '../../interop/lib/processes.mjs';
import { withFanlight } from '../lib/fanlight.mjs';

const MODERN = '2026-07-28';
const DEADLINE_MS = 15_000;

const revision = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? MODERN;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const { CONFORMANCE_WORK: work, CONFORMANCE_SCENARIO: scenario } = process.env;

// The Fanlight that was started here must not outlive this process.
process.on('SIGTERM', () => abort('ended from outside'));
setTimeout(() => abort(`not done within ${DEADLINE_MS} ms`), DEADLINE_MS).unref();

const backend = { url: process.argv.at(-1), auth: credentials() };
await withFanlight({ only: backend }, { name: path.basename(work), work }, exercise);

/** `auth` of the server for a scenario. */
function credentials() {
  const { client_id: clientId, client_secret: clientSecret } = context;
  switch (scenario) {
    case 'auth/client-credentials-jwt':
      return { type: 'clientCredentials', clientId, key: context.private_key_pem };
    case 'auth/client-credentials-basic':
      return { type: 'clientCredentials', clientId, clientSecret };
    case 'auth/wif-jwt-bearer':
      return { type: 'workload', clientId, tokenFile: file('workload.jwt', context.valid_jwt) };
    case 'auth/enterprise-managed-authorization':
      return {
        type: 'enterprise',
        clientId,
        clientSecret,
        idp: { issuer: context.idp_issuer, clientId: context.idp_client_id },
        tokenFile: file('id-token.jwt', context.idp_id_token),
      };
    default:
      throw new Error(`no credentials for ${scenario}`);
  }
}

function file(name, text) {
  const file = path.join(work, name);
  writeFileSync(file, text);
  return file;
}

async function exercise(target) {
  const mode = revision === MODERN ? { pin: MODERN } : 'legacy';
  const client = new Client({ name: 'reference-client', version: '1.0.0' }, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(target)));
  const { tools } = await client.listTools();
  if (tools.length === 0) throw new Error('there are no tools');
  for (const { name } of tools) await client.callTool({ name, arguments: {} });
  await client.close();
}

async function abort(message) {
  console.error(message);
  await stopAll();
  process.exit(1);
}
