// Lean lists: a client finds each tool with `find_tools`, and calls it with `call_tool`. It gets what the server answers directly,
// unless the arguments do not fit the tool's schema, which Fanlight answers itself.
import { ask, baseEnvironment } from './clients.mjs';
import { compareMergedSteps, compareValues, mergedName, mergedStepId } from './compare.mjs';
import { eras, throughHttp, writeConfig } from './fanlight.mjs';
import { mergedGroups } from './servers.mjs';

const OWN = ['find_tools', 'call_tool'];

/** Runs the calls of all published servers together through `call_tool`, with every client. */
export async function checkLean(checks, { servers, clients }, direct, { binary, work }) {
  const members = mergedGroups(servers).find(({ name }) => name === 'together')?.members
    .map((server) => ({ ...server, steps: server.steps.filter(({ method }) => method === 'tools/call') }));
  if (!members) return;
  const names = 'lean';
  const config = writeConfig(work, names, members, { endpoints: { '/mcp': { lean: {} } } }).file;
  const steps = members.flatMap((server) => [finding(server), ...server.steps.map((step) => indirect(server, step))]);
  const check = (transport) => async (target) => {
    for (const client of clients) {
      const name = (part) => `${transport} lean    ${part}  ${client.sdk} ${client.era}`;
      const asked = ask(target, client, steps);
      await checks.one(name('list'), async () => {
        const differences = [];
        compareValues('tools', OWN, (await asked).lists.tools.items.map((tool) => tool.name), differences);
        return differences;
      });
      await checks.each(members, (server) => name(server.name), async (server) => {
        const [alone, through] = [direct(server, client), await asked];
        const isMisfit = ({ id }) => refusesArguments(through.steps[mergedStepId(server, { id })]);
        const fitting = { ...server, steps: server.steps.filter((step) => !isMisfit(step)) };
        const wronglyRefused = server.steps.filter((step) => isMisfit(step) && !alone.steps[step.id].result?.isError);
        return [
          ...wronglyRefused.map(({ id }) => `${id}: the server takes the arguments`),
          ...compareFound(server, alone, through),
          ...compareMergedSteps(fitting, alone, through, eras(server, client)),
        ];
      });
    }
  };
  await throughHttp(checks, { names, config }, { binary, work }, (listen) => check('http ')({ url: `http://${listen}/mcp` }));
  await check('stdio')({ command: binary, args: ['stdio', '--config', config], env: baseEnvironment() });
}

const findingId = (server) => mergedStepId(server, { id: 'find_tools' });

/** The step that lists a server's tools. */
function finding(server) {
  const params = { name: 'find_tools', arguments: { group: server.name, limit: 50 } };
  return { id: findingId(server), method: 'tools/call', params };
}

/** The step through `call_tool`. */
function indirect(server, { id, params: { name, ...rest } }) {
  const params = { name: 'call_tool', arguments: { name: mergedName(server, name), ...rest } };
  return { id: mergedStepId(server, { id }), method: 'tools/call', params };
}

/** Whether Fanlight itself refused the arguments, as it does through `call_tool`. */
function refusesArguments({ result }) {
  return result?.isError && result.content[0].text.startsWith("The arguments do not fit the tool's inputSchema: /");
}

/** Whether a search found the server's definitions as its own list has them. */
function compareFound(server, direct, through) {
  const { structuredContent: found, content } = through.steps[findingId(server)].result;
  const differences = [];
  compareValues('text', found, JSON.parse(content[0].text), differences);
  for (const { name, ...tool } of found.tools) {
    const own = direct.lists.tools.items.find((item) => mergedName(server, item.name) === name);
    // The SDK leaves members out of lists that it does not know, and here it reads plain JSON.
    if (own || !server.conditionalTools?.some((other) => mergedName(server, other) === name)) {
      compareValues(name, own?.description, tool.description, differences);
      compareValues(name, own?.inputSchema, tool.inputSchema, differences);
    }
  }
  const expected = direct.lists.tools.items.filter(({ name }) => !server.conditionalTools?.includes(name));
  if (found.tools.length < expected.length) differences.push(`${found.tools.length} of ${expected.length} tools are found`);
  return differences;
}
