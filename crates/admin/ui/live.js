// /api/events: one stream for the whole page, reopened when it ends.

import { ApiError, ask, get } from "./api.js";
import { readEvents } from "./sse.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const listeners = new Map();
const latest = new Map();
let running = false;

/** Calls back for each event of this name until `signal` aborts, and at once with the last known one. */
export function on(name, callback, signal) {
  const all = listeners.get(name) ?? new Set();
  listeners.set(name, all);
  all.add(callback);
  signal?.addEventListener("abort", () => all.delete(callback));
  if (latest.has(name)) callback(latest.get(name));
}

/**
 * Calls back repeatedly until `signal` aborts, while the page is visible, at the server's interval. A callback's error
 * means a lost connection, which the page's head shows.
 */
export function repeat(callback, signal) {
  let timer;
  const next = () => {
    timer = setTimeout(async () => {
      if (!document.hidden) await callback().catch(() => {});
      if (!signal.aborted) next();
    }, interval("refreshMs", 2000));
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  next();
}

/**
 * Reads a part of the API at once, then as `repeat` does, until `signal` aborts. `render` gets the answer, and a
 * function that reads it again at once. Changes that `stable` hides do not call `render`, so that the focus
 * stays on its button.
 */
export async function watch(path, signal, render, stable = (answer) => answer) {
  let shown;
  const read = async () => {
    const answer = await get(path, {}, signal);
    const now = JSON.stringify(stable(answer));
    if (now === shown) return;
    shown = now;
    render(answer, read);
  };
  await read();
  repeat(read, signal);
}

/** An interval that the server names in the overview, in milliseconds. */
export function interval(name, otherwise) {
  return latest.get("overview")?.page?.[name] ?? otherwise;
}

/** Opens the stream, unless it is open. */
export async function follow() {
  if (running) return;
  running = true;
  let wait = FIRST_WAIT;
  for (;;) {
    try {
      const response = await ask("/api/events");
      tell("state", "following");
      wait = FIRST_WAIT;
      await readEvents(response, (name, data) => tell(name, JSON.parse(data)));
      tell("state", "waiting");
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        running = false;
        tell("state", "locked");
        return;
      }
      tell("state", "lost");
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, LONGEST_WAIT);
    // Events may have been missed meanwhile.
    tell("missed", {});
  }
}

function tell(name, value) {
  if (name === "overview" || name === "state") latest.set(name, value);
  for (const callback of listeners.get(name) ?? []) callback(value);
}
