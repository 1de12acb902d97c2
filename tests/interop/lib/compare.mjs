// Compares two reports of the same plan: `direct` (client and server directly) and `through` (with Fanlight between
// them). Everything must be equal, down to the last member, except for these differences:
//
// 1. Era translation, only when Fanlight had to translate (`crossEra`): the members of ERA_MEMBERS may be *added*, with
//    a valid value, and so may the server's identity in `_meta`; only capabilities of every era are compared; -32002 and
//    -32602 are equivalent (the modern revision forbids the first).
// 2. Several servers (`merged`): names have the prefix `<server>__`. A server or Fanlight refuses a URI that nobody has,
//    so only the error's code is compared. Fanlight makes the list members other than the items, and the description of
//    the server. The merged list of tools is the same for all clients, so the tools that a server lists only for clients
//    with certain capabilities (`conditionalTools`) are not compared there. They are called.
// 3. Members that the client's SDK received but does not expose (`unreadOfTools`).
// 4. Tools that can only be called as tasks, and clients without tasks: see awaited.mjs.
// 5. Volatile output: a step names the patterns (the time of day, …) that are blanked in both reports.

const RESOURCE_NOT_FOUND = -32002;
const INVALID_PARAMS = -32602;

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Members that a modern result must have and a legacy one need not, with their valid values. */
const ERA_MEMBERS = {
  resultType: (value) => value === 'complete',
  ttlMs: (value) => Number.isInteger(value) && value >= 0,
  cacheScope: (value) => value === 'public' || value === 'private',
};
const SERVER_INFO_META = 'io.modelcontextprotocol/serverInfo';

/** Capabilities with one meaning in every revision; a cross-era comparison requires these to be equal. */
const CAPABILITIES_OF_EVERY_ERA = ['tools', 'resources', 'prompts', 'completions'];

/** The report of the SDK's legacy client as its modern client would give it: rule 3. */
export function asReadBy(client, report) {
  if (!client.unreadOfTools || !report.lists.tools) return report;
  const read = (tool) => Object.fromEntries(
    Object.entries(tool).filter(([member]) => !client.unreadOfTools.includes(member)));
  const tools = { ...report.lists.tools, items: report.lists.tools.items.map(read) };
  return { ...report, lists: { ...report.lists, tools } };
}

/** Compares the reports of one server. Its names are unchanged, so every part counts. Returns the differences. */
export function compareSingle(server, direct, through, { crossEra, clientEra }) {
  const differences = [];
  compareValues('server.era', clientEra, through.server.era, differences);
  compareServer(direct.server, through.server, crossEra, differences);
  for (const [kind, list] of Object.entries(direct.lists)) {
    compareList(kind, list, through.lists[kind], crossEra, differences);
  }
  requireCachingHints(through.lists, clientEra, differences);
  for (const step of server.steps) {
    compareStep(step, direct.steps[step.id], through.steps[step.id], crossEra, differences);
  }
  return differences;
}

/** Compares the steps of one server among several. */
export function compareMergedSteps(server, direct, through, { crossEra, clientEra }) {
  const differences = [];
  for (const step of server.steps) {
    const outcome = ownEntries(server, step, through.steps[mergedStepId(server, step)]);
    if (step.unclaimed) {
      compareRefusal(step, outcome, clientEra, differences);
    } else {
      compareStep(step, direct.steps[step.id], outcome, crossEra, differences);
    }
  }
  return differences;
}

/** The names or URIs in a merged list that belong to one server, without its prefix. */
function ownEntries(server, step, outcome) {
  if (step.method !== 'list' || !outcome?.result) return outcome;
  const prefix = mergedName(server, '');
  const { kind, names } = outcome.result;
  const own = kind === 'resources'
    ? names.filter((uri) => uri.startsWith(server.uriPrefix))
    : names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
  return { ...outcome, result: { kind, names: own } };
}

/** Compares the merged lists: each server's items in its order, and the servers in the configuration's order. */
export function compareMergedLists(entries, through, { clientEra }) {
  const differences = [];
  compareValues('server.era', clientEra, through.server.era, differences);
  requireCachingHints(through.lists, clientEra, differences);
  for (const [kind, list] of Object.entries(through.lists)) {
    const expected = entries.flatMap(({ server, direct }) =>
      (direct.lists[kind]?.items ?? []).map((item) => prefixed(server, kind, item)));
    const conditional = entries.flatMap(({ server }) =>
      (server.conditionalTools ?? []).map((name) => mergedName(server, name)));
    const isSure = ({ name }) => kind !== 'tools' || !conditional.includes(name);
    compareValues(`lists.${kind}`, expected.filter(isSure), (list?.items ?? []).filter(isSure), differences);
  }
  for (const { server, direct } of entries) {
    const { instructions } = direct.server;
    if (instructions !== null && !through.server.instructions?.includes(instructions)) {
      differences.push(`server.instructions: those of ${server.name} are missing`);
    }
  }
  return differences;
}

/** The id and the name of a step when its server is one of several. */
export const mergedStepId = (server, step) => `${server.name}/${step.id}`;
export const mergedName = (server, name) => `${server.name}__${name}`;

function prefixed(server, kind, item) {
  return kind === 'tools' || kind === 'prompts' ? { ...item, name: mergedName(server, item.name) } : item;
}

function compareServer(direct, through, crossEra, differences) {
  compareValues('server.serverInfo', direct.serverInfo, through.serverInfo, differences);
  compareValues('server.instructions', direct.instructions, through.instructions, differences);
  const comparable = crossEra
    ? (all) => CAPABILITIES_OF_EVERY_ERA.filter((name) => all[name] !== undefined)
    : (all) => all;
  compareValues(
    'server.capabilities', comparable(direct.capabilities), comparable(through.capabilities), differences);
}

function compareList(kind, direct, through, crossEra, differences) {
  if (!direct || !through) {
    compareValues(`lists.${kind}`, direct, through, differences);
    return;
  }
  compareValues(`lists.${kind}`, direct.items, through.items, differences);
  const rest = crossEra ? withoutAddedEraMembers(direct.rest, through.rest) : through.rest;
  compareValues(`lists.${kind}.rest`, direct.rest, rest, differences);
}

/** Checks that every modern list has `ttlMs` and `cacheScope`. */
function requireCachingHints(lists, clientEra, differences) {
  if (clientEra !== 'modern') return;
  for (const [kind, list] of Object.entries(lists)) {
    for (const name of ['ttlMs', 'cacheScope']) {
      if (list && !ERA_MEMBERS[name](list.rest[name])) {
        differences.push(`lists.${kind}.rest.${name}: required of a modern list, got ${shown(list.rest[name])}`);
      }
    }
  }
}

function compareStep(step, direct, through, crossEra, differences) {
  const expected = blankVolatile(step, direct);
  let actual = blankVolatile(step, through);
  if (crossEra && expected.result && actual?.result) {
    actual = { ...actual, result: withoutAddedEraMembers(expected.result, actual.result) };
  }
  if (crossEra && isSameRefusal(expected.error, actual?.error)) {
    actual = { ...actual, error: { ...actual.error, code: expected.error.code } };
  }
  compareValues(`steps.${step.id}`, expected, actual, differences);
}

function compareRefusal(step, outcome, clientEra, differences) {
  const codes = [INVALID_PARAMS];
  if (step.method === 'resources/read' && clientEra === 'legacy') codes.push(RESOURCE_NOT_FOUND);
  if (!codes.includes(outcome?.error?.code)) {
    differences.push(`steps.${step.id}: expected an error ${codes.join(' or ')}, got ${shown(outcome)}`);
  }
}

const isSameRefusal = (expected, actual) =>
  [expected?.code, actual?.code].every((code) => code === RESOURCE_NOT_FOUND || code === INVALID_PARAMS);

function withoutAddedEraMembers(direct, through) {
  const result = { ...through };
  for (const [name, isValid] of Object.entries(ERA_MEMBERS)) {
    if (!(name in direct) && isValid(result[name])) delete result[name];
  }
  if (!direct._meta?.[SERVER_INFO_META] && isObject(result._meta?.[SERVER_INFO_META])) {
    const { [SERVER_INFO_META]: _, ...meta } = result._meta;
    if (direct._meta || Object.keys(meta).length > 0) result._meta = meta;
    else delete result._meta;
  }
  return result;
}

function blankVolatile(step, value) {
  if (!step.volatile || value === undefined) return value;
  const blank = (text) => step.volatile.reduce((blanked, pattern) => blanked.replaceAll(pattern, '…'), text);
  return JSON.parse(JSON.stringify(value), (_, member) => (typeof member === 'string' ? blank(member) : member));
}

/** Adds one line per place where the two values differ. Objects are compared as sets of members. */
export function compareValues(path, expected, actual, differences) {
  if (Array.isArray(expected) && Array.isArray(actual)) {
    for (let i = 0; i < Math.max(expected.length, actual.length); i++) {
      compareValues(`${path}[${i}]`, expected[i], actual[i], differences);
    }
  } else if (isObject(expected) && isObject(actual)) {
    for (const key of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
      compareValues(`${path}.${key}`, expected[key], actual[key], differences);
    }
  } else if (!Object.is(expected, actual)) {
    differences.push(`${path}: expected ${shown(expected)}, got ${shown(actual)}`);
  }
}

function shown(value) {
  const json = value === undefined ? 'nothing' : JSON.stringify(value);
  return json.length > 160 ? `${json.slice(0, 160)}… (${json.length} characters)` : json;
}
