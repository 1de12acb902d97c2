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

/** Those in which a user signs in, by the revision that has them. */
const OF_USERS = [
  'auth/metadata-default',
  'auth/metadata-var1',
  'auth/metadata-var2',
  'auth/metadata-var3',
  'auth/basic-cimd',
  'auth/scope-from-www-authenticate',
  'auth/scope-from-scopes-supported',
  'auth/scope-omitted-when-undefined',
  'auth/scope-step-up',
  'auth/scope-retry-limit',
  'auth/token-endpoint-auth-basic',
  'auth/token-endpoint-auth-post',
  'auth/token-endpoint-auth-none',
  'auth/pre-registration',
];
const OF_MODERN_USERS = [
  'auth/resource-mismatch',
  'auth/offline-access-scope',
  'auth/offline-access-not-supported',
  'auth/authorization-server-migration',
  'auth/iss-supported',
  'auth/iss-not-advertised',
  'auth/iss-supported-missing',
  'auth/iss-wrong-issuer',
  'auth/iss-unexpected',
  'auth/iss-normalized',
  'auth/metadata-issuer-mismatch',
  'auth/dpop',
  'auth/dpop-nonce',
];
const OF_FIRST_USERS = ['auth/2025-03-26-oauth-metadata-backcompat', 'auth/2025-03-26-oauth-endpoint-fallback'];

const RUNS = [
  { name: 'credentials', client: 'client/credentials.mjs', revision: '2025-11-25', scenarios: SCENARIOS },
  { name: 'credentials', client: 'client/credentials.mjs', revision: '2026-07-28', scenarios: SCENARIOS },
  { name: 'signing-in', client: 'client/signing-in.mjs', revision: '2025-03-26', scenarios: OF_FIRST_USERS },
  { name: 'signing-in', client: 'client/signing-in.mjs', revision: '2025-11-25', scenarios: OF_USERS },
  { name: 'signing-in', client: 'client/signing-in.mjs', revision: '2026-07-28', scenarios: [...OF_USERS, ...OF_MODERN_USERS] },
];

export async function gradeCredentials(tally, suite, work) {
  for (const { name, client, revision, scenarios } of RUNS) {
    const report = new Map();
    for (const scenario of scenarios) {
      const out = path.join(work, `${name}_${revision}_${scenario.replaceAll('/', '_')}`);
      mkdirSync(out);
      const env = { CONFORMANCE_WORK: out, CONFORMANCE_SCENARIO: scenario };
      report.set(scenario, await suite.gradeClient(`${NODE} ${client}`, { revision, scenario, out, env }));
    }
    tally.alone(`${name}/${revision}@${suite.version}`, report);
  }
}
