// Tests the comparison itself, without Fanlight: asking twice gives equal reports, the eras differ by no more than
// the translation explains, and whatever is altered in a report is found.
import { askDirectly, isLegacyTwinOf } from './clients.mjs';
import { compareSingle } from './compare.mjs';

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
}

const sameEra = (client) => ({ crossEra: false, clientEra: client.era });

/** Alters and removes every member and element of the report in turn; returns the alterations nobody noticed. */
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

/** A report so broken that comparing it throws has been noticed as well: the group fails. */
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
