#!/usr/bin/env node
// Reaches a protected server of the suite through a Fanlight that obtains the credentials: lists its tools and calls them. If
// Fanlight answers with a link, its user follows it, signs in, and tries again.
//
//   credentials.mjs URL
//
// The suite sets MCP_CONFORMANCE_PROTOCOL_VERSION, which decides the era, and MCP_CONFORMANCE_CONTEXT, which has what
// Fanlight's operator would know. The runner sets CONFORMANCE_WORK, the folder for Fanlight's configuration and log, and
// CONFORMANCE_SCENARIO, the name of the scenario.
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { stopAll } from '../../interop/lib/processes.mjs';
import { withFanlight } from '../lib/fanlight.mjs';
import { Browser } from './browser.mjs';

const MODERN = '2026-07-28';
/** The tool of all servers of these scenarios. */
const TOOL = 'test-tool';
const DEADLINE_MS = 18_000;
/** The most sign-ins for one request. */
const MOST_SIGN_INS = 3;
/** The document of a client with a client ID metadata document. */
const DOCUMENT = 'https://conformance-test.local/client-metadata.json';

const revision = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? MODERN;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const { CONFORMANCE_WORK: work, CONFORMANCE_SCENARIO: scenario } = process.env;

// The Fanlight started here must not outlive this process.
process.on('SIGTERM', () => abort('ended from outside'));
setTimeout(() => abort(`not done within ${DEADLINE_MS} ms`), DEADLINE_MS).unref();

const backend = { url: process.argv.at(-1), auth: await credentials() };
const more = { stateDir: path.join(work, 'state') };
await withFanlight({ only: backend }, { name: path.basename(work), work, more }, exercise);

/** The server's `auth` for a scenario. */
async function credentials() {
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
    case 'auth/basic-cimd':
      return { type: 'user', clientId: DOCUMENT };
    default:
      return clientId ? { type: 'user', issuer: await issuer(), clientId, clientSecret } : { type: 'user' };
  }
}

/** The authorization server that the server names; an operator would know it. */
async function issuer() {
  const { origin, pathname } = new URL(process.argv.at(-1));
  for (const path of [pathname, '']) {
    const answer = await fetch(`${origin}/.well-known/oauth-protected-resource${path}`);
    if (answer.ok) return (await answer.json()).authorization_servers[0];
  }
  throw new Error('the server names no authorization server');
}

function file(name, text) {
  const file = path.join(work, name);
  writeFileSync(file, text);
  return file;
}

async function exercise(target) {
  const mode = revision === MODERN ? { pin: MODERN } : 'legacy';
  // A modern client opens links itself; a legacy one leaves that to its user.
  const capabilities = revision === MODERN ? { elicitation: { url: {} } } : {};
  const client = new Client({ name: 'reference-client', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
  if (revision === MODERN) {
    client.setRequestHandler('elicitation/create', async ({ params }) => {
      await new Browser().signIn(params.url);
      return { action: 'accept' };
    });
  }
  await client.connect(new StreamableHTTPClientTransport(new URL(target)));
  // Lists do not ask a user to sign in; a call does.
  if (backend.auth.type === 'user') await signingIn(() => client.callTool({ name: TOOL, arguments: {} }));
  const { tools } = await client.listTools();
  if (tools.length === 0) throw new Error('there are no tools');
  for (const { name } of tools) await signingIn(() => client.callTool({ name, arguments: {} }));
  await client.close();
}

/** Makes a request, and repeats it after a sign-in if the answer asks for one. */
async function signingIn(request) {
  const browser = new Browser();
  for (let signIns = 0; ; signIns += 1) {
    const { answer, error } = await request().then((answer) => ({ answer }), (error) => ({ error }));
    const said = JSON.stringify(answer ?? { message: error.message, data: error.data });
    const link = said.match(/http:\/\/[^\s"\\]+\/connect\/[^\s"\\]+/)?.[0];
    if (!link && error) throw error;
    if (!link) return answer;
    if (signIns === MOST_SIGN_INS) throw new Error(`asked to sign in for the ${signIns + 1}th time`);
    await browser.signIn(link);
  }
}

async function abort(message) {
  console.error(message);
  await stopAll();
  process.exit(1);
}
