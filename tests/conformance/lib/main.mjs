// Entry point: grades each reference server directly and through Fanlight, and compares check by check. See ../README.md.
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { run, start, stop, stopAll } from '../../interop/lib/processes.mjs';
import { gradeClients } from './clients.mjs';
import { gradeCredentials } from './credentials.mjs';
import { Expected } from './expected.mjs';
import { fanlightOnStdio, listeningUrl, withFanlight } from './fanlight.mjs';
import { install } from './install.mjs';
import { PACKAGES, ROOT, fanlightBinary } from './paths.mjs';
import { ALL_STDIO, LEGS, SERVERS, bridged } from './servers.mjs';
import { Suite } from './suite.mjs';
import { Tally } from './tally.mjs';

const REVISIONS = ['2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'];
const SUITES = ['@modelcontextprotocol/conformance', 'conformance-stable'];
const RUN_TIMEOUT_MS = 30 * 60_000;
const MAX_TIMES = 10;
const BUILD_TIMEOUT_MS = 10 * 60_000;
const SERVER_START_TIMEOUT_MS = 20_000;

const { values: options } = parseArgs({
  options: {
    servers: { type: 'string' }, // names, comma-separated; `none`
    revisions: { type: 'string' },
    legs: { type: 'string' },
    clients: { type: 'boolean', default: true },
    credentials: { type: 'boolean', default: true },
    times: { type: 'string', default: '1' }, // runs, all of which must be as expected
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
  process.exitCode = (await several(times(options.times))) ? 0 : 1;
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await cleanUp();
}

/** Runs everything `times` times, each time from scratch; true if each run was as expected. */
async function several(times) {
  console.log(`fanlight: ${path.relative(process.cwd(), fanlightBinary())}`);
  let areGood = true;
  for (let time = 1; time <= times; time += 1) {
    const folder = times > 1 ? path.join(work, String(time)) : work;
    mkdirSync(folder, { recursive: true });
    const deadline = setTimeout(() => abort(`not finished within ${RUN_TIMEOUT_MS} ms`, 1), RUN_TIMEOUT_MS);
    const tally = await once(folder);
    clearTimeout(deadline);
    if (times > 1) console.log(`run ${time} of ${times}:`);
    areGood = tally.conclude() && areGood;
  }
  return areGood;
}

async function once(work) {
  const expected = new Expected(path.join(ROOT, 'expected.txt'));
  const tally = new Tally(expected);
  const suites = SUITES.map((name) => new Suite(path.join(PACKAGES, name)));
  for (const server of selected(SERVERS, options.servers)) {
    if (server.build) await run(server.build, { timeoutMs: BUILD_TIMEOUT_MS });
    for (const suite of suites) await gradeServer(tally, suite, server, work);
  }
  if (options.clients) await gradeClients(tally, suites[0], work);
  if (options.credentials) await gradeCredentials(tally, suites[0], work);
  const isPart = options.servers || options.revisions || options.legs;
  const isWhole = !isPart && options.clients && options.credentials;
  if (isWhole) tally.unused();
  return tally;
}

/** Grades every revision of a suite: directly first, then each leg in comparison. */
async function gradeServer(tally, suite, server, work) {
  const known = await suite.serverScenarios();
  const extensions = known.filter(({ tags }) => tags === 'extension').map(({ name }) => name);
  const revisions = selected(REVISIONS.map((name) => ({ name })), options.revisions).map(({ name }) => name);
  for (const revision of revisions) {
    const scenarios = (await suite.serverScenarios(revision)).map(({ name }) => name);
    if (scenarios.length === 0) continue;
    const label = (leg) => `${server.name}/${leg}/${revision}@${suite.version}`;
    const plan = { revision, scenarios, extensions: server.extensions(revision, extensions) };
    const grade = (leg, url) => suite.gradeServer(url, { ...plan, out: path.join(work, fileName(label(leg))) });

    const names = (leg) => ({ name: fileName(label(leg)), work });
    const legs = selected([...LEGS, ALL_STDIO], options.legs);

    if (legs.some((leg) => leg !== ALL_STDIO)) {
      const direct = await withServer(server.command, names('direct'), (url) => grade('direct', url));
      tally.direct(label('direct'), direct);
      for (const leg of legs.filter((leg) => leg !== ALL_STDIO)) {
        await withServer(server.command, names(leg.name), async (url) => {
          const backends = leg.backends({ url, command: server.command });
          const through = await withFanlight(backends, names(leg.name), (front) => grade(leg.name, front));
          tally.through(label(leg.name), direct, through);
        });
      }
    }
    if (legs.includes(ALL_STDIO)) {
      const bridge = bridged([...server.command, '--stdio']);
      const direct = await withServer(bridge, names('bridge'), (url) => grade('bridge', url));
      tally.direct(label('bridge'), direct);
      const fanlight = fanlightOnStdio(ALL_STDIO.backends({ command: server.command }), names(ALL_STDIO.name));
      const through = await withServer(bridged(fanlight), names(ALL_STDIO.name), (url) => grade(ALL_STDIO.name, url));
      tally.through(label(ALL_STDIO.name), direct, through);
    }
  }
}

/** Starts a fresh server for each run, so that no run depends on another. */
async function withServer(command, { name, work }, use) {
  const child = await start(command, { logFile: path.join(work, `${name}.server.log`) });
  try {
    return await use(await listeningUrl(child, name, SERVER_START_TIMEOUT_MS));
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

function times(text) {
  const times = Number(text);
  if (!(Number.isInteger(times) && times >= 1 && times <= MAX_TIMES)) throw new Error(`--times is a number from 1 to ${MAX_TIMES}`);
  return times;
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
