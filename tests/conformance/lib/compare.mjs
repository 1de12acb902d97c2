// The losses of a report through Fanlight compared with the direct one.

/**
 * One entry for each check that is worse: it passed directly and does not pass through Fanlight (a skip and an absent
 * check are losses too: a capability that was dropped turns a failure into a skip), or it warns or fails through
 * Fanlight only.
 */
export function losses(direct, through) {
  const lost = [];
  for (const [scenario, before] of direct) {
    const after = through.get(scenario) ?? new Map();
    for (const check of new Set([...before.keys(), ...after.keys()])) {
      const [was, is] = [statusOf(before, check), statusOf(after, check)];
      const isWorse = was === 'SUCCESS' ? is !== 'SUCCESS' : bad(is) && !bad(was);
      if (isWorse) lost.push({ scenario, check, was, is, message: after.get(check)?.message });
    }
  }
  return lost;
}

/** The checks of a direct report that do not pass; a reference server has none. */
export function shortcomings(direct) {
  const found = [];
  for (const [scenario, checks] of direct) {
    for (const [check, { status, message }] of checks) {
      if (bad(status)) found.push({ scenario, check, was: 'SUCCESS', is: status, message });
    }
  }
  return found;
}

/** The checks that passed directly. */
export function* passing(direct) {
  for (const [scenario, checks] of direct) {
    for (const [check, { status }] of checks) if (status === 'SUCCESS') yield { scenario, check };
  }
}

const statusOf = (report, check) => report.get(check)?.status ?? 'ABSENT';
const bad = (status) => status === 'FAILURE' || status === 'WARNING';
