// The steps of every client: sign in from nothing and call; refresh; request more scopes. The
// client's report shows the results, the authorization server's record shows the requests behind
// them.
import { mkdtempSync } from 'node:fs';
import path from 'node:path';
import { freePort } from '../../interop/lib/processes.mjs';
import { follow } from './clients.mjs';
import { ROOT } from './paths.mjs';
import { LEEWAY_S, SCOPES } from './setting.mjs';
import { differences } from './traffic.mjs';

const SHORT_LIFE_S = 4;

/** Runs all legs of all clients; returns their tokens. */
export async function checkClients(checks, context, clients) {
  const tokens = [];
  const legs = clients.flatMap((client) => legsOf(client, context).map((leg) => ({ client, ...leg })));
  await checks.each(
    legs,
    ({ client, name }) => `${context.name}  ${client.name} ${client.era}: ${name}`,
    async ({ client, name, check }) => {
      const id = `${client.name} ${client.era} ${name} ${crypto.randomUUID()}`;
      const { found, report } = await check({ ...context, client, id, callbackPort: await freePort() });
      tokens.push(...report.tokens);
      return found;
    },
  );
  return tokens;
}

/** `signInOnly`: only the first leg, if nothing but the path to the resource differs. */
const legsOf = (client, { signInOnly }) =>
  LEGS.filter(({ needs, check }) => (signInOnly ? check === signsIn : needs === undefined || client[needs]));

const LEGS = [
  { name: 'registers, signs in, calls', check: signsIn },
  { name: 'signs in by its metadata document', check: signsInByDocument },
  { name: 'refreshes its token', check: refreshes, needs: 'refreshes' },
  { name: 'asks for the scopes of a call', check: stepsUp, needs: 'stepsUp' },
];

async function signsIn(context) {
  const { found, report, requests } = await runLeg(context, { steps: [{ call: 'note' }] }, ['noted']);
  return { report, found: [...found, ...signInDifferences(requests, context, { registrations: 1, exchanges: 1 })] };
}

async function signsInByDocument(context) {
  const clientMetadataUrl = `https://clients.example/${encodeURIComponent(context.id)}`;
  context.jwt.publishClient(clientMetadataUrl, {
    client_name: context.id,
    redirect_uris: ['http://127.0.0.1:1/callback', `http://127.0.0.1:${context.callbackPort}/oauth/callback`],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  });
  const { found, report, requests } = await runLeg(context, { clientMetadataUrl, steps: [{ call: 'note' }] }, ['noted']);
  const isByDocument = requests.every(({ clientId }) => clientId === clientMetadataUrl);
  found.push(...(isByDocument ? [] : ['the client ID was not the URL of the document']));
  return { report, found: [...found, ...signInDifferences(requests, context, { registrations: 0, exchanges: 1 })] };
}

async function refreshes(context) {
  context.jwt.limitLifetime(context.id, { seconds: SHORT_LIFE_S, leeway: LEEWAY_S });
  const steps = [{ call: 'note' }, { waitForExpiry: LEEWAY_S }, { call: 'note' }];
  const { found, report, requests } = await runLeg(context, { steps }, ['noted', 'noted']);
  const granted = requests.filter(({ grant, status }) => grant === 'refresh_token' && status === 200);
  const seen = { isRefreshed: granted.length > 0, hasAnother: new Set(report.tokens).size > 1 };
  found.push(...differences(seen, { isRefreshed: true, hasAnother: true }));
  return { report, found: [...found, ...signInDifferences(requests, context, { registrations: 1, exchanges: 1 })] };
}

async function stepsUp(context) {
  // With a refresh token, v1 would refresh instead, which brings no further scopes.
  const plan = { keepsRefreshTokens: false, steps: [{ call: 'note' }, { call: 'refund' }] };
  const { found, report, requests } = await runLeg(context, plan, ['noted', 'refunded']);
  const last = authorizations(requests).at(-1)?.scope?.split(' ') ?? [];
  found.push(...SCOPES.scopesOf('refund').filter((scope) => !last.includes(scope)).map((scope) => `${scope} was not asked for`));
  return { report, found: [...found, ...signInDifferences(requests, context, { registrations: 1, exchanges: 2 })] };
}

async function runLeg(context, plan, results) {
  const { client, id, resource, jwt, work, caFile, callbackPort } = context;
  const home = mkdtempSync(path.join(work, 'home-'));
  const own = { home, browser: path.join(ROOT, 'lib/browser'), callbackPort };
  const report = await follow(client, { name: id, url: resource.url, ...own, ...plan }, { caFile });
  const found = differences({ tools: report.tools.toSorted(), results: report.results }, { tools: ['note', 'refund'], results });
  return { found, report, requests: jwt.requestsOf(id) };
}

const authorizations = (requests) => requests.filter(({ route }) => route === 'authorization');

/** Checks the numbers of registrations and code exchanges, and that all requests named the resource and used PKCE. */
function signInDifferences(requests, { resource }, { registrations, exchanges }) {
  const asked = authorizations(requests);
  const exchanged = requests.filter(({ grant, status }) => grant === 'authorization_code' && status === 200);
  const counted = {
    registrations: requests.filter(({ route }) => route === 'registration').length,
    exchanges: exchanged.length,
    resources: [...new Set([...asked, ...exchanged].map((request) => request.resource))],
    pkce: [...new Set(asked.map(({ pkce }) => pkce))],
    firstScopes: asked[0]?.scope?.split(' ').filter((scope) => scope !== 'offline_access').toSorted(),
  };
  const firstScopes = SCOPES.usual.toSorted();
  return differences(counted, { registrations, exchanges, resources: [resource.url], pkce: ['S256'], firstScopes });
}
