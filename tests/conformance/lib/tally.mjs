// Counts and prints: a line for each run, its losses below it, and a last line with the totals.
import { losses, passing, shortcomings } from './compare.mjs';

const SHOWN_MESSAGE = 160;

export class Tally {
  #expected;
  #passed = 0;
  #failed = 0;
  #listed = new Map();
  #since = Date.now();

  constructor(expected) {
    this.#expected = expected;
  }

  /**
   * A run without Fanlight: every check must pass. Passing checks are not counted, since they show nothing about
   * Fanlight.
   */
  direct(run, report) {
    const { listed, unlisted } = this.#expected.judge(run, new Map(), shortcomings(report));
    this.#failed += unlisted.length;
    this.#print(run, `${scenariosPassing(report)} of ${report.size} scenarios`, listed, unlisted, []);
  }

  /** A run of Fanlight itself: every check must pass. */
  alone(run, report) {
    const { listed, unlisted, regained } = this.#expected.judge(run, new Map(), shortcomings(report));
    const kept = [...passing(report)].length;
    this.#passed += kept;
    this.#failed += unlisted.length + regained.length;
    this.#print(run, `${scenariosPassing(report)} of ${report.size} scenarios, ${kept} checks`, listed, unlisted, regained);
  }

  /** A run through Fanlight: every check must have its direct status, or be listed as a loss. */
  through(run, direct, report) {
    const lost = losses(direct, report);
    const { listed, unlisted, regained } = this.#expected.judge(run, direct, lost);
    const kept = [...passing(direct)].length - lost.filter(({ was }) => was === 'SUCCESS').length;
    this.#passed += kept;
    this.#failed += unlisted.length + regained.length;
    for (const { reason } of listed) this.#listed.set(reason, (this.#listed.get(reason) ?? 0) + 1);
    const lossless = [...direct.keys()].filter((name) => !lost.some(({ scenario }) => scenario === name));
    const kind = `${lossless.length} of ${direct.size} scenarios kept whole, ${kept} checks`;
    this.#print(run, kind, listed, unlisted, regained);
  }

  /** Fails for each line of expected.txt that matched nothing; only useful after a complete run. */
  unused() {
    for (const { line, text } of this.#expected.unused()) {
      this.#failed += 1;
      console.log(`FAIL  expected.txt:${line} matches no loss; remove it: ${text.trim()}`);
    }
  }

  /** Prints the totals; true if nothing failed and something passed. */
  conclude() {
    for (const [reason, count] of this.#listed) console.log(`listed  ${String(count).padStart(4)}  ${reason}`);
    console.log(`${this.#passed} passed, ${this.#failed} failed`);
    return this.#failed === 0 && this.#passed > 0;
  }

  #print(run, kind, listed, unlisted, regained) {
    const mark = unlisted.length + regained.length === 0 ? 'ok  ' : 'FAIL';
    const [since, now] = [this.#since, Date.now()];
    this.#since = now;
    const known = listed.length > 0 ? `, ${listed.length} listed as lost` : '';
    console.log(`${mark}  ${run}: ${kind}${known} (${Math.round((now - since) / 1000)} s)`);
    for (const { scenario, check, was, is, message } of unlisted) {
      const why = message ? `: ${message.replaceAll(/\s+/g, ' ').slice(0, SHOWN_MESSAGE)}` : '';
      console.log(`        ${scenario} ${check}  ${was} -> ${is}${why}`);
    }
    for (const { scenario, check } of regained) {
      console.log(`        ${scenario} ${check}  is listed in expected.txt but no longer lost; remove the line`);
    }
  }
}

function scenariosPassing(report) {
  const passes = (checks) => [...checks.values()].every(({ status }) => status === 'SUCCESS' || status === 'SKIPPED');
  return [...report.values()].filter(passes).length;
}
