// Entry point: starts the store, Fanlight in front of the servers, and reads the exported spans from the store. See
// ../README.md.
import { existsSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Checks } from '../../interop/lib/checks.mjs';
import { stopAll } from '../../interop/lib/processes.mjs';
import { chains, errors, nothingDropped, roots } from './cases.mjs';
import { cancellations, lists, serverRequests } from './conversations.mjs';
import { startGateway } from './gateway.mjs';
import { startStore } from './store.mjs';

const RUN_TIMEOUT_MS = 3 * 60_000;
const target = process.env.CARGO_TARGET_DIR ?? path.resolve(import.meta.dirname, '../../../target');
const fanlight = path.resolve(process.env.FANLIGHT_BIN ?? path.join(target, 'release/fanlight'));
const work = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'fanlight-otlp-')));

for (const [name, status] of [['SIGINT', 130], ['SIGTERM', 143]]) {
  process.on(name, () => abort(`interrupted by ${name}`, status));
}
setTimeout(() => abort(`not finished within ${RUN_TIMEOUT_MS} ms`, 1), RUN_TIMEOUT_MS).unref();

try {
  process.exitCode = (await main()).conclude() ? 0 : 1;
} catch (error) {
  console.error(error.stack);
  process.exitCode = 1;
} finally {
  await cleanUp();
}

async function main() {
  if (!existsSync(fanlight)) {
    throw new Error(`no Fanlight at ${fanlight}: build it (cargo build --release) or set FANLIGHT_BIN`);
  }
  const checks = new Checks();
  const store = await startStore(process.env.OTELITE_BIN, work);
  for (const protocol of ['http/protobuf', 'grpc']) {
    const gateway = await startGateway(fanlight, store, protocol, work);
    const label = protocol.padEnd(13);
    await chains(checks, gateway, store, label);
    if (protocol === 'http/protobuf') {
      await roots(checks, gateway, store, label);
      await errors(checks, gateway, store, label);
      await lists(checks, gateway, store, label);
      await serverRequests(checks, gateway, store, label);
      await cancellations(checks, gateway, store, label);
    }
    await nothingDropped(checks, gateway, label);
    await checks.one(`${label}  stop`, async () => {
      const status = await gateway.stop();
      return status === 0 ? [] : [`fanlight ended with ${status}`];
    });
  }
  return checks;
}

async function abort(reason, status) {
  console.error(reason);
  await cleanUp();
  process.exit(status);
}

async function cleanUp() {
  await stopAll();
  if (process.env.KEEP_WORK) console.error(`kept: ${work}`);
  else rmSync(work, { recursive: true, force: true });
}
