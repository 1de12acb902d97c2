// Shared by the TypeScript drivers: the plan, and an OAuth client without a window. See README.md.
//
//   stdin:  {name, url, era, user, clientMetadataUrl?, keepsRefreshTokens, steps: [{call, arguments} | {waitForExpiry: s}]}
//   stdout: {tools, results: [text], tokens: [access token]}
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { followTo } from '../lib/browser.mjs';

const REDIRECT_URI = 'http://127.0.0.1:1/callback';

/** An `OAuthClientProvider` of either SDK that keeps everything in memory and signs its user in by HTTP. */
export class HeadlessProvider {
  /** The parameters that the authorization server has sent to the redirect URI. */
  callback;
  accessTokens = [];
  #stored = {};
  #plan;

  constructor(plan) {
    this.#plan = plan;
  }

  get redirectUrl() {
    return REDIRECT_URI;
  }

  get clientMetadataUrl() {
    return this.#plan.clientMetadataUrl;
  }

  get clientMetadata() {
    const refresh = this.#plan.keepsRefreshTokens ? ['refresh_token'] : [];
    return {
      client_name: this.#plan.name,
      redirect_uris: [REDIRECT_URI],
      grant_types: ['authorization_code', ...refresh],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    };
  }

  state = () => (this.#stored.state = crypto.randomUUID());
  clientInformation = () => this.#stored.client;
  saveClientInformation = (client) => void (this.#stored.client = client);
  tokens = () => this.#stored.tokens;
  codeVerifier = () => this.#stored.verifier;
  saveCodeVerifier = (verifier) => void (this.#stored.verifier = verifier);

  saveTokens(tokens) {
    this.#stored.tokens = tokens;
    this.accessTokens.push(tokens.access_token);
  }

  async redirectToAuthorization(url) {
    const { searchParams } = await followTo(REDIRECT_URI, url, this.#plan.user);
    if (searchParams.get('state') !== this.#stored.state) throw new Error('the state came back changed');
    if (!searchParams.has('code')) throw new Error(`not authorized: ${searchParams}`);
    this.callback = searchParams;
  }
}

/** Runs the plan of stdin. `connect(plan)`: the client, and `signIn(run)`, which runs again after a sign-in. */
export async function runDriver(connect) {
  try {
    const plan = JSON.parse(await text(process.stdin));
    process.stdout.write(JSON.stringify(await run(plan, connect)));
    process.exit(0); // also with an open stream
  } catch (error) {
    console.error(error.stack);
    process.exit(1);
  }
}

async function run(plan, connect) {
  const { client, provider, signedIn } = await connect(plan);
  const { tools } = await signedIn(() => client.listTools());
  const results = [];
  for (const step of plan.steps) {
    if (step.waitForExpiry !== undefined) await untilExpired(provider.tokens().access_token, step.waitForExpiry);
    else results.push(textOf(await signedIn(() => client.callTool({ name: step.call, arguments: step.arguments ?? {} }))));
  }
  await client.close();
  return { tools: tools.map(({ name }) => name), results, tokens: provider.accessTokens };
}

/** Waits until the token has been expired for `leeway` seconds, as its own `exp` says. */
async function untilExpired(token, leeway) {
  const { exp } = JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));
  await sleep(Math.max(0, (exp + leeway) * 1000 - Date.now()) + 1_000);
}

export const textOf = (result) => result.content[0].text;
