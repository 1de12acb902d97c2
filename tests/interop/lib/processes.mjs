// Child processes, each the leader of its own group; none outlives the run.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync, closeSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const STOP_GRACE_MS = 8_000;
const PIPE_GRACE_MS = 2_000;
const POLL_MS = 50;
const running = new Set();
let ending = false;

/** Runs a program to its end. Rejects on a non-zero exit code and when `timeoutMs` has passed. */
export async function run([program, ...args], { stdin = '', timeoutMs, env = process.env, cwd } = {}) {
  await notEnding();
  const child = spawnTracked(program, args, { env, cwd, stdio: 'pipe' });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) {
    child[name].setEncoding('utf8').on('data', (chunk) => (output[name] += chunk));
  }
  child.stdin.on('error', () => {}); // a program that died says so by its exit code
  child.stdin.end(stdin);
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    stop(child);
  }, timeoutMs);
  await child.ended;
  await notEnding();
  clearTimeout(timer);
  if (timedOut || child.exitCode !== 0) {
    const end = child.startFailure ?? `ended with ${child.exitCode ?? child.signalCode}`;
    const outcome = timedOut ? `timed out after ${timeoutMs} ms` : end;
    throw new Error(`${program} ${outcome}\n${lastLines(output.stderr)}`);
  }
  return output.stdout;
}

/** Starts a program that serves until `stop`; its output goes to `logFile`. */
export async function start([program, ...args], { env = process.env, logFile }) {
  await notEnding();
  const log = openSync(logFile, 'a');
  const child = spawnTracked(program, args, { env, stdio: ['ignore', log, log] });
  closeSync(log);
  child.logFile = logFile;
  return child;
}

/** Reports the log of `child` if it ends before the run does; whatever uses it fails from then on. */
export function tellOfEnd(child, what) {
  child.ended.then(() => {
    if (ending) return;
    const how = child.exitCode === null ? `by ${child.signalCode}` : `with ${child.exitCode}`;
    console.error(`${what} has ended unexpectedly ${how}:\n${lastLines(readFileSync(child.logFile, 'utf8'))}`);
  });
}

/**
 * Ends a process started here, by SIGTERM and after a grace period by SIGKILL. Returns its exit code, or the signal.
 */
export async function stop(child, name = 'SIGTERM') {
  if (running.has(child)) {
    signal(child, name);
    const timer = setTimeout(() => signal(child, 'SIGKILL'), STOP_GRACE_MS);
    await child.ended;
    clearTimeout(timer);
  }
  return child.exitCode ?? child.signalCode;
}

/** Ends every process started here; programs that are started or awaited afterwards wait for the exit. */
export async function stopAll() {
  ending = true;
  await Promise.all([...running].map((child) => stop(child)));
}

/** Waits until `isReady()` holds, `child` has ended or the deadline has passed; the latter two reject. */
export async function waitUntilReady(child, what, isReady, timeoutMs) {
  const deadline = Date.now() + timeoutMs;
  while (!(await isReady())) {
    const ended = !running.has(child);
    if (ended || Date.now() > deadline) {
      const outcome = ended ? 'ended before it was ready' : `was not ready within ${timeoutMs} ms`;
      throw new Error(`${what} ${outcome}\n${lastLines(readFileSync(child.logFile, 'utf8'))}`);
    }
    await sleep(POLL_MS);
  }
}

export async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

export const isListening = (port) =>
  new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });

export const answersOk = (url) =>
  fetch(url, { signal: AbortSignal.timeout(1_000) }).then((response) => response.ok, () => false);

export const lastLines = (text) => text.trimEnd().split('\n').slice(-12).join('\n');

function spawnTracked(program, args, options) {
  const child = spawn(program, args, { ...options, detached: true });
  running.add(child);
  child.ended = new Promise((resolve) => {
    child.once('close', resolve);
    child.once('error', resolve); // it never started
    child.once('exit', () => setTimeout(resolve, PIPE_GRACE_MS).unref()); // a grandchild may hold the pipes open
  }).then((error) => {
    running.delete(child);
    child.startFailure = error instanceof Error ? error.message : undefined;
  });
  return child;
}

const notEnding = () => (ending ? new Promise(() => {}) : undefined);

function signal(child, name) {
  try {
    process.kill(-child.pid, name);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}
