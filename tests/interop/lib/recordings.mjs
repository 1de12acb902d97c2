// Recordings: what a client gets while `fanlight record` runs, it gets again from `fanlight mock`; and `fanlight replay`
// finds no difference to the server itself.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ask } from './clients.mjs';
import { compareValues } from './compare.mjs';
import { throughHttp, writeConfig } from './fanlight.mjs';
import { run, start, stop, waitUntilReady } from './processes.mjs';
import { writingSteps } from './servers.mjs';

const READY_TIMEOUT_MS = 30_000;
const REPLAY_TIMEOUT_MS = 120_000;

/** The servers whose recordings `run` plays to all clients: one with all kinds of results, and one of both eras. */
const PLAYED = ['everything-stdio', 'time'];

/** The servers whose recordings are also replayed, with calls that write. `renew` gives a server its data as at first. */
const REPLAYED = ['everything-stdio', 'filesystem', 'memory', 'time', 'git', 'fetch'];
/** The clients of those: one of each era. */
const REPLAYING = ['typescript-v1-legacy', 'python-modern'];

/** Records every client at some servers, and plays the recordings to them. */
export async function checkMocks(checks, { servers, clients }, context) {
  for (const server of servers.filter(({ name }) => PLAYED.includes(name))) await checkServer(checks, server, clients, context);
}

/** Records, plays and replays calls that read and write. */
export async function checkRecordings(checks, { servers, clients }, { fixture, ...context }) {
  const asked = clients.filter(({ name }) => REPLAYING.includes(name));
  for (const server of servers.filter(({ name }) => REPLAYED.includes(name))) {
    const steps = [...server.steps, ...writingSteps(server.name, fixture)];
    await checkServer(checks, { ...server, steps }, asked, { ...context, isReplayed: true });
  }
}

async function checkServer(checks, server, clients, { binary, work, renew, isReplayed }) {
  const names = `recorded-${server.name}`;
  const config = writeConfig(work, names, [server]).file;
  await throughHttp(checks, { names, config }, { binary, work }, async (listen, admin) => {
    // One recording at a time.
    for (const client of clients) {
      const title = (what) => `${what}  ${server.name}  ${client.sdk} ${client.era}`;
      const file = path.join(work, `${names}-${client.name}.jsonl`);
      let recorded;
      await checks.one(title('recorded     '), async () => {
        renew();
        const recorder = await startSaying([binary, 'record', file, '--admin', `http://${admin}`], `${file}.log`, /(recording to)/);
        recorded = await ask({ url: `http://${listen}/mcp` }, client, server.steps);
        const status = await stop(recorder, 'SIGINT');
        const differences = [];
        compareValues('status', 0, status, differences);
        compareValues('whole', true, lastLine(file)?.end?.whole, differences);
        return differences;
      });
      const isSame = async (target) => {
        const differences = [];
        compareValues('report', recorded, await ask(target, client, server.steps), differences);
        return differences;
      };
      const mock = [binary, 'mock', file, '--fast'];
      await checks.one(title('mocked  stdio'), () => isSame({ command: binary, args: mock.slice(1) }));
      await checks.one(title('mocked  http '), async () => {
        const serving = await startSaying([...mock, '--listen', '127.0.0.1:0'], `${file}.mock.log`, /mock at (http:\S+)/);
        const differences = await isSame({ url: serving.said });
        await stop(serving);
        return differences;
      });
      if (isReplayed) await checks.one(title('replayed     '), () => replay(binary, file, server, renew));
    }
  });
}

/** The differences that a replay against the server finds. */
async function replay(binary, file, { config, ignored = [] }, renew) {
  renew();
  const ignore = ignored.flatMap((pointer) => ['--ignore', pointer]);
  const command = [binary, 'replay', file, '--all', '--json', ...ignore, '--', config.command, ...config.args];
  const report = JSON.parse(await run(command, { timeoutMs: REPLAY_TIMEOUT_MS, env: { ...process.env, ...config.env } }));
  const found = report.differences.map((difference) => JSON.stringify(difference));
  return report.compared > 0 ? found : [...found, 'nothing was compared'];
}

/** Starts a program, and waits for a line. `said` of the program is what the pattern captures in it. */
async function startSaying(command, logFile, pattern) {
  const child = await start(command, { logFile });
  const said = () => pattern.exec(readFileSync(logFile, 'utf8'))?.[1];
  await waitUntilReady(child, command[1], () => said() !== undefined, READY_TIMEOUT_MS);
  return Object.assign(child, { said: said() });
}

function lastLine(file) {
  return JSON.parse(readFileSync(file, 'utf8').trimEnd().split('\n').at(-1));
}
