// The reference servers, and the legs: the configurations of Fanlight in front of each server.
import path from 'node:path';
import { NODE, REPOSITORY, ROOT } from './paths.mjs';

const script = (name) => path.join(ROOT, name);
const RMCP_TARGET = path.resolve(process.env.CARGO_TARGET_DIR ?? path.join(REPOSITORY, 'target'), 'conformance');

/** `command` serves HTTP and prints `listening on URL`; with `--stdio` it serves stdio. */
export const SERVERS = [
  { name: 'typescript', command: [NODE, script('ts-server/main.mjs')], extensions: () => [] },
  {
    name: 'rmcp',
    command: [path.join(RMCP_TARGET, 'debug/reference-rmcp')],
    build: [
      ...['cargo', 'build', '--locked', '--quiet', '--target-dir', RMCP_TARGET],
      ...['--manifest-path', script('rmcp-server/Cargo.toml')],
    ],
    extensions: (revision, scenarios) => (revision === '2026-07-28' ? scenarios : []),
  },
];

/** Fanlight's servers in each leg, without prefixes, since the suite fixes the names. */
export const LEGS = [
  // The server offers both eras: each client is served in its own.
  { name: 'one', backends: ({ url }) => ({ reference: http(url) }) },
  // The server offers only the legacy era: modern clients are translated.
  { name: 'legacy', backends: ({ url }) => ({ reference: { ...http(url), era: 'legacy' } }) },
  {
    name: 'two',
    backends: ({ url }) => ({
      reference: { ...http(url), prefix: '' },
      second: { command: NODE, args: [script('second-server.mjs')], prefix: '' },
    }),
  },
  {
    name: 'stdio',
    backends: ({ command: [program, ...args] }) => ({ reference: { command: program, args: [...args, '--stdio'] } }),
  },
];

/** The run in which the suite's HTTP reaches a stdio server directly: see bridge.mjs. */
export const bridged = (command) => [NODE, script('lib/bridge.mjs'), ...command];

/** Fanlight as a stdio server in front of the stdio server, compared with that server behind the bridge. */
export const ALL_STDIO = { name: 'all-stdio', backends: ({ command }) => LEGS.find(({ name }) => name === 'stdio').backends({ command }) };

const http = (url) => ({ type: 'http', url });
