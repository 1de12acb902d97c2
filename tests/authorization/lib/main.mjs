// Entry point: authorization servers, a backend, then the clients and single requests against a
// protected resource. The resource is Fanlight, or our own with --self-test. See ../README.md.
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { Checks } from '../../interop/lib/checks.mjs';
import { freePort, stopAll } from '../../interop/lib/processes.mjs';
import { startAuthorizationServer } from './authorization-server.mjs';
import { startBackend } from './backend.mjs';
import { CLIENTS } from './clients.mjs';
import { checkFanlight } from './fanlight.mjs';
import { selfTest } from './self-test.mjs';
import { SCOPES } from './setting.mjs';

const RUN_TIMEOUT_MS = 5 * 60_000;

const { values: options } = parseArgs({
  options: { 'self-test': { type: 'boolean', default: false }, clients: { type: 'string' }, 'keep-logs': { type: 'string' } },
});
const work = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'fanlight-authorization-')));
for (const [name, status] of [['SIGINT', 130], ['SIGTERM', 143]]) {
  process.on(name, () => abort(`interrupted by ${name}`, status));
}

try {
  setTimeout(() => abort(`not finished within ${RUN_TIMEOUT_MS} ms`, 1), RUN_TIMEOUT_MS).unref();
  process.exitCode = (await main()).conclude() ? 0 : 1;
} catch (error) {
  console.error(error.stack);
  process.exitCode = 1;
} finally {
  await cleanUp();
  process.exit();
}

async function main() {
  mkdirSync(path.join(work, 'logs'));
  const wanted = options.clients?.split(',');
  const clients = CLIENTS.filter(({ name }) => wanted === undefined || wanted.includes(name));
  if (clients.length === 0 && options.clients !== 'none') throw new Error(`choose from ${CLIENTS.map(({ name }) => name)}`);
  const ports = { plain: await freePort(), proxied: await freePort(), tls: await freePort(), direct: await freePort() };
  const resources = [`http://127.0.0.1:${ports.plain}/mcp`, `https://localhost:${ports.tls}/mcp`, `https://localhost:${ports.direct}/mcp`, 'http://127.0.0.1:1/elsewhere'];
  const scopes = SCOPES.all;
  const resourceClient = {
    client_id: 'the-resource', client_secret: crypto.randomUUID(), redirect_uris: [], response_types: [], grant_types: [],
  };
  const context = {
    work,
    ports,
    backend: await startBackend(),
    jwt: await startAuthorizationServer({ resources, scopes, clients: [resourceClient] }),
    opaque: await startAuthorizationServer({ resources, scopes, format: 'opaque', clients: [resourceClient] }),
  };
  const checks = new Checks();
  await (options['self-test'] ? selfTest : checkFanlight)(checks, context, clients);
  return checks;
}

async function abort(reason, status) {
  console.error(reason);
  await cleanUp();
  process.exit(status);
}

async function cleanUp() {
  await stopAll();
  rmSync(work, { recursive: true, force: true });
}
