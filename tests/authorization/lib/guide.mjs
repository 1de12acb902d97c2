// docs/guide-team.md as a reader follows it: its configurations in turn in one file, its commands,
// and clients that use the result. Free local addresses replace the page's addresses.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { answersOk, freePort, run, start, tellOfEnd, waitUntilReady } from '../../interop/lib/processes.mjs';
import { certify } from './certificate.mjs';
import { resourceAt } from './gateway.mjs';
import { call, messageIn, send } from './http.mjs';
import { checkClients } from './legs.mjs';
import { fanlightBinary, GUIDE } from './paths.mjs';
import { differences } from './traffic.mjs';

const STEP_TIMEOUT_MS = 15_000;
const POLL_MS = 50;
const KEY = /\bfanlight_\w{40,}/;

/** The texts of the guide's blocks in one language, in order. */
export function blocksOf(language) {
  const text = readFileSync(GUIDE, 'utf8');
  return [...text.matchAll(/^```(\w+)[^\n]*\n([\s\S]*?)^```$/gm)].filter(([, name]) => name === language).map(([, , block]) => block);
}

export async function checkGuide(checks, context, clients) {
  const guide = await Reader.start(context);
  for (const [what, check] of Object.entries(STEPS)) await checks.one(`guide   ${what}`, () => check(guide));
  const { resource, caFile } = guide;
  await checkClients(checks, { ...context, name: 'guide ', resource, caFile, signInOnly: true }, clients);
  await checks.one('guide   the other configurations are valid', () => guide.validateRest());
}

const STEPS = {
  async 'step 1: everyone on this machine calls'(guide) {
    await guide.write(0);
    await guide.runCommands(0);
    return differences(await guide.call(), { status: 200, text: 'noted' });
  },

  async 'step 2: keys'(guide) {
    const [ada, ci] = (await guide.runCommands(1)).map((output) => KEY.exec(output)?.[0]);
    await guide.write(1);
    await guide.until(async () => (await guide.call()).status === 401, 'keys to be asked for');
    const found = [
      ...differences(await guide.call(ada), { status: 200, text: 'noted' }),
      ...differences(await guide.call(ci), { status: 403 }),
    ];
    const listed = await guide.fanlight('keys list --file keys.yaml');
    if (!listed.includes('ada') || !listed.includes('ci') || listed.includes(ada)) found.push(`listed: ${listed}`);
    await guide.fanlight('keys revoke ci --file keys.yaml');
    await guide.until(async () => (await guide.call(ci)).status === 401, 'the key to be revoked');
    guide.key = ada;
    return [...found, ...differences(await guide.call(ada), { status: 200 })];
  },

  async 'step 3: TLS'(guide) {
    await guide.write(2);
    guide.url = guide.resource.url;
    await guide.until(async () => (await guide.call(guide.key)).status === 200, 'TLS');
    return differences(await guide.call(), { status: 401 });
  },

  async 'step 4: an issuer, beside keys'(guide) {
    await guide.write(3);
    await guide.until(async () => (await send(guide.resource.metadataUrl, { method: 'GET' })).status === 200, 'the metadata');
    return differences(await guide.call(guide.key), { status: 200, text: 'noted' });
  },
};

/** A reader who follows the guide. */
class Reader {
  configurations = blocksOf('yaml');
  commands = blocksOf('sh');

  static async start(context) {
    const guide = new Reader();
    guide.folder = path.join(context.work, 'guide');
    mkdirSync(guide.folder);
    guide.caFile = certify(guide.folder);
    guide.logFile = path.join(context.work, 'logs', 'guide.log');
    const [plain, secured] = [await freePort(), context.ports.direct];
    guide.admin = `127.0.0.1:${await freePort()}`;
    guide.url = `http://127.0.0.1:${plain}/mcp`;
    guide.resource = resourceAt(`https://localhost:${secured}`);
    guide.addresses = [
      ['https://mcp.example.com:8443', `https://localhost:${secured}`], ['0.0.0.0:8443', `127.0.0.1:${secured}`],
      ['127.0.0.1:8080', `127.0.0.1:${plain}`], ['http://127.0.0.1:9000/mcp', context.backend.url],
      ['https://id.example.com', context.jwt.issuer],
    ];
    return guide;
  }

  /** Writes the guide's configuration with this number. */
  async write(number) {
    writeFileSync(path.join(this.folder, 'fanlight.yaml'), this.#local(this.configurations[number]));
  }

  /** Runs the commands of a block and returns their outputs; servers keep running. */
  async runCommands(number) {
    const outputs = [];
    for (const line of this.commands[number].split('\n').map((line) => line.replace(/ #.*/, '').trim()).filter(Boolean)) {
      const [program, ...words] = line.split(/ +/);
      if (program !== 'fanlight') throw new Error(`no command of Fanlight: ${line}`);
      if (words[0] === 'run') await this.#serve(words);
      else outputs.push(await this.fanlight(words.join(' ')));
    }
    return outputs;
  }

  /** The output of a command. */
  fanlight(words) {
    return run([fanlightBinary(), ...words.split(/ +/)], { cwd: this.folder, timeoutMs: STEP_TIMEOUT_MS });
  }

  async #serve(words) {
    const config = path.join(this.folder, 'fanlight.yaml');
    const command = [fanlightBinary(), ...words.filter((word) => word !== 'fanlight.yaml' && word !== '--config')];
    this.process = await start([...command, '--config', config, '--admin', this.admin], { logFile: this.logFile });
    await waitUntilReady(this.process, 'fanlight', () => answersOk(`http://${this.admin}/readyz`), STEP_TIMEOUT_MS);
    tellOfEnd(this.process, 'fanlight');
  }

  /** The status and the text of a call. */
  async call(token) {
    const answer = await send(this.url, { token, ...call('note') });
    return { status: answer.status, text: messageIn(answer)?.result?.content?.[0]?.text };
  }

  /** Waits until a change of the file has taken effect. */
  async until(holds, what) {
    const deadline = Date.now() + STEP_TIMEOUT_MS;
    while (!(await holds().catch(() => false))) {
      if (Date.now() > deadline) throw new Error(`waited in vain for ${what}: ${readFileSync(this.logFile, 'utf8').slice(-2_000)}`);
      await sleep(POLL_MS);
    }
  }

  async validateRest() {
    const found = [];
    for (const [number, text] of this.configurations.entries()) {
      writeFileSync(path.join(this.folder, 'other.yaml'), this.#local(text));
      await this.fanlight('validate --config other.yaml').catch((error) => found.push(`${number + 1}: ${error.message}`));
    }
    return found;
  }

  #local = (text) => this.addresses.reduce((text, [from, to]) => text.replaceAll(from, to), text);
}
