// The servers under test: their configuration, and the plan of calls that every client runs against each.
//
// A step is {id, method, params, expect, volatile?, unclaimed?}. `expect` names the kind of response that the server
// must give to a direct request (see EXPECTATIONS). `volatile` has the patterns in its output that change between two
// calls. `unclaimed` says that no server has the name or URI.
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import http from 'node:http';
import path from 'node:path';
import { PEER_EXPECTATIONS, peerCommands, peerServers } from './peers.mjs';

const ISO_TIME = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)/g;
const CLOCK_TIME = /\d{1,2}:\d\d:\d\d(\s[AP]M)?/g;
const WEEKDAY = /(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day/g;

const succeeds = ({ result }) => result !== undefined && result.isError !== true;
const hasContent = (type) => (outcome) =>
  succeeds(outcome) && outcome.result.content.some((block) => block.type === type);

export const EXPECTATIONS = {
  result: succeeds,
  structuredContent: (outcome) => succeeds(outcome) && outcome.result.structuredContent !== undefined,
  image: hasContent('image'),
  audio: hasContent('audio'),
  progress: (outcome) => succeeds(outcome) && outcome.progress.length >= 3,
  asked: (outcome) => succeeds(outcome) && outcome.asked.length === 1,
  isError: ({ result }) => result?.isError === true,
  refusal: ({ result, error }) => result?.isError === true || Number.isInteger(error?.code),
  ...PEER_EXPECTATIONS,
};

const step = (method) => (id, params, expect = 'result', more = {}) => ({ id, method, params, expect, ...more });
const read = step('resources/read');
const prompt = step('prompts/get');
const complete = step('completion/complete');
const call = (name, args = {}, expect = 'result', more = {}) =>
  step('tools/call')(more.id ?? name, { name, arguments: args }, expect, more);
const unknownTool = call('no-such-tool', {}, 'refusal');

/**
 * Every server: {name, modern, merged, config, steps}. `modern` servers have both eras, the others only the legacy one.
 * Servers with an equal `merged` are behind one Fanlight. A server's second transport is tested alone, since it has the
 * URIs of the first. Clients of an equal `peer` take turns. `conditionalTools` are listed only for clients with the
 * capabilities that they need.
 */
export function servers(root, fixture, ports) {
  const bin = (name) => path.join(root, 'node_modules', '.bin', name);
  const pythonBin = (name) => path.join(root, '.venv', 'bin', name);
  const http = (port) => ({ type: 'http', url: `http://127.0.0.1:${port}/mcp` });
  const kubernetesArgs = ['--kubeconfig', fixture.kubeconfig];
  return [
    { name: 'everything', merged: 'together', config: http(ports.everything), steps: everythingSteps(),
      conditionalTools: ['trigger-elicitation-request', 'trigger-sampling-request', 'trigger-url-elicitation',
        'get-roots-list', 'trigger-elicitation-request-async', 'trigger-sampling-request-async'] },
    { name: 'everything-stdio', config: { command: bin('mcp-server-everything'), args: ['stdio'] },
      steps: everythingSteps(), ignored: everythingTimes },
    { name: 'filesystem', merged: 'together', config: { command: bin('mcp-server-filesystem'), args: [fixture.files] },
      steps: filesystemSteps(fixture.files) },
    { name: 'memory', merged: 'together', steps: memorySteps(),
      config: { command: bin('mcp-server-memory'), args: [], env: { MEMORY_FILE_PATH: fixture.memory } } },
    { name: 'kubernetes', merged: 'together', modern: true, config: http(ports.kubernetes), steps: kubernetesSteps() },
    { name: 'kubernetes-stdio', modern: true, steps: kubernetesSteps(),
      config: { command: bin('kubernetes-mcp-server'), args: kubernetesArgs } },
    { name: 'time', merged: 'together', modern: true, steps: timeSteps(),
      config: { command: pythonBin('mcp-server-time'), args: ['--local-timezone', 'UTC'] } },
    { name: 'git', merged: 'together', modern: true, steps: gitSteps(fixture.repository),
      config: { command: pythonBin('mcp-server-git'), args: ['--repository', fixture.repository], env: COMMIT_DATE } },
    ...peerServers(root, ports),
  ];
}

/** Serves a page for as long as this program runs; returns its address. */
export async function servePage() {
  const page = '<!doctype html><title>Lamp</title><article><h1>Lamp</h1><p>It is <b>bright</b>, and 1.0 m tall.</p></article>';
  const server = http.createServer((request, response) => {
    response.writeHead(request.url === '/' ? 200 : 404, { 'content-type': 'text/html' }).end(request.url === '/' ? page : '');
  });
  await once(server.listen(0, '127.0.0.1').unref(), 'listening');
  return `http://127.0.0.1:${server.address().port}`;
}

/** The server that is only recorded: it fetches a page that `page` has the address of. */
export function fetchServer(root, page) {
  const config = { command: path.join(root, '.venv', 'bin', 'mcp-server-fetch'), args: ['--ignore-robots-txt'] };
  return { name: 'fetch', config, steps: [
    call('fetch', { url: page }),
    call('fetch', { url: page, raw: true, max_length: 20 }, 'result', { id: 'fetch-raw' }),
    call('fetch', { url: `${page}/missing` }, 'isError', { id: 'fetch-missing' }),
    prompt('fetch-prompt', { name: 'fetch', arguments: { url: page } }),
  ] };
}

/** Calls of a published server that change its data. */
export function writingSteps(server, { files, repository }) {
  const file = path.join(files, 'new.txt');
  const inRepository = (args) => ({ repo_path: repository, ...args });
  return {
    filesystem: [
      call('create_directory', { path: path.join(files, 'made') }),
      call('write_file', { path: file, content: 'one\ntwo\n' }),
      call('edit_file', { path: file, edits: [{ oldText: 'two', newText: 'zwei' }] }),
      call('move_file', { source: file, destination: path.join(files, 'made', 'moved.txt') }),
    ],
    memory: [
      call('create_entities', { entities: [{ name: 'mirror', entityType: 'thing', observations: ['flat'] }] }),
      call('add_observations', { observations: [{ entityName: 'mirror', contents: ['round'] }] }, 'result', { id: 'observe' }),
      call('delete_entities', { entityNames: ['lamp'] }),
      call('read_graph', {}, 'structuredContent', { id: 'read_graph-after' }),
    ],
    git: [
      call('git_create_branch', inRepository({ branch_name: 'made' })),
      call('git_add', inRepository({ files: ['README.md'] })),
      call('git_commit', inRepository({ message: 'Second' })),
      call('git_log', inRepository({ max_count: 5 }), 'result', { id: 'git_log-after' }),
    ],
  }[server] ?? [];
}

/** The groups of servers behind one Fanlight, and the transports that clients use. */
export function mergedGroups(servers) {
  const groups = [
    { name: 'together', transports: ['http', 'stdio'] },
    { name: 'peers', transports: ['http', 'stdio', 'sse'] },
  ];
  return groups
    .map((group) => ({ ...group, members: servers.filter(({ merged }) => merged === group.name) }))
    .filter(({ members }) => members.length > 1);
}

export const HTTP_SERVERS = ['everything', 'kubernetes', 'typescript-v1', 'typescript-v2', 'python'];

/** The commands of the servers that are reached over HTTP, one process each for the whole run. */
export function httpServerCommands(root, fixture, ports) {
  const bin = (name) => path.join(root, 'node_modules', '.bin', name);
  const preload = path.join(root, 'lib', 'loopback.mjs');
  return {
    everything: {
      command: [process.execPath, '--import', preload, bin('mcp-server-everything'), 'streamableHttp'],
      env: { ...process.env, PORT: String(ports.everything) },
    },
    kubernetes: {
      // Over HTTP this server has the modern era only in stateless mode.
      command: [bin('kubernetes-mcp-server'), '--kubeconfig', fixture.kubeconfig, '--stateless',
        '--bind-address', '127.0.0.1', '--port', String(ports.kubernetes)],
    },
    ...peerCommands(root, ports),
  };
}

/** Where the server writes the time in a form that is not a standard. */
const everythingTimes = ['get-resource-reference:/result/content/1/resource/text'];

function everythingSteps() {
  const prompts = { type: 'ref/prompt', name: 'completable-prompt' };
  const template = { type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' };
  const document = (name) => `demo://resource/static/document/${name}`;
  return [
    call('echo', { message: 'façade — "quoted" \u2028 \ud83d\udd26' }),
    call('get-sum', { a: 0.1, b: 1e21 }),
    call('get-sum', { a: 'one', b: 2 }, 'isError', { id: 'get-sum-invalid' }),
    call('get-structured-content', { location: 'Chicago' }, 'structuredContent'),
    call('get-tiny-image', {}, 'image'),
    call('get-annotated-message', { messageType: 'error', includeImage: true }, 'image'),
    call('get-resource-links', { count: 4 }),
    call('get-resource-reference', { resourceType: 'Text', resourceId: 7 }, 'result', { volatile: [CLOCK_TIME] }),
    call('trigger-elicitation-request', {}, 'asked'),
    call('trigger-sampling-request', { prompt: 'façade', maxTokens: 7 }, 'asked'),
    call('trigger-long-running-operation', { duration: 0.4, steps: 4 }, 'progress'),
    unknownTool,
    read('document', { uri: document('features.md') }),
    read('template', { uri: 'demo://resource/dynamic/text/3' }, 'result', { volatile: [CLOCK_TIME] }),
    read('unknown-resource', { uri: document('no-such-file') }, 'refusal', { unclaimed: true }),
    prompt('simple-prompt', { name: 'simple-prompt' }),
    prompt('args-prompt', { name: 'args-prompt', arguments: { city: 'Zürich', state: 'ZH' } }),
    prompt('args-prompt-invalid', { name: 'args-prompt', arguments: {} }, 'refusal'),
    prompt('resource-prompt', { name: 'resource-prompt', arguments: { resourceType: 'Text', resourceId: '2' } },
      'result', { volatile: [CLOCK_TIME] }),
    complete('complete-prompt', { ref: prompts, argument: { name: 'name', value: 'A' },
      context: { arguments: { department: 'Engineering' } } }),
    complete('complete-template', { ref: template, argument: { name: 'resourceId', value: '12' } }),
  ];
}

function filesystemSteps(files) {
  const file = (name) => ({ path: path.join(files, name) });
  return [
    call('list_allowed_directories', {}, 'structuredContent'),
    call('directory_tree', { path: files }, 'structuredContent'),
    call('list_directory_with_sizes', { path: files }),
    call('read_text_file', file('notes.txt'), 'structuredContent'),
    call('read_text_file', { ...file('notes.txt'), head: 1 }, 'structuredContent', { id: 'read_text_file-head' }),
    call('read_media_file', file('dot.png'), 'image'),
    call('read_media_file', file('silence.wav'), 'audio', { id: 'read_media_file-audio' }),
    call('read_text_file', { path: '/outside' }, 'isError', { id: 'read_text_file-outside' }),
    unknownTool,
  ];
}

function memorySteps() {
  const missing = [{ entityName: 'nobody', contents: ['nothing'] }];
  return [
    call('read_graph', {}, 'structuredContent'),
    call('search_nodes', { query: 'lamp' }, 'structuredContent'),
    call('open_nodes', { names: ['lens'] }, 'structuredContent'),
    call('add_observations', { observations: missing }, 'isError'),
    unknownTool,
    read('knowledge-graph', { uri: 'memory://knowledge-graph' }),
  ];
}

function kubernetesSteps() {
  return [
    call('configuration_contexts_list', {}, 'structuredContent'),
    call('configuration_view', { minified: false }),
    call('pods_list', {}, 'isError'), // the made-up cluster refuses connections
    call('pods_get', {}, 'isError'),
    unknownTool,
    prompt('cluster-health-check', { name: 'cluster-health-check' }, 'result', { volatile: [ISO_TIME] }),
    prompt('no-such-prompt', { name: 'no-such-prompt' }, 'refusal'),
  ];
}

function timeSteps() {
  const conversion = { source_timezone: 'Asia/Kolkata', time: '16:30', target_timezone: 'Asia/Tokyo' };
  const volatile = [ISO_TIME, WEEKDAY];
  return [
    call('get_current_time', { timezone: 'Asia/Tokyo' }, 'structuredContent', { volatile }),
    call('convert_time', conversion, 'structuredContent', { volatile }),
    call('convert_time', { ...conversion, time: 'noon' }, 'isError', { id: 'convert_time-invalid' }),
    unknownTool,
  ];
}

function gitSteps(repository) {
  const inRepository = (args = {}) => ({ repo_path: repository, ...args });
  return [
    call('git_status', inRepository()),
    call('git_log', inRepository({ max_count: 5 })),
    call('git_show', inRepository({ revision: 'HEAD' })),
    call('git_diff_unstaged', inRepository()),
    call('git_branch', inRepository({ branch_type: 'local' })),
    call('git_show', inRepository({ revision: 'no-such-revision' }), 'isError', { id: 'git_show-unknown' }),
    unknownTool,
  ];
}

/** Writes the data of the servers into `folder`: files, a knowledge graph, a kubeconfig, a git repository. */
export function writeFixture(folder) {
  const fixture = {
    files: path.join(folder, 'files'),
    memory: path.join(folder, 'memory.jsonl'),
    kubeconfig: path.join(folder, 'kubeconfig.yaml'),
    repository: path.join(folder, 'repository'),
  };
  writeFiles(fixture.files);
  writeFileSync(fixture.memory, KNOWLEDGE_GRAPH.map((entry) => `${JSON.stringify(entry)}\n`).join(''));
  writeFileSync(fixture.kubeconfig, JSON.stringify(KUBECONFIG)); // JSON is YAML
  writeRepository(fixture.repository);
  return fixture;
}

/** Gives the servers their data as at first. */
export function renewFixture(folder, { files, repository }) {
  for (const changed of [files, repository]) rmSync(changed, { recursive: true });
  writeFixture(folder);
}

function writeFiles(folder) {
  mkdirSync(path.join(folder, 'nested'), { recursive: true });
  writeFileSync(path.join(folder, 'notes.txt'), 'first line\nsecond line: "é" \\u00e9 \t tab\n');
  writeFileSync(path.join(folder, 'nested', 'empty.txt'), '');
  writeFileSync(path.join(folder, 'dot.png'), Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64'));
  writeFileSync(path.join(folder, 'silence.wav'), Buffer.from(
    'UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==', 'base64'));
}

const KNOWLEDGE_GRAPH = [
  { type: 'entity', name: 'lamp', entityType: 'thing', observations: ['it is bright', 'it is 1.0 m tall'] },
  { type: 'entity', name: 'lens', entityType: 'thing', observations: [] },
  { type: 'relation', from: 'lamp', to: 'lens', relationType: 'shines through' },
];

/** When the server commits: the hashes of commits depend on it. */
const COMMIT_DATE = { GIT_AUTHOR_DATE: '1767323045 +0000', GIT_COMMITTER_DATE: '1767323045 +0000' };

const KUBECONFIG = {
  apiVersion: 'v1',
  kind: 'Config',
  'current-context': 'staging',
  clusters: [1, 2].map((port) => ({ name: `cluster-${port}`, cluster: { server: `https://127.0.0.1:${port}` } })),
  users: [{ name: 'nobody', user: { token: 'made-up' } }],
  contexts: [
    { name: 'production', context: { cluster: 'cluster-2', user: 'nobody', namespace: 'shop' } },
    { name: 'staging', context: { cluster: 'cluster-1', user: 'nobody' } },
  ],
};

function writeRepository(folder) {
  mkdirSync(folder);
  const date = '2026-01-02T03:04:05Z';
  const identity = { NAME: 'Interop', EMAIL: 'interop@example.invalid', DATE: date };
  const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' };
  for (const [name, value] of Object.entries(identity)) {
    env[`GIT_AUTHOR_${name}`] = env[`GIT_COMMITTER_${name}`] = value;
  }
  const git = (...args) => execFileSync('git', ['-C', folder, ...args], { env, timeout: 30_000 });
  git('init', '--quiet', '--initial-branch=main');
  git('config', 'user.name', identity.NAME);
  git('config', 'user.email', identity.EMAIL);
  writeFileSync(path.join(folder, 'README.md'), '# Interop\n');
  git('add', '.');
  git('commit', '--quiet', '--message', 'First commit: "quotes" and ünïcode');
  writeFileSync(path.join(folder, 'README.md'), '# Interop\n\nchanged, not staged\n');
}
