// Tests the comparison itself, without Fanlight. Two direct runs give equal reports, the eras
// differ only by the listed translations, a merged report made from the direct ones is accepted,
// and every alteration is found.
import { isDeepStrictEqual } from 'node:util';
import { askDirectly, isLegacyTwinOf } from './clients.mjs';
import { compareMergedLists, compareMergedSteps, compareSingle, mergedName, mergedStepId } from './compare.mjs';
import { mergedGroups } from './servers.mjs';

export async function selfTest(checks, { servers, clients }, direct) {
  const pairs = servers.flatMap((server) => clients.map((client) => ({ server, client })));
  const native = pairs.filter(({ server, client }) => server.modern || client.era === 'legacy');
  const nameOf = (what) => ({ server, client }) => `${what}  ${server.name}  ${client.sdk} ${client.era}`;

  await checks.each(native, nameOf('again       '), async ({ server, client }) => {
    const again = await askDirectly(server, client);
    return compareSingle(server, direct(server, client), again, sameEra(client));
  });

  const bothEras = pairs.filter(({ server, client }) =>
    server.modern && client.era === 'modern' && clients.some(isLegacyTwinOf(client)));
  await checks.each(bothEras, nameOf('across eras '), ({ server, client }) => {
    const legacy = direct(server, clients.find(isLegacyTwinOf(client)));
    return compareSingle(server, legacy, direct(server, client), { crossEra: true, clientEra: 'modern' });
  });

  await checks.each(native, nameOf('alterations '), ({ server, client }) => {
    const report = direct(server, client);
    return undetected(report, (altered) => compareSingle(server, report, altered, sameEra(client)));
  });
  await checks.each(bothEras, nameOf('alterations across eras'), ({ server, client }) => {
    const legacy = direct(server, clients.find(isLegacyTwinOf(client)));
    const compare = (altered) => compareSingle(server, legacy, altered, { crossEra: true, clientEra: 'modern' });
    return undetected(direct(server, client), compare).filter((missed) => !MAY_DIFFER_ACROSS_ERAS.test(missed));
  });

  for (const { name, members } of mergedGroups(servers)) {
    await checks.each(clients, (client) => `merged        ${name}  ${client.sdk} ${client.era}`, (client) => {
      const entries = members.map((server) => ({ server, direct: direct(server, client) }));
      return misjudgedMerges(entries, client.era);
    });
  }
}

/** The differences that the merged comparison finds in a faithful merge, and the unfaithful merges that it accepts. */
function misjudgedMerges(entries, clientEra) {
  const compare = (merged) => [
    ...compareMergedLists(entries, merged, { clientEra }),
    ...entries.flatMap(({ server, direct }) =>
      compareMergedSteps(server, direct, merged, { crossEra: false, clientEra })),
  ];
  const [{ server: first, direct: firstReport }] = entries;
  const [firstStep] = first.steps;
  const unfaithful = {
    'another order': ({ lists }) => lists.tools.items.reverse(),
    'a tool lost': ({ lists }) => lists.tools.items.pop(),
    'a prefix lost': ({ lists }) => (lists.tools.items[0].name = firstReport.lists.tools.items[0].name),
    'a description altered': ({ lists }) => (lists.tools.items.at(-1).description += '!'),
    'instructions lost': ({ server }) => (server.instructions = null),
    'a result altered': ({ steps }) => (steps[mergedStepId(first, firstStep)].result.invented = true),
    'a tool answered otherwise': ({ steps }) => (steps[mergedStepId(first, first.steps.at(-1))] = { result: {} }),
  };
  const faithful = merge(entries, clientEra);
  const missed = Object.entries(unfaithful).flatMap(([name, alter]) => {
    const merged = structuredClone(faithful);
    alter(merged);
    const altered = !isDeepStrictEqual(merged, faithful);
    return altered && compare(merged).length === 0 ? [`not noticed: ${name}`] : [];
  });
  return [...compare(faithful), ...missed];
}

function merge(entries, era) {
  const rest = { ttlMs: 0, cacheScope: 'private' };
  const list = (kind, rename) => ({
    items: entries.flatMap(({ server, direct }) => (direct.lists[kind]?.items ?? []).map((item) => rename(server, item))),
    rest,
  });
  const renamed = (server, item) => ({ ...item, name: mergedName(server, item.name) });
  const kept = (_, item) => item;
  const instructions = entries.map(({ direct }) => direct.server.instructions).filter((text) => text !== null);
  const steps = entries.flatMap(({ server, direct }) => server.steps.map((step) =>
    [mergedStepId(server, step), mergedOutcome(server, step, direct.steps[step.id])]));
  return {
    server: { era, instructions: instructions.length > 0 ? instructions.join('\n') : null },
    lists: {
      tools: list('tools', renamed),
      resources: list('resources', kept),
      resourceTemplates: list('resourceTemplates', kept),
      prompts: list('prompts', renamed),
    },
    steps: Object.fromEntries(steps),
  };
}

function mergedOutcome(server, step, outcome) {
  if (step.unclaimed) return { error: { code: -32602 } };
  if (step.method !== 'list') return outcome;
  const { kind, names } = outcome.result;
  const renamed = kind === 'resources' ? names : names.map((name) => mergedName(server, name));
  return { ...outcome, result: { kind, names: [...renamed, 'of another server'] } };
}

/** Members that may have different valid values when the eras differ: rule 1 of compare.mjs. */
const MAY_DIFFER_ACROSS_ERAS =
  /\.(resultType|ttlMs|cacheScope) altered|\._meta altered to undefined|\/serverInfo[. ]|server\.capabilities\./;

const sameEra = (client) => ({ crossEra: false, clientEra: client.era });

/** Alters and removes every member and element of the report in turn; returns the alterations that were not found. */
function undetected(report, compare) {
  const missed = [];
  const copy = structuredClone(report);
  const visit = (holder, path) => {
    for (const key of Object.keys(holder)) {
      const original = holder[key];
      for (const altered of alterations(original)) {
        holder[key] = altered;
        if (!notices(() => compare(copy))) missed.push(`${path}.${key} altered to ${JSON.stringify(altered)}`);
        holder[key] = original;
      }
      if (typeof original === 'object' && original !== null) visit(original, `${path}.${key}`);
    }
  };
  visit(copy, 'report');
  return missed;
}

/** Whether the comparison notices an alteration. If it throws because the report is broken, that counts, too. */
function notices(compare) {
  try {
    return compare().length > 0;
  } catch {
    return true;
  }
}

function alterations(value) {
  if (typeof value === 'string') return [`${value}!`, null, undefined];
  if (typeof value === 'number') return [value + 1, String(value), undefined];
  if (typeof value === 'boolean') return [!value, undefined];
  return [undefined];
}
