// The peers: small servers on the official server SDKs (../peers), since no published server announces changes, sends
// server requests and runs tasks on demand. This file has their commands, and the plan that every client runs against
// them.
import path from 'node:path';

const TASK_ID = /[0-9a-f]{32}/g;
const TIME = /\d{4}-\d\d-\d\dT[\d:.]+Z/g;

/** The commands of the peers, one process each for the whole run; `ports` has one for each. */
export function peerCommands(root, ports) {
  const peer = (program, file, name) =>
    ({ command: [program, path.join(root, 'peers', file), '--port', String(ports[name]), '--name', name] });
  return {
    'typescript-v1': peer(process.execPath, 'typescript-v1.mjs', 'typescript-v1'),
    'typescript-v2': peer(process.execPath, 'typescript-v2.mjs', 'typescript-v2'),
    python: peer(path.join(root, '.venv', 'bin', 'python'), 'python.py', 'python'),
  };
}

/**
 * The peers as servers under test (see servers.mjs). `transports` are Fanlight's transports for its
 * clients; `sse` is the HTTP+SSE transport of 2024-11-05. `direct` is the target for clients without Fanlight.
 */
export function peerServers(root, ports) {
  const url = (peer, where = '/mcp') => `http://127.0.0.1:${ports[peer]}${where}`;
  const server = (peer, more) => ({ peer, uriPrefix: `note://${peer}/`, steps: peerSteps(peer), ...more });
  const sse = (peer) => ({ sse: url(peer, '/sse') });
  const pythonOnStdio = {
    command: path.join(root, '.venv', 'bin', 'python'),
    args: [path.join(root, 'peers', 'python.py'), '--stdio', '--name', 'python'],
  };
  return [
    server('typescript-v1', { name: 'typescript-v1', merged: 'peers', transports: ['http', 'sse'],
      config: { type: 'http', url: url('typescript-v1') } }),
    server('typescript-v1', { name: 'typescript-v1-sse', transports: ['http'], direct: sse('typescript-v1'),
      config: { type: 'sse', url: url('typescript-v1', '/sse') } }),
    server('typescript-v2', { name: 'typescript-v2', merged: 'peers', modern: true, transports: ['http'],
      config: { type: 'http', url: url('typescript-v2') } }),
    server('typescript-v2', { name: 'typescript-v2-legacy', transports: ['http'],
      config: { type: 'http', url: url('typescript-v2'), era: 'legacy' } }),
    server('python', { name: 'python', merged: 'peers', modern: true, config: { type: 'http', url: url('python') } }),
    // The client finds the transport of 2024-11-05 by the specification's fallback; the
    // configuration does not name it.
    server('python', { name: 'python-sse', transports: ['http', 'sse'], direct: sse('python'),
      config: { url: url('python', '/sse') } }),
    // Modern clients have no session: one process serves their calls and another their subscriptions, and each
    // announces only its own updates.
    server('python', { name: 'python-stdio-legacy', transports: ['http'], legacyClientsOnly: true,
      config: { ...pythonOnStdio, era: 'legacy' } }),
    // All clients share one process, which cannot send them server requests. Each of several
    // replicas has its own.
    server('python', { name: 'python-stdio-shared', transports: ['http'], oneProcess: true, steps: notificationSteps('python'),
      config: { ...pythonOnStdio, era: 'legacy', session: 'shared' } }),
  ];
}

const step = (id, method, params, expect, more) => ({ id, method, params, expect, ...more });

/** All steps for a peer. */
function peerSteps(peer) {
  const ask = (name) => step(name, 'tools/call', { name, arguments: {} }, 'askedTwice');
  const ponder = (name, expect = 'task') => step(name, 'task', { name, arguments: { topic: 'tea' } }, expect,
    { volatile: [TASK_ID, TIME] });
  return [
    ...notificationSteps(peer),
    ask('ask-both'), ask('ask-twice'),
    ...(peer === 'typescript-v1' ? [ponder('ponder'), ponder('ponder-in-vain'), ponder('ponder-and-ask', 'askingTask')] : []),
  ];
}

/** Steps with notifications outside of calls. */
function notificationSteps(peer) {
  const uri = (entry) => `note://${peer}/${entry}`;
  const announce = (id, name, args) => step(id, 'announce', { name, arguments: args, count: 1 }, 'notified');
  const toggle = (id, kind) => announce(id, 'toggle', { kind });
  const list = (id, kind) => step(id, 'list', { kind }, 'result');
  return [
    step('watch', 'watch', { uris: [uri(1), uri(2)], lists: ['tools', 'prompts', 'resources'] }, 'result'),
    announce('touch', 'touch', { uris: [uri(1)] }),
    // A notification without a subscription would arrive first.
    announce('touch-another', 'touch', { uris: [uri(3), uri(2)] }),
    toggle('tool-added', 'tools'), list('tools', 'tools'), toggle('tool-removed', 'tools'),
    toggle('prompt-added', 'prompts'), list('prompts', 'prompts'), toggle('prompt-removed', 'prompts'),
    toggle('resource-added', 'resources'), list('resources', 'resources'), toggle('resource-removed', 'resources'),
    step('unwatch', 'unwatch', {}, 'result'),
    step('watch-less', 'watch', { uris: [uri(2)], lists: [] }, 'result'),
    announce('touch-less', 'touch', { uris: [uri(1), uri(2)] }),
    step('unwatch-less', 'unwatch', {}, 'result'),
  ];
}

const succeeds = ({ result }) => result !== undefined && result.isError !== true;

export const PEER_EXPECTATIONS = {
  notified: (outcome, { params }) => succeeds(outcome) && outcome.notifications.length === params.count,
  askedTwice: (outcome) => succeeds(outcome) && outcome.asked.length === 2,
  task: (outcome, _, client) => (client.tasks ? isWholeTask(outcome) : isRefused(outcome)),
  askingTask: (outcome, _, client) =>
    (client.tasks ? isWholeTask(outcome) && outcome.asked.length === 1 : isRefused(outcome)),
};

const isWholeTask = ({ result, task }) =>
  result !== undefined && task.began.status === 'working' && task.isListed && task.isRelated &&
  task.ended.status === (result.isError ? 'failed' : 'completed');
const isRefused = ({ result, error, clientFailure }) => result?.isError === true || (error ?? clientFailure) !== undefined;
