// Counts and prints: a line for each group of checks, its differences below it, and a last line
// with the totals.
import os from 'node:os';

const PARALLEL = Math.min(4, os.availableParallelism());
const SHOWN_DIFFERENCES = 12;

export class Checks {
  #passed = 0;
  #failed = 0;

  /** One group for each item, some at a time, printed in order. `check` returns its differences; throwing fails it. */
  async each(items, nameOf, check) {
    const waiting = [...items.entries()];
    const outcomes = items.map(withResolvers);
    const worker = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const [index, item] = next;
        outcomes[index].resolve(await differencesOf(() => check(item)));
      }
    };
    const workers = Array.from({ length: PARALLEL }, worker);
    for (const [index, item] of items.entries()) this.#print(nameOf(item), await outcomes[index].promise);
    await Promise.all(workers);
  }

  one(name, check) {
    return this.each([check], () => name, (item) => item());
  }

  /** Prints the totals; true if nothing failed and something passed. */
  conclude() {
    console.log(`${this.#passed} passed, ${this.#failed} failed`);
    return this.#failed === 0 && this.#passed > 0;
  }

  #print(name, differences) {
    if (differences.length === 0) this.#passed += 1;
    else this.#failed += 1;
    console.log(`${differences.length === 0 ? 'ok  ' : 'FAIL'}  ${name}`);
    for (const difference of differences.slice(0, SHOWN_DIFFERENCES)) {
      console.log(`        ${difference.replaceAll('\n', '\n        ')}`);
    }
    if (differences.length > SHOWN_DIFFERENCES) {
      console.log(`        … and ${differences.length - SHOWN_DIFFERENCES} more`);
    }
  }
}

async function differencesOf(check) {
  try {
    return await check();
  } catch (error) {
    return [error.message];
  }
}

function withResolvers() {
  const resolvers = {};
  resolvers.promise = new Promise((resolve) => (resolvers.resolve = resolve));
  return resolvers;
}
