// Entry point: grades each reference server directly and through Fanlight, and compares check by check. See ../README.md.
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { run, start, stop, stopAll } from '../../interop/lib/processes.mjs';
import { gradeClients } from './clients.mjs';
import { Expected } from './expected.mjs';
import { listeningUrl, withFanlight } from './fanlight.mjs';
import { install } from './install.mjs';
import { PACKAGES, ROOT, fanlightBinary } from './paths.mjs';
import { LEGS, SERVERS } from './servers.mjs';
import { Suite } from './suite.mjs';
import { Tally } from './tally.mjs';

const REVISIONS = ['2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'];
const SUITES = ['@modelcontextprotocol/conformance', 'conformance-stable'];
const RUN_TIMEOUT_MS = 25 * 60_000;
const BUILD_TIMEOUT_MS = 10 * 60_000;
const SERVER_START_TIMEOUT_MS = 20_000;

const { values: options } = parseArgs({
  options: {
    servers: { type: 'string' }, // names, comma-separated; `none`
    revisions: { type: 'string' },
    legs: { type: 'string' },
    clients: { type: 'boolean', default: true },
    keep: { type: 'string' }, // an empty folder for the suite's files and the logs
  },
  allowNegative: true,
});

const work = options.keep
  ? emptyFolder(path.resolve(options.keep))
  : realpathSync(mkdtempSync(path.join(os.tmpdir(), 'fanlight-conformance-')));
for (const [name, status] of [['SIGINT', 130], ['SIGTERM', 143]]) {
  process.on(name, () => abort(`interrupted by ${name}`, status));
}

try {
  await install();
  setTimeout(() => abort(`not finished within ${RUN_TIMEOUT_MS} ms`, 1), RUN_TIMEOUT_MS).unref();
  process.exitCode = (await main()).conclude() ? 0 : 1;
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await cleanUp();
}

async function main() {
  console.log(`fanlight: ${path.relative(process.cwd(), fanlightBinary())}`);
  const expected = new Expected(path.join(ROOT, 'expected.txt'));
  const tally = new Tally(expected);
  const suites = SUITES.map((name) => new Suite(path.join(PACKAGES, name)));
  for (const server of selected(SERVERS, options.servers)) {
    if (server.build) await run(server.build, { timeoutMs: BUILD_TIMEOUT_MS });
    for (const suite of suites) await gradeServer(tally, suite, server);
  }
  if (options.clients) await gradeClients(tally, suites[0], work);
  const isWhole = !options.servers && !options.revisions && !options.legs && options.clients;
  if (isWhole) tally.unused();
  return tally;
}

/** Every revision a suite knows: directly first, then each leg against that. */
async function gradeServer(tally, suite, server) {
  const known = await suite.serverScenarios();
  const extensions = known.filter(({ tags }) => tags === 'extension').map(({ name }) => name);
  const revisions = selected(REVISIONS.map((name) => ({ name })), options.revisions).map(({ name }) => name);
  for (const revision of revisions) {
    const scenarios = (await suite.serverScenarios(revision)).map(({ name }) => name);
    if (scenarios.length === 0) continue;
    const label = (leg) => `${server.name}/${leg}/${revision}@${suite.version}`;
    const plan = { revision, scenarios, extensions: server.extensions(revision, extensions) };
    const grade = (leg, url) => suite.gradeServer(url, { ...plan, out: path.join(work, fileName(label(leg))) });

    const direct = await withServer(server, label('direct'), (url) => grade('direct', url));
    tally.direct(label('direct'), direct);
    for (const leg of selected(LEGS, options.legs)) {
      await withServer(server, label(leg.name), async (url) => {
        const backends = leg.backends({ url, command: server.command });
        const name = fileName(label(leg.name));
        const through = await withFanlight(backends, { name, work }, (front) => grade(leg.name, front));
        tally.through(label(leg.name), direct, through);
      });
    }
  }
}

/** A fresh server for each run, so that no run finds what another left behind. */
async function withServer(server, label, use) {
  const child = await start(server.command, { logFile: path.join(work, `${fileName(label)}.server.log`) });
  try {
    return await use(await listeningUrl(child, server.name, SERVER_START_TIMEOUT_MS));
  } finally {
    await stop(child);
  }
}

function selected(items, names) {
  if (names === undefined) return items;
  const wanted = names === 'none' ? [] : names.split(',');
  const unknown = wanted.filter((name) => !items.some((item) => item.name === name));
  if (unknown.length > 0) throw new Error(`no such name: ${unknown.join(', ')}; there are ${items.map((item) => item.name).join(', ')}`);
  return items.filter((item) => wanted.includes(item.name));
}

function emptyFolder(folder) {
  mkdirSync(folder, { recursive: true });
  if (readdirSync(folder).length > 0) throw new Error(`${folder} is not empty`);
  return folder;
}

function fileName(label) {
  return label.replaceAll('/', '_');
}

async function cleanUp() {
  await stopAll();
  if (!options.keep) rmSync(work, { recursive: true, force: true });
}

async function abort(message, status) {
  console.error(message);
  await cleanUp();
  process.exit(status);
}
