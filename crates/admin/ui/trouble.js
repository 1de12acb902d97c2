// Current problems, worst first, above everything else.

import { badge, h } from "./dom.js";
import { clock, count, duration, plural } from "./format.js";
import { STATES } from "./servers/state.js";

/** Thresholds of a problem, as in deploy/alerts.yaml. */
const LIMITS = { errorShare: 0.1, errors: 3, slowMs: 10_000, startingMs: 30_000 };
/** Minutes of errors that count: older ones are no current problem. */
const MINUTES = 5;
/** The limit of problems shown. */
const MOST = 6;

/** The section for `GET /api/overview` and `GET /api/tools/statistics`. */
export function trouble(overview, statistics) {
  const all = [...overview.backends.flatMap(ofBackend), ...statistics.tools.flatMap(ofTool)].sort((a, b) => a.rank - b.rank);
  const usable = overview.backends.filter((one) => one.state === "ready" || one.state === "idle").length;
  const total = plural(overview.backends.length, "server");
  if (all.length === 0) {
    return h("section", { class: "trouble none", "aria-label": "Trouble" }, badge("good", "no trouble", "ready"), h("span", { class: "note" }, `${usable} of ${total} usable`));
  }
  const entry = ({ kind, word, picture, href, name, text }) => h("li", null,
    h("a", { href, class: "words mono" }, name), badge(kind, word, picture), h("span", { class: "words" }, text));
  return h("section", { class: "trouble", "aria-label": "Trouble" },
    h("h2", null, "Trouble"), h("p", { class: "note" }, `${usable} of ${total} usable`),
    h("ul", null, all.slice(0, MOST).map(entry)),
    all.length > MOST ? h("p", { class: "note" }, `and ${count(all.length - MOST)} more: see servers and tools below`) : null);
}

function ofBackend(one) {
  const href = `#/servers/${encodeURIComponent(one.name)}`;
  const about = { href, name: one.name };
  if (["down", "failed", "ejected"].includes(one.state)) {
    const isRefused = one.failure?.kind === "unauthorized";
    const last = one.lastError ? ` (${one.lastError.type}, ${clock(one.lastError.atMs)})` : "";
    const why = one.failure?.what ?? one.error ?? "";
    return [{ ...about, rank: one.state === "ejected" ? 1 : 0, kind: "bad", word: isRefused ? "refused" : one.state, picture: "down", text: `${why.slice(0, 200)}${last}` }];
  }
  const since = one.starting?.since;
  if (since !== undefined && Date.now() - since >= LIMITS.startingMs) {
    return [{ ...about, rank: 4, kind: STATES.connecting, word: "starting", picture: "connecting", text: `since ${clock(since)}` }];
  }
  return [];
}

function ofTool(one) {
  const about = { href: `#/traces?${new URLSearchParams({ server: one.backend, tool: one.tool, error: "true" })}`, name: `${one.backend} ${one.tool}` };
  const sum = (minutes) => minutes.slice(-MINUTES).reduce((all, here) => all + here, 0);
  const [calls, errors] = [sum(one.callsByMinute), sum(one.errorsByMinute)];
  const found = [];
  if (errors >= LIMITS.errors && errors / calls >= LIMITS.errorShare) {
    found.push({ ...about, rank: 2, kind: "bad", word: "errors", picture: "down", text: `${count(errors)} of ${plural(calls, "call")} failed in the last ${MINUTES} minutes` });
  }
  if (calls > 0 && one.p95Ms >= LIMITS.slowMs) {
    found.push({ ...about, rank: 3, kind: "busy", word: "slow", picture: "connecting", text: `one call in twenty takes ${duration(one.p95Ms)} or more` });
  }
  return found;
}
