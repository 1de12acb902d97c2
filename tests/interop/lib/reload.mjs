// Reload: a listening SDK client gets one `list_changed` for each change of Fanlight's
// configuration file, and its next list has the change. A client's plan changes the file itself, so
// that no step must guess the client's progress.
import path from 'node:path';
import { ask, baseEnvironment } from './clients.mjs';
import { compareValues } from './compare.mjs';
import { HTTP_TRANSPORTS, throughHttp, writeConfig } from './fanlight.mjs';

const ADDED = 'added';
const ADDED_TOOL = `${ADDED}__list_allowed_directories`;
const LIST_CHANGED = { method: 'notifications/tools/list_changed', params: {} };

/** Every client over every transport; with two servers at first, so that the third does not change the names of theirs. */
export async function checkReloads(checks, clients, servers, { binary, work }) {
  const filesystem = servers.find(({ name }) => name === 'filesystem');
  const members = servers.filter(({ name }) => name === 'filesystem' || name === 'memory');
  const context = { members, added: { ...filesystem, name: ADDED } };

  const shared = { ...context, ...writeConfig(work, 'reload', members) };
  await throughHttp(checks, { names: 'reload', config: shared.file }, { binary, work }, async (address) => {
    for (const { name, title, target } of HTTP_TRANSPORTS) {
      // One client after the other, since a change is announced to all clients.
      for (const client of clients.filter(({ era }) => name !== 'sse' || era === 'legacy')) {
        await checkReload(checks, title, client, shared, target(address));
      }
    }
  });
  for (const client of clients) {
    const own = { ...context, ...writeConfig(work, path.join('reload-stdio', client.name), members) };
    const target = { command: binary, args: ['stdio', '--config', own.file], env: baseEnvironment() };
    await checkReload(checks, 'stdio', client, own, target);
  }
}

function checkReload(checks, title, client, { members, added, file, configOf }, target) {
  return checks.one(`${title} reload  ${client.sdk} ${client.era}`, async () => {
    const list = (id) => ({ id, method: 'list', params: { kind: 'tools' } });
    const replace = (id, servers, count) =>
      ({ id, method: 'replaceFile', params: { file, text: configOf(servers), count } });
    const { steps } = await ask(target, client, [
      { id: 'watch', method: 'watch', params: { uris: [], lists: ['tools'] } },
      list('before'),
      replace('add', [...members, added], 1),
      list('with'),
      { id: 'call', method: 'tools/call', params: { name: ADDED_TOOL, arguments: {} } },
      replace('remove', members, 1),
      list('without'),
      // A second notification for a change would arrive here, or instead of the next one.
      replace('nothing', members, 0),
    ]);
    const before = steps.before.result?.names ?? [];
    const differences = [];
    const expect = (what, expected, actual) => compareValues(what, expected, actual, differences);
    expect('watch', ['tools'], steps.watch.result?.lists);
    expect('before', false, before.length === 0 || before.includes(ADDED_TOOL));
    expect('add.notifications', [LIST_CHANGED], steps.add.notifications);
    const ofAdded = before.filter((name) => name.startsWith('filesystem__')).map((name) => name.replace('filesystem', ADDED));
    expect('with', [...before, ...ofAdded], steps.with.result?.names);
    expect('call.isError', false, (steps.call.result ?? { isError: true }).isError ?? false);
    expect('remove.notifications', [LIST_CHANGED], steps.remove.notifications);
    expect('without', before, steps.without.result?.names);
    expect('nothing.notifications', [], steps.nothing.notifications);
    return differences;
  });
}
