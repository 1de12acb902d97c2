// The clients: one program per SDK, each run with a plan until it has its report.
import path from 'node:path';
import { run } from '../../interop/lib/processes.mjs';
import { PYTHON, ROOT } from './paths.mjs';

const CLIENT_TIMEOUT_MS = 45_000;

const node = (file) => [process.execPath, path.join(ROOT, 'drivers', file)];
const python = [PYTHON, path.join(ROOT, 'drivers/python.py')];

/** `refreshes`: the client uses its refresh token; `stepsUp`: it requests more scopes if a call needs them. */
export const CLIENTS = [
  { name: 'typescript-v1', era: 'legacy', command: node('typescript-v1.mjs'), refreshes: true, stepsUp: true },
  { name: 'typescript-v2', era: 'legacy', command: node('typescript-v2.mjs'), refreshes: true, stepsUp: true },
  { name: 'typescript-v2', era: 'modern', command: node('typescript-v2.mjs'), refreshes: true, stepsUp: true },
  { name: 'python', era: 'legacy', command: python, refreshes: true, stepsUp: true },
  { name: 'python', era: 'modern', command: python, refreshes: true, stepsUp: true },
  { name: 'mcp-remote', era: 'legacy', command: node('mcp-remote.mjs') },
  { name: 'mcp-remote', era: 'modern', command: node('mcp-remote.mjs') },
];

/** The report of the client that follows `plan`: see drivers/provider.mjs. `caFile`: certificates trusted besides the system's. */
export async function follow(client, plan, { caFile } = {}) {
  const trust = caFile && { NODE_EXTRA_CA_CERTS: caFile, SSL_CERT_FILE: caFile };
  const env = { ...process.env, ...trust };
  const stdin = JSON.stringify({ era: client.era, user: 'alice', keepsRefreshTokens: true, ...plan });
  return JSON.parse(await run(client.command, { stdin, timeoutMs: CLIENT_TIMEOUT_MS, env }));
}
