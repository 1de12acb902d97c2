// The state of a server: its current activity, and why it is down.

import { badge, h } from "../dom.js";
import { clock, long } from "../format.js";

/** The kind of badge for each state, worst last. */
export const STATES = { ready: "good", idle: "calm", connecting: "busy", ejected: "bad", down: "bad", failed: "bad" };

/** The section about a server's state. */
export function stateOf(one) {
  return h("section", { class: "card", "aria-label": "State" },
    h("p", { class: "row" }, badge(STATES[one.state] ?? "calm", one.state, one.state), meaning(one)),
    one.starting?.lastLine ? h("pre", { class: "text" }, one.starting.lastLine) : null,
    one.failure ? failure(one.failure) : one.error ? h("p", { class: "error-text words" }, one.error) : null);
}

/** How long the current attempt to connect has lasted. It counts on without events. */
export function startingFor(starting) {
  return `starting for ${long((Date.now() - starting.since) / 1000)}`;
}

/** Calls back every second while a server starts. */
export function whileStarting(backends, callback, signal) {
  const timer = setInterval(() => {
    if (backends().some((one) => one?.starting)) callback();
  }, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function meaning({ state, starting }) {
  return {
    idle: "It is idle; the next request starts it.",
    connecting: starting ? `It is ${startingFor(starting)}, since ${clock(starting.since)}.` : "It is starting.",
    ready: "It answers.",
    ejected: "It is connected, but did not answer its last calls. Fanlight tries one call from time to time.",
    down: "It does not answer; Fanlight tries again.",
    failed: "It does not start; only a call or a restart tries again.",
  }[state] ?? "";
}

function failure({ what, stderr, stdout, remedy }) {
  return h("div", null,
    h("p", { class: "error-text words" }, what),
    remedy ? h("p", { class: "strong words" }, remedy) : null,
    lines("Its last lines on standard error", stderr),
    lines("Lines on standard output that were not messages", stdout));
}

function lines(title, all) {
  if (!all?.length) return null;
  return [h("h3", null, title), h("pre", { class: "text", tabIndex: 0, role: "region", "aria-label": title }, all.join("\n"))];
}
