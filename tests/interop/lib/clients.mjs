// The SDK clients, each a driver program that runs a plan against a target and prints a report.
import path from 'node:path';
import { run } from './processes.mjs';

const DRIVER_TIMEOUT_MS = 60_000;

const ROOT = path.resolve(import.meta.dirname, '..');
const driver = (name) => path.join(ROOT, 'drivers', name);

const typescriptV1 = { sdk: 'typescript-v1', command: [process.execPath, driver('typescript-v1.mjs')] };
const typescriptV2 = { sdk: 'typescript-v2', command: [process.execPath, driver('typescript-v2.mjs')] };
const python = { sdk: 'python', command: [path.join(ROOT, '.venv', 'bin', 'python'), driver('python.py')] };

export const CLIENTS = [
  { ...typescriptV1, era: 'legacy', tasks: true },
  { ...typescriptV2, era: 'legacy' },
  // The SDK's modern schema has no `execution` in tools, so it drops that member.
  { ...typescriptV2, era: 'modern', unreadOfTools: ['execution'] },
  { ...python, era: 'legacy' },
  { ...python, era: 'modern' },
].map((client) => ({ ...client, name: `${client.sdk}-${client.era}` }));

/** The era of a client and a server without Fanlight: a modern client falls back for a legacy server. */
export const eraFaceToFace = (server, client) => (server.modern ? client.era : 'legacy');

export const isLegacyTwinOf = (client) => (other) => other.sdk === client.sdk && other.era === 'legacy';

/**
 * The client whose SDK has tasks of 2025-11-25. The other clients must get the same results as its tasks.
 */
export const clientWithTasks = CLIENTS.find((client) => client.tasks);

/** The report of `client` on `target`: {url}, {sse} (a URL) or {command, args, env}. */
export async function ask(target, client, steps) {
  const plan = steps.map(({ id, method, params }) => ({ id, method, params }));
  const stdin = JSON.stringify({ target, era: client.era, steps: plan });
  return JSON.parse(await run(client.command, { stdin, timeoutMs: DRIVER_TIMEOUT_MS }));
}

/** The report of `client` on `server`, with nothing between them. */
export function askDirectly(server, client) {
  const { url, command, args, env } = server.config;
  const target = url ? { url } : { command, args, env: { ...baseEnvironment(), ...env } };
  return exclusively(server, () => ask(server.direct ?? target, client, server.steps));
}

const busy = new Map();

/** Runs `work` when no other client uses the server's peer, since a change by one client is announced to all. */
export async function exclusively({ peer }, work) {
  if (!peer) return work();
  const done = (busy.get(peer) ?? Promise.resolve()).then(work);
  busy.set(peer, done.catch(() => {}));
  return done;
}

/** The environment that a desktop client gives to its servers. */
export const baseEnvironment = () => ({ PATH: process.env.PATH, HOME: process.env.HOME });
