// The reference servers, and the ways in which Fanlight stands before each.
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

/** What stands behind Fanlight in each leg. Without prefixes, since the suite fixes the names. */
export const LEGS = [
  // Both eras are on offer, so Fanlight speaks the modern one: a legacy client crosses eras here.
  { name: 'one', backends: ({ url }) => ({ reference: http(url) }) },
  // The other way round: a modern client crosses eras here.
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

/** What runs where the suite's HTTP has to reach a stdio server: see bridge.mjs. */
export const bridged = (command) => [NODE, script('lib/bridge.mjs'), ...command];

/** Fanlight is a stdio server itself here, before the server over stdio; compared with that server, bridged as well. */
export const DOOR = { name: 'door', backends: ({ command }) => LEGS.find(({ name }) => name === 'stdio').backends({ command }) };

const http = (url) => ({ type: 'http', url });
