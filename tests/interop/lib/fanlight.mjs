// The checks: each server alone behind Fanlight, then all together, over every transport of Fanlight.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { withTasksAwaited } from './awaited.mjs';
import { ask, baseEnvironment, exclusively } from './clients.mjs';
import { asReadBy, compareMergedLists, compareMergedSteps, compareSingle, mergedName, mergedStepId } from './compare.mjs';
import { answersOk, lastLines, start, stop, waitUntilReady } from './processes.mjs';
import { mergedGroups } from './servers.mjs';

const READY_TIMEOUT_MS = 30_000;

export async function checkThroughFanlight(checks, { servers, clients }, direct, { binary, work, httpOnly }) {
  const context = { checks, clients, binary, work, httpOnly, expected: withTasksAwaited(direct) };
  const groups = groupsOf(servers, work);
  // Each peer has a separate process, so that checks do not affect each other.
  const peers = new Set(servers.map(({ peer }) => peer));
  await Promise.all([...peers].map((peer) => inTurn(context, groups.alone.filter(({ members }) => members[0].peer === peer))));
  await inTurn(context, groups.merged);
}

async function inTurn(context, groups) {
  for (const group of groups) await checkGroup(context, group);
}

async function checkGroup({ checks, clients, binary, work, httpOnly, expected }, group) {
  const check = (transport, target) => {
    const legacyOnly = transport.name === 'sse' || group.members.some(({ legacyClientsOnly }) => legacyClientsOnly);
    const able = clients.filter(({ era }) => !legacyOnly || era === 'legacy');
    return group.check(checks, transport.title, group, able, expected, target);
  };
  await throughHttp(checks, group, { binary, work }, async (address) => {
    for (const transport of HTTP_TRANSPORTS.filter(({ name }) => group.transports.includes(name))) {
      await check(transport, transport.target(address));
    }
  });
  if (group.transports.includes('stdio') && !httpOnly) {
    const args = ['stdio', '--config', group.config];
    await check({ title: 'stdio' }, { command: binary, args, env: baseEnvironment() });
  }
}

/** The transports of `fanlight run`, and the target of a client for each. */
export const HTTP_TRANSPORTS = [
  { name: 'http', title: 'http ', target: (address) => ({ url: `http://${address}/mcp` }) },
  { name: 'sse', title: 'sse  ', target: (address) => ({ sse: `http://${address}/sse` }) },
];

/** Every server alone, and the merged groups. */
function groupsOf(servers, work) {
  const group = (names, members, more) => ({ names, members, config: writeConfig(work, names, members).file, ...more });
  const alone = servers.map((server) =>
    group(server.name, [server], { check: checkAlone, transports: server.transports ?? ['http', 'stdio'] }));
  const merged = mergedGroups(servers).map(({ name, transports, members }) =>
    group(name, members, { check: checkMerged, transports }));
  return { alone, merged };
}

/** Checks one server alone. Nothing is renamed, so the whole report must be equal. */
async function checkAlone(checks, transport, { members: [server] }, clients, direct, target) {
  await checks.each(
    clients,
    (client) => `${transport} alone   ${server.name}  ${client.sdk} ${client.era}`,
    async (client) => {
      const through = await exclusively(server, () => ask(target, client, server.steps));
      return compareSingle(server, asReadBy(client, direct(server, client)), through, eras(server, client));
    },
  );
}

/** Checks several servers: one client run has the plans of all, and each server's part is one group of checks. */
async function checkMerged(checks, transport, { members }, clients, direct, target) {
  const steps = members.flatMap((server) => server.steps.map((step) => mergedStep(server, step)));
  for (const client of clients) {
    const name = (part) => `${transport} merged  ${part}  ${client.sdk} ${client.era}`;
    const asked = ask(target, client, steps);
    await checks.one(name('lists'), async () => {
      const entries = members.map((server) => ({ server, direct: asReadBy(client, direct(server, client)) }));
      return compareMergedLists(entries, await asked, { clientEra: client.era });
    });
    await checks.each(members, (server) => name(server.name), async (server) =>
      compareMergedSteps(server, direct(server, client), await asked, eras(server, client)));
  }
}

export const eras = (server, client) => ({
  clientEra: client.era,
  crossEra: client.era !== (server.modern ? 'modern' : 'legacy'),
});

const NAMING_METHODS = ['tools/call', 'prompts/get', 'announce', 'task'];

/** A step with the names of the merged endpoint. */
function mergedStep(server, step) {
  const { method, params } = step;
  const id = mergedStepId(server, step);
  const rename = (named) => ({ ...named, name: mergedName(server, named.name) });
  if (NAMING_METHODS.includes(method)) return { id, method, params: rename(params) };
  if (params.ref?.type === 'ref/prompt') return { id, method, params: { ...params, ref: rename(params.ref) } };
  return { id, method, params };
}

/** Runs `check` with the addresses of a Fanlight that has this configuration: for clients and for operators. */
export async function throughHttp(checks, { names, config }, { binary, work }, check) {
  const anyPort = '127.0.0.1:0';
  const command = [binary, 'run', '--config', config, '--listen', anyPort, '--admin', anyPort];
  const fanlight = await start(command, { logFile: path.join(work, 'logs', `fanlight-${names}.log`) });
  let addresses;
  await checks.one(`http  start   ${names}`, async () => {
    const isReady = async () => {
      const said = addressesIn(readFileSync(fanlight.logFile, 'utf8'));
      if (!said || !(await answersOk(`http://${said.admin}/readyz`))) return false;
      addresses = said;
      return true;
    };
    await waitUntilReady(fanlight, 'fanlight', isReady, READY_TIMEOUT_MS);
    return [];
  });
  if (addresses) await check(addresses.listen, addresses.admin);
  await checks.one(`http  stop    ${names}`, async () => {
    const status = await stop(fanlight);
    const log = lastLines(readFileSync(fanlight.logFile, 'utf8'));
    return status === 0 ? [] : [`fanlight ended with ${status} instead of 0\n${log}`];
  });
}

/** Fanlight's listening addresses, once the log has them; the system has chosen the ports. */
function addressesIn(log) {
  const listen = /listening on http:\/\/([\d.]+:\d+)\/mcp/.exec(log)?.[1];
  const admin = /admin on http:\/\/([\d.]+:\d+)/.exec(log)?.[1];
  return listen && admin ? { listen, admin } : undefined;
}

/** Writes a configuration with these servers; returns its path, and what the file would be with others. */
export function writeConfig(work, name, members, more = {}) {
  const folder = path.join(work, 'config', name);
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, 'mcp.json');
  const configOf = (servers) =>
    JSON.stringify({ ...more, mcpServers: Object.fromEntries(servers.map((server) => [server.name, server.config])) }, null, 2);
  writeFileSync(file, configOf(members));
  return { file, configOf };
}
