// The suite's scenarios of authorization with Fanlight as the client: its mock server is a backend that wants credentials. There
// is no direct run to compare with: each check has to pass.
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { NODE } from './paths.mjs';

/** The scenarios in which Fanlight gets tokens of its own, by the extensions that they belong to. */
const SCENARIOS = [
  'auth/client-credentials-jwt',
  'auth/client-credentials-basic',
  'auth/wif-jwt-bearer',
  'auth/enterprise-managed-authorization',
];

const REVISIONS = ['2025-11-25', '2026-07-28'];

export async function gradeCredentials(tally, suite, work) {
  for (const revision of REVISIONS) {
    const report = new Map();
    for (const scenario of SCENARIOS) {
      const out = path.join(work, `credentials_${revision}_${scenario.replaceAll('/', '_')}`);
      mkdirSync(out);
      const env = { CONFORMANCE_WORK: out, CONFORMANCE_SCENARIO: scenario };
      report.set(scenario, await suite.gradeClient(`${NODE} client/credentials.mjs`, { revision, scenario, out, env }));
    }
    tally.alone(`credentials/${revision}@${suite.version}`, report);
  }
}
