// Large results: a client calls a tool through Fanlight with `results`, and reads the shortened text in parts.
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ask, baseEnvironment } from './clients.mjs';
import { compareValues } from './compare.mjs';
import { throughHttp, writeConfig } from './fanlight.mjs';

const LINES = Array.from({ length: 15_000 }, (_, number) => `${number}: "é" \\ € 𝄞\n`);
const TEXT = LINES.join('');

/** Reads a large file through the filesystem server with every client. */
export async function checkResults(checks, { servers, clients }, { binary, work, fixture }) {
  const server = servers.find(({ name }) => name === 'filesystem');
  if (!server) return;
  const file = path.join(fixture.files, 'large.txt');
  writeFileSync(file, TEXT);
  const names = 'results';
  const config = writeConfig(work, names, [{ ...server, config: { ...server.config, results: {} } }]).file;
  const steps = [{ id: 'parts', method: 'inParts', params: { name: 'read_text_file', arguments: { path: file }, bytes: 49_999 } }];
  const isWhole = async (target, client) => {
    const { parts } = (await ask(target, client, steps)).steps;
    const differences = [];
    compareValues('parts', { text: TEXT, line: LINES[1] }, parts.result ?? parts, differences);
    return differences.map((difference) => difference.slice(0, 500));
  };
  const title = (transport) => ({ sdk, era }) => `${transport} results filesystem  ${sdk} ${era}`;
  await throughHttp(checks, { names, config }, { binary, work }, (listen) =>
    checks.each(clients, title('http '), (client) => isWhole({ url: `http://${listen}/mcp` }, client)));
  const stdio = { command: binary, args: ['stdio', '--config', config], env: baseEnvironment() };
  await checks.each(clients, title('stdio'), (client) => isWhole(stdio, client));
  rmSync(file);
}
