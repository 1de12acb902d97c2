// Users who sign in to a server through Fanlight. The published MCP server wants a bearer token of
// each user, and records the token of each call. One `oidc-provider` issues the clients' tokens,
// signs users in, and issues the server's tokens.
import { createServer } from 'node:http';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, fromJsonSchema, McpServer } from '@modelcontextprotocol/server';
import { answersOk, freePort, start, stop, waitUntilReady } from '../../interop/lib/processes.mjs';
import { startAuthorizationServer } from './authorization-server.mjs';
import { Browser } from './browser.mjs';
import { call, messageIn, send } from './http.mjs';
import { fanlightBinary } from './paths.mjs';
import { signIn } from './sign-in.mjs';
import { differences } from './traffic.mjs';

const READY_TIMEOUT_MS = 20_000;
const RECOVERY_TIMEOUT_MS = 30_000;
const AT_ONCE = 200;
const USERS = ['alice', 'bob', 'carol'];
const WHO = fromJsonSchema({ type: 'object', properties: { caller: { type: 'string' } }, required: ['caller'] });

/** Runs the checks, each of which continues from the state that the previous one left. */
export async function checkUsers(checks, { work }) {
  const setting = await Setting.start(path.join(work, 'users'), path.join(work, 'logs', 'users.log'));
  const name = (text) => `users  ${text}`;
  await checks.one(name('three users sign in, and each reaches the server as themselves'), () => threeGrants(setting));
  await checks.one(name(`${AT_ONCE} calls at once refresh a token once`), () => oneRefresh(setting));
  await checks.one(name('a rotated refresh token is the next one used'), () => rotation(setting));
  await checks.one(name('a provider that is down ends no grant'), () => providerDown(setting));
  await checks.one(name('a restart in the middle of a sign-in loses nothing'), () => restartWhileSigningIn(setting));
  await checks.one(name('a grant that the provider revokes has its user sign in anew'), () => revoked(setting));
  await checks.one(name('the ledger has no call with the token of another user'), () => ledger(setting));
}

async function threeGrants(setting) {
  const found = [];
  for (const user of USERS) found.push(...(await setting.signIn(user)));
  for (let round = 0; round < 5; round += 1) {
    found.push(...(await Promise.all(USERS.map((user) => setting.works(user)))).flat());
  }
  return [...found, ...differences({ refreshes: setting.refreshes() }, { refreshes: 0 })];
}

async function oneRefresh(setting) {
  await setting.endAccess('alice');
  const answers = await Promise.all(Array.from({ length: AT_ONCE }, () => setting.works('alice')));
  return [...answers.flat(), ...differences({ refreshes: setting.refreshes() }, { refreshes: 1 })];
}

async function rotation(setting) {
  const found = [];
  // If a used refresh token came again, the provider would revoke the whole grant.
  for (let round = 0; round < 3; round += 1) {
    await setting.endAccess('alice');
    found.push(...(await setting.works('alice')));
  }
  return [...found, ...differences({ refreshes: setting.refreshes() }, { refreshes: 4 })];
}

async function providerDown(setting) {
  await setting.endAccess('carol');
  await setting.provider.pause();
  const found = await setting.works('bob');
  const answer = await setting.answer('carol');
  if (answer.result || linkIn(answer)) found.push(`without the provider carol is answered: ${JSON.stringify(answer)}`);
  await setting.provider.resume();
  const deadline = Date.now() + RECOVERY_TIMEOUT_MS;
  let last = await setting.works('carol');
  // After a failure the gateway does not retry for a moment.
  while (last.length > 0 && Date.now() < deadline) last = await setting.works('carol');
  return [...found, ...last, ...differences({ codes: setting.codes('carol') }, { codes: 1 })];
}

async function restartWhileSigningIn(setting) {
  const browser = new Browser('dave');
  const page = await setting.identified(browser, 'dave');
  const sent = await browser.submit(page, {}, { follow: false });
  await setting.restart();
  const done = await browser.follow(sent);
  const found = done.text.includes('You are signed in to desk') ? [] : [`dave is shown: ${done.text}`];
  for (const user of [...USERS, 'dave']) found.push(...(await setting.works(user)));
  return found;
}

async function revoked(setting) {
  await setting.revokeGrant('bob');
  const answer = await setting.answer('bob');
  const found = linkIn(answer) ? [] : [`bob is answered: ${JSON.stringify(answer)}`];
  for (const user of ['alice', 'carol', 'dave']) found.push(...(await setting.works(user)));
  found.push(...(await setting.signIn('bob')));
  return [...found, ...(await setting.works('bob'))];
}

async function ledger({ calls }) {
  const wrong = calls.filter(({ caller, user }) => caller !== user);
  const enough = calls.length > AT_ONCE ? [] : [`there are only ${calls.length} calls`];
  return [...enough, ...wrong.map(({ caller, user }) => `a call of ${caller} had the token of ${user}`)];
}

class Setting {
  /** The owner of each call's token, and the user who made the call. */
  calls = [];
  /** The last token of each user at the server. */
  #tokens = new Map();
  #clientTokens = new Map();

  static async start(folder, logFile) {
    const setting = new Setting();
    const [port, admin] = [await freePort(), await freePort()];
    Object.assign(setting, { folder, logFile, admin: `127.0.0.1:${admin}`, url: `http://127.0.0.1:${port}/mcp` });
    setting.server = createServer((request, response) => setting.#serve(request, response)).listen(0, '127.0.0.1');
    await once(setting.server, 'listening');
    setting.serverUrl = `http://127.0.0.1:${setting.server.address().port}/mcp`;
    const resource = {
      client_id: 'the-gateway', client_secret: crypto.randomUUID(), redirect_uris: [], response_types: [], grant_types: [],
    };
    setting.provider = await startAuthorizationServer({
      resources: [setting.url, setting.serverUrl], scopes: ['desk'], format: 'opaque', clients: [resource], rotates: true,
    });
    const { client_id: clientId, client_secret: clientSecret } = resource;
    const configuration = {
      listen: `127.0.0.1:${port}`,
      publicUrl: `http://127.0.0.1:${port}`,
      stateDir: 'state',
      admin: { listen: setting.admin },
      auth: { oauth: [{ issuer: setting.provider.issuer, introspection: { clientId, clientSecret }, signIn: {} }] },
      mcpServers: { desk: { type: 'http', url: setting.serverUrl, auth: { type: 'user' } } },
    };
    mkdirSync(folder);
    writeFileSync(path.join(folder, 'fanlight.json'), JSON.stringify(configuration, null, 2));
    await setting.#run();
    return setting;
  }

  async #run() {
    const command = [fanlightBinary(), 'run', '--config', path.join(this.folder, 'fanlight.json')];
    this.fanlight = await start(command, { logFile: this.logFile });
    await waitUntilReady(this.fanlight, 'fanlight', () => answersOk(`http://${this.admin}/healthz`), READY_TIMEOUT_MS);
  }

  async restart() {
    await stop(this.fanlight);
    await this.#run();
  }

  /** Serves the metadata, a challenge for requests without a good token, and everything else by the published SDK. */
  async #serve(request, response) {
    const metadata = `${new URL(this.serverUrl).origin}/.well-known/oauth-protected-resource/mcp`;
    if (request.url.startsWith('/.well-known/oauth-protected-resource')) {
      const document = { resource: this.serverUrl, authorization_servers: [this.provider.issuer], scopes_supported: ['desk'] };
      return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(document));
    }
    const shown = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
    const token = shown && (await this.provider.provider.AccessToken.find(shown));
    if (!token || token.aud !== this.serverUrl) {
      return response.writeHead(401, { 'www-authenticate': `Bearer resource_metadata="${metadata}"` }).end();
    }
    this.#tokens.set(token.accountId, shown);
    return toNodeHandler(createMcpHandler(() => this.#build(token.accountId), { legacy: 'stateless' }))(request, response);
  }

  #build(user) {
    const server = new McpServer({ name: 'desk', version: '1.0.0' });
    const description = 'Says whose token the call had';
    server.registerTool('whoami', { description, inputSchema: WHO }, async ({ caller }) => {
      this.calls.push({ caller, user });
      return { content: [{ type: 'text', text: user }] };
    });
    return server;
  }

  /** The message that answers a user's call. */
  async answer(user) {
    if (!this.#clientTokens.has(user)) {
      const tokens = await signIn(this.provider, { user, scope: 'desk', resource: this.url });
      this.#clientTokens.set(user, tokens.access_token);
    }
    const { message, headers } = call('whoami');
    message.params.arguments = { caller: user };
    return messageIn(await send(this.url, { token: this.#clientTokens.get(user), message, headers })) ?? {};
  }

  /** The faults in the answer to a signed-in user's call. */
  async works(user) {
    const answer = await this.answer(user);
    const text = answer.result?.content?.[0]?.text;
    return text === user ? [] : [`${user} is answered: ${JSON.stringify(answer)}`];
  }

  /** The page of a user's link, after the user has signed in at the provider to identify the browser's user. */
  async identified(browser, user) {
    const answer = await this.answer(user);
    const link = linkIn(answer);
    if (!link) throw new Error(`there is no link for ${user}: ${JSON.stringify(answer)}`);
    return browser.submit(await browser.open(link), { action: 'identify' });
  }

  async signIn(user) {
    const browser = new Browser(user);
    const page = await this.identified(browser, user);
    const done = await browser.submit(page, {});
    return done.text.includes('You are signed in to desk') ? [] : [`${user} is shown: ${done.text}`];
  }

  /** Revokes a user's last access token at the server. */
  async endAccess(user) {
    const token = await this.provider.provider.AccessToken.find(this.#tokens.get(user));
    await token.destroy();
  }

  /** Revokes a user's grant for the server. */
  async revokeGrant(user) {
    const { AccessToken, RefreshToken } = this.provider.provider;
    const { grantId } = await AccessToken.find(this.#tokens.get(user));
    await RefreshToken.revokeByGrantId(grantId);
    await AccessToken.revokeByGrantId(grantId);
  }

  refreshes = () => this.provider.requests.filter(({ grant, status }) => grant === 'refresh_token' && status === 200).length;

  /** The number of a user's sign-ins for the server. */
  codes = (user) =>
    this.provider.requests.filter(
      ({ grant, status, account, resource }) =>
        grant === 'authorization_code' && status === 200 && account === user && resource === this.serverUrl,
    ).length;
}

/** The link in an answer, by which a user signs in. */
const linkIn = (answer) => /http:\/\/127\.0\.0\.1:\d+\/connect\/[^\s"\\]+/.exec(JSON.stringify(answer))?.[0];
