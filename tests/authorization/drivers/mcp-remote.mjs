// Driver for `mcp-remote`: a client of the official SDK over stdio. mcp-remote signs in for it and forwards to the URL.
// mcp-remote is a legacy server to its client. The era of a run is the one between mcp-remote and the URL.
// Input and output are as in provider.mjs. `browser` is the value of BROWSER, `home` the folder for the tokens.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { textOf } from './provider.mjs';

const PROGRAM = path.resolve(import.meta.dirname, '../node_modules/mcp-remote/dist/proxy.js');

try {
  const plan = JSON.parse(await text(process.stdin));
  const isModern = plan.era === 'modern';
  const metadata = JSON.stringify({ client_name: plan.name });
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [
      PROGRAM, plan.url, String(plan.callbackPort), '--host', '127.0.0.1', '--transport', 'http-only',
      '--protocol', isModern ? 'auto' : 'legacy', '--static-oauth-client-metadata', metadata,
      ...(plan.clientMetadataUrl ? ['--client-metadata-url', plan.clientMetadataUrl] : []),
    ],
    env: { ...process.env, HOME: plan.home, MCP_REMOTE_CONFIG_DIR: plan.home, BROWSER: plan.browser, TEST_USER: plan.user },
  });
  const client = new Client({ name: plan.name, version: '1.0.0' }, { versionNegotiation: { mode: 'legacy' } });
  await client.connect(transport, { timeout: 30_000 });
  const { tools } = await client.listTools();
  const results = [];
  for (const step of plan.steps) results.push(textOf(await client.callTool({ name: step.call, arguments: step.arguments ?? {} })));
  await client.close();
  process.stdout.write(JSON.stringify({ tools: tools.map(({ name }) => name), results, tokens: tokensIn(plan.home) }));
  process.exit(0);
} catch (error) {
  console.error(error.stack);
  process.exit(1);
}

function tokensIn(folder) {
  const files = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('tokens.json'));
  return files.map((name) => JSON.parse(readFileSync(path.join(folder, name), 'utf8')).access_token);
}
