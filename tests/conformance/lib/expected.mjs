// expected.txt: the known losses, each with its reason. An unlisted loss fails the run, and so does
// a listed one that no longer occurs.
import { readFileSync } from 'node:fs';
import { passing } from './compare.mjs';

export class Expected {
  #entries;

  /** Lines are `run scenario check # reason`; `*` in the first three stands for any characters. */
  constructor(file) {
    this.#entries = readFileSync(file, 'utf8').split('\n').flatMap((line, index) => {
      if (line.trim() === '' || line.startsWith('#')) return [];
      const [pattern, reason] = line.split(/\s+#\s+/);
      const fields = pattern.trim().split(/\s+/);
      if (fields.length !== 3 || !reason) throw new Error(`${file}:${index + 1}: not \`run scenario check # reason\``);
      return [{ line: index + 1, text: line, reason, used: false, matches: fields.map(glob) }];
    });
  }

  /** Splits a run's losses into listed and unlisted ones, and finds listed checks that were not lost. */
  judge(run, direct, lost) {
    const listed = [];
    const unlisted = [];
    for (const loss of lost) {
      const entry = this.#find(run, loss);
      if (entry) entry.used = true;
      (entry ? listed : unlisted).push({ ...loss, reason: entry?.reason });
    }
    const isLost = ({ scenario, check }) => lost.some((loss) => loss.scenario === scenario && loss.check === check);
    const regained = [...passing(direct)].filter((check) => this.#find(run, check) && !isLost(check));
    return { listed, unlisted, regained };
  }

  /** The lines that matched no loss of any run. */
  unused() {
    return this.#entries.filter((entry) => !entry.used);
  }

  #find(run, { scenario, check }) {
    return this.#entries.find(({ matches: [a, b, c] }) => a.test(run) && b.test(scenario) && c.test(check));
  }
}

const glob = (pattern) => new RegExp(`^${pattern.split('*').map(escape).join('.*')}$`);
const escape = (text) => text.replace(/[.+?^${}()|[\]\\]/g, '\\$&');
