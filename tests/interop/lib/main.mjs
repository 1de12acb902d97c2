// Entry point: installs, runs every plan directly, then through Fanlight, and compares. See ../README.md.
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { Checks } from './checks.mjs';
import { askDirectly, CLIENTS, clientWithTasks, eraFaceToFace, isLegacyTwinOf } from './clients.mjs';
import { checkThroughFanlight } from './fanlight.mjs';
import { install } from './install.mjs';
import { checkLean } from './lean.mjs';
import { freePort, isListening, start, stopAll, tellOfEnd, waitUntilReady } from './processes.mjs';
import { checkMocks, checkRecordings } from './recordings.mjs';
import { checkReloads } from './reload.mjs';
import { checkResults } from './results.mjs';
import { selfTest } from './self-test.mjs';
import { EXPECTATIONS, fetchServer, HTTP_SERVERS, httpServerCommands, renewFixture, servers, servePage, writeFixture } from './servers.mjs';

const ROOT = path.resolve(import.meta.dirname, '..');
const DEFAULT_FANLIGHT = path.resolve(ROOT, '../../target/release/fanlight');
const RUN_TIMEOUT_MS = 20 * 60_000;
const SERVER_START_TIMEOUT_MS = 20_000;

const { values: options } = parseArgs({
  options: {
    'self-test': { type: 'boolean', default: false },
    'reload-only': { type: 'boolean', default: false },
    recordings: { type: 'boolean', default: false },
    replicas: { type: 'boolean', default: false }, // what has to pass behind several replicas (tests/replicas/as-one)
    servers: { type: 'string' },
    clients: { type: 'string' },
  },
});

const work = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'fanlight-interop-')));
for (const [name, status] of [['SIGINT', 130], ['SIGTERM', 143]]) {
  process.on(name, () => abort(`interrupted by ${name}`, status));
}

try {
  await install(ROOT);
  setTimeout(() => abort(`not finished within ${RUN_TIMEOUT_MS} ms`, 1), RUN_TIMEOUT_MS).unref();
  process.exitCode = (await main()).conclude() ? 0 : 1;
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await cleanUp();
}

async function main() {
  const fanlight = path.resolve(process.env.FANLIGHT_BIN ?? DEFAULT_FANLIGHT);
  if (!options['self-test'] && !existsSync(fanlight)) {
    throw new Error(`no Fanlight at ${fanlight}: build it (cargo build --release) or set FANLIGHT_BIN`);
  }
  const fixture = writeFixture(work);
  mkdirSync(path.join(work, 'logs'));
  const checks = new Checks();
  const clients = selected(CLIENTS, options.clients);
  if (options['reload-only']) {
    await checkReloads(checks, clients, servers(ROOT, fixture, {}), { binary: fanlight, work });
    return checks;
  }
  if (options.recordings) {
    const page = await servePage();
    const all = [...servers(ROOT, fixture, {}), fetchServer(ROOT, page)];
    const selection = { servers: selected(all, options.servers), clients };
    const renew = () => renewFixture(work, fixture);
    await checkRecordings(checks, selection, { binary: fanlight, work, fixture, renew });
    return checks;
  }
  const ports = Object.fromEntries(await Promise.all(HTTP_SERVERS.map(async (name) => [name, await freePort()])));
  await startHttpServers(fixture, ports);

  const all = servers(ROOT, fixture, ports).filter(({ oneProcess }) => !(oneProcess && options.replicas));
  const selection = { servers: selected(all, options.servers), clients };
  const direct = await checkDirect(checks, selection);
  if (options['self-test']) {
    await selfTest(checks, selection, direct);
    return checks;
  }
  await checkThroughFanlight(checks, selection, direct, { binary: fanlight, work, httpOnly: options.replicas });
  if (!options.replicas) {
    await checkLean(checks, selection, direct, { binary: fanlight, work });
    await checkMocks(checks, selection, { binary: fanlight, work, renew: () => {} });
    await checkResults(checks, selection, { binary: fanlight, work, fixture });
  }
  if (options.servers === undefined && !options.replicas) await checkReloads(checks, clients, all, { binary: fanlight, work });
  return checks;
}

async function startHttpServers(fixture, ports) {
  const logs = path.join(work, 'logs');
  const commands = Object.entries(httpServerCommands(ROOT, fixture, ports));
  await Promise.all(commands.map(async ([name, { command, env }]) => {
    const child = await start(command, { env, logFile: path.join(logs, `${name}.log`) });
    await waitUntilReady(child, name, () => isListening(ports[name]), SERVER_START_TIMEOUT_MS);
    tellOfEnd(child, name);
  }));
}

/**
 * Every client against every server, without Fanlight. A modern client uses the legacy era with a legacy server, as in
 * production. Checks that the responses are of the expected kind, so that a later comparison is meaningful. Returns
 * report(server, client).
 */
async function checkDirect(checks, { servers, clients }) {
  const reports = new Map();
  const key = (server, client) => `${server.name}  ${client.sdk} ${eraFaceToFace(server, client)}`;
  const pairs = inTurns(servers.flatMap((server) => askersOf(server, clients).map((client) => ({ server, client }))));
  const distinct = pairs.filter(({ server, client }) =>
    eraFaceToFace(server, client) === client.era || !clients.some(isLegacyTwinOf(client)));
  await checks.each(
    distinct,
    ({ server, client }) => `direct        ${key(server, client)}`,
    async ({ server, client }) => {
      const report = await askDirectly(server, { ...client, era: eraFaceToFace(server, client) });
      reports.set(key(server, client), report);
      return server.steps
        .filter((step) => !EXPECTATIONS[step.expect](report.steps[step.id], step, client))
        .map((step) => `steps.${step.id}: expected ${step.expect}, got ${JSON.stringify(report.steps[step.id])}`);
    },
  );
  return (server, client) => {
    const report = reports.get(key(server, client));
    if (!report) throw new Error('there is no direct report to compare with');
    return report;
  };
}

/** Orders the pairs so that clients of the same peer, which wait for each other, are not adjacent. */
function inTurns(pairs) {
  const turns = new Map();
  const turnOf = ({ server: { peer } }) => {
    const turn = turns.get(peer) ?? 0;
    turns.set(peer, turn + 1);
    return peer ? turn : -1;
  };
  return pairs.map((pair) => ({ pair, turn: turnOf(pair) })).sort((a, b) => a.turn - b.turn).map(({ pair }) => pair);
}

/** The clients whose reports are needed: clients without tasks are compared with the one with tasks. */
function askersOf({ steps }, clients) {
  const hasTasks = steps.some(({ method }) => method === 'task');
  return hasTasks && !clients.includes(clientWithTasks) ? [clientWithTasks, ...clients] : clients;
}

function selected(all, names) {
  if (names === undefined) return all;
  const wanted = names.split(',');
  const found = all.filter(({ name }) => wanted.includes(name));
  if (found.length !== wanted.length) throw new Error(`choose from ${all.map(({ name }) => name).join(', ')}`);
  return found;
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
