// The suite's client scenarios: its mock servers grade the reference client, directly and with
// Fanlight in between.
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { NODE } from './paths.mjs';

/** The scenarios for a client without authorization. */
const SCENARIOS = {
  '2025-11-25': [
    'initialize',
    'tools_call',
    'elicitation-sep1034-client-defaults',
    'sse-retry',
    'json-schema-2020-12-preservation',
  ],
  '2026-07-28': [
    'tools_call',
    'request-metadata',
    'sep-2322-client-request-state',
    'http-standard-headers',
    'http-custom-headers',
    'http-invalid-tool-headers',
    'json-schema-ref-no-deref',
    'json-schema-2020-12-preservation',
  ],
};

/** Fanlight's servers: the mock server alone, and with a second one. */
const LEGS = ['one', 'two'];

export async function gradeClients(tally, suite, work) {
  for (const [revision, scenarios] of Object.entries(SCENARIOS)) {
    const label = (leg) => `client/${leg}/${revision}@${suite.version}`;
    const direct = await grade(suite, `${NODE} client/main.mjs`, { revision, scenarios, work, leg: 'direct' });
    tally.direct(label('direct'), direct);
    for (const leg of LEGS) {
      const through = await grade(suite, `${NODE} client/main.mjs --through ${leg}`, { revision, scenarios, work, leg });
      tally.through(label(leg), direct, through);
    }
  }
}

async function grade(suite, command, { revision, scenarios, work, leg }) {
  const report = new Map();
  for (const scenario of scenarios) {
    const out = path.join(work, `client_${leg}_${revision}_${scenario}`);
    mkdirSync(out);
    report.set(scenario, await suite.gradeClient(command, { revision, scenario, out, env: { CONFORMANCE_WORK: out } }));
  }
  return report;
}
