// The suite's authorization scenarios with Fanlight as the client: its mock server requires
// credentials. There is no direct run to compare with, so each check must pass.
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { NODE } from './paths.mjs';

/** Scenarios in which Fanlight gets its own tokens, by extensions of MCP. */
const OWN = [
  'auth/client-credentials-jwt',
  'auth/client-credentials-basic',
  'auth/wif-jwt-bearer',
  'auth/enterprise-managed-authorization',
];

/** Scenarios in which users sign in, of every revision with separate authorization servers. */
const USERS = [
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

/** Scenarios of 2026-07-28, and proofs of possession. */
const NEWER = [
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

/** Scenarios with servers that are their own authorization servers. */
const OLDEST = ['auth/2025-03-26-oauth-metadata-backcompat', 'auth/2025-03-26-oauth-endpoint-fallback'];

const SCENARIOS = {
  '2025-03-26': OLDEST,
  '2025-11-25': [...OWN, ...USERS],
  '2026-07-28': [...OWN, ...USERS, ...NEWER],
};

export async function gradeCredentials(tally, suite, work) {
  for (const [revision, scenarios] of Object.entries(SCENARIOS)) {
    const report = new Map();
    for (const scenario of scenarios) {
      const out = path.join(work, `credentials_${revision}_${scenario.replaceAll('/', '_')}`);
      mkdirSync(out);
      const env = { CONFORMANCE_WORK: out, CONFORMANCE_SCENARIO: scenario };
      report.set(scenario, await suite.gradeClient(`${NODE} client/credentials.mjs`, { revision, scenario, out, env }));
    }
    tally.alone(`credentials/${revision}@${suite.version}`, report);
  }
}
