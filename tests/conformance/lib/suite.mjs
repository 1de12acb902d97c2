// Runs the official suite and reads its results. A report maps scenarios to maps from check to
// status: SUCCESS, WARNING, FAILURE or SKIPPED. The suite's INFO is not a check.
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { run } from '../../interop/lib/processes.mjs';
import { NODE, ROOT } from './paths.mjs';

const RUN_TIMEOUT_MS = 5 * 60_000;
const SCENARIO_TIMEOUT_MS = 45_000;
const CLIENT_TIMEOUT_MS = 20_000;
const LIST_TIMEOUT_MS = 20_000;
const LOOPBACK = path.join(ROOT, 'lib/loopback.mjs');
/** If a check is reported more than once, the worst status is used. */
const WORST_LAST = ['SKIPPED', 'SUCCESS', 'WARNING', 'FAILURE'];

export class Suite {
  #cli;

  /** `folder` is the installed package. */
  constructor(folder) {
    this.#cli = path.join(folder, 'dist/index.js');
    this.version = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')).version;
  }

  /** The server scenarios that apply to a revision, none if the suite does not know it; without one, all with their tags. */
  async serverScenarios(revision) {
    const filter = revision ? ['--spec-version', revision] : [];
    const list = [NODE, this.#cli, 'list', '--server', ...filter];
    const text = await run(list, { timeoutMs: LIST_TIMEOUT_MS }).catch((error) => {
      if (error.message.includes('Unknown spec version')) return '';
      throw error;
    });
    return [...text.matchAll(/^\s+- (\S+)(?: \[(.*)\])?$/gm)].map(([, name, tags]) => ({ name, tags: tags ?? '' }));
  }

  /**
   * Grades the server at `url`. One process runs all scenarios; a scenario without a result (a crash, a hang) is run
   * again alone. `out` is a folder for the suite's files.
   */
  async gradeServer(url, { revision, scenarios, extensions, out }) {
    const target = ['server', '--url', url, '--spec-version', revision];
    if (scenarios.length > 1) {
      await this.#run([...target, '--suite', 'all', '-o', out], RUN_TIMEOUT_MS);
    }
    const missing = scenarios.filter((name) => !readChecks(out, `server-${name}`));
    const alone = [...missing.map((name) => [name]), ...extensions.map((name) => [name, '--force'])];
    for (const [name, ...flags] of alone) {
      await this.#run([...target, '--scenario', name, ...flags, '-o', out], SCENARIO_TIMEOUT_MS);
    }
    const report = new Map();
    for (const name of [...scenarios, ...extensions]) report.set(name, toReport(readChecks(out, `server-${name}`)));
    return report;
  }

  /** Grades the client that `command` starts, in ROOT; the suite appends the URL of its mock server. */
  async gradeClient(command, { revision, scenario, out, env }) {
    const target = ['client', '--command', command, '--scenario', scenario, '--spec-version', revision];
    // Scenarios of extensions belong to no revision.
    const rest = ['--timeout', String(CLIENT_TIMEOUT_MS), '--force', '-o', out];
    const outcome = await this.#run([...target, ...rest], SCENARIO_TIMEOUT_MS, env);
    const report = toReport(readChecks(out, scenario));
    // A client that exits with an error fails the scenario, whatever the checks report.
    report.set('exit', { status: outcome === undefined ? 'SUCCESS' : 'FAILURE', message: outcome });
    return report;
  }

  /** Runs the CLI; its exit code only says that something failed, and the checks say what. */
  async #run(args, timeoutMs, env = {}) {
    mkdirSync(args.at(-1), { recursive: true });
    const environment = { ...process.env, NO_COLOR: '1', ...env };
    try {
      const command = [NODE, '--no-deprecation', '--import', LOOPBACK, this.#cli, ...args];
      await run(command, { timeoutMs, env: environment, cwd: ROOT });
      return undefined;
    } catch (error) {
      return error.message;
    }
  }
}

/** The newest checks.json of a scenario, or undefined. Folders are named for the scenario and the time. */
function readChecks(out, name) {
  if (!existsSync(out)) return undefined;
  const folder = readdirSync(out, { recursive: true })
    .filter((entry) => path.basename(entry) === 'checks.json')
    .map((entry) => path.dirname(entry))
    .filter((entry) => entry.startsWith(`${name}-`) && /^\d{4}-\d\d-\d\dT[\d-]+Z$/.test(entry.slice(name.length + 1)))
    .sort()
    .at(-1);
  return folder && JSON.parse(readFileSync(path.join(out, folder, 'checks.json'), 'utf8'));
}

function toReport(checks) {
  const report = new Map();
  if (!checks) return report.set('ran', { status: 'FAILURE', message: 'the suite wrote no result' });
  report.set('ran', { status: 'SUCCESS' });
  const ids = new Map(checks.map((check) => [`${check.id}#${check.name}`, check.id]));
  const uses = [...ids.values()].reduce((count, id) => count.set(id, (count.get(id) ?? 0) + 1), new Map());
  for (const { id, name, status, errorMessage, description } of checks) {
    // An error of the harness is no error of the server.
    if (status === 'INFO' || id === 'wire-schema-harness-error') continue;
    const key = uses.get(id) > 1 ? `${id}#${name.replaceAll(' ', '_')}` : id;
    const known = report.get(key);
    if (known && WORST_LAST.indexOf(known.status) >= WORST_LAST.indexOf(status)) continue;
    report.set(key, { status, message: errorMessage ?? description });
  }
  return report;
}
