// Runs Fanlight in front of servers for one run of the suite.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { start, stop, waitUntilReady } from '../../interop/lib/processes.mjs';
import { fanlightBinary } from './paths.mjs';

const START_TIMEOUT_MS = 20_000;
const LOG = ['--log', 'info,fanlight_backend=debug'];

/** Runs `use(url)` with Fanlight in front of `backends` (the `mcpServers` of a configuration), with `more` options. */
export async function withFanlight(backends, { name, work, more }, use) {
  const config = writeConfig(backends, { name, work, more });
  const logFile = path.join(work, `${name}.fanlight.log`);
  const command = [fanlightBinary(), 'run', '--config', config, '--listen', '127.0.0.1:0', '--admin', 'off'];
  const fanlight = await start([...command, ...LOG], { logFile });
  try {
    return await use(await listeningUrl(fanlight, 'fanlight', START_TIMEOUT_MS));
  } finally {
    await stop(fanlight);
  }
}

/** The command of a Fanlight that is a stdio server in front of `backends`. */
export function fanlightOnStdio(backends, { name, work }) {
  return [fanlightBinary(), 'stdio', '--config', writeConfig(backends, { name, work }), ...LOG];
}

function writeConfig(backends, { name, work, more = {} }) {
  const config = path.join(work, `${name}.json`);
  writeFileSync(config, JSON.stringify({ ...more, mcpServers: backends }, null, 2));
  return config;
}

/** Waits until a started program has printed `listening on URL`. */
export async function listeningUrl(child, name, timeoutMs) {
  const url = () => readFileSync(child.logFile, 'utf8').match(/^listening on (\S+)$/m)?.[1];
  await waitUntilReady(child, name, () => url() !== undefined, timeoutMs);
  return url();
}
