// The overview: the process and each server.

import { get } from "./api.js";
import { badge, empty, fill, h } from "./dom.js";
import { clock, count, duration, long, percent, plural, size } from "./format.js";
import * as live from "./live.js";
import { running } from "./running.js";
import { STATES } from "./servers/state.js";
import { statistics } from "./statistics.js";
import { isNarrow, numberCell, table } from "./table.js";
import { trouble } from "./trouble.js";

/** Running requests shown here, fewer in a narrow window; the page of traces has the others. */
const RUNNING = { wide: 5, narrow: 3 };

export async function overview(main, { signal }) {
  const ofTools = () => get("/api/tools/statistics", {}, signal);
  const [first, called] = await Promise.all([get("/api/overview", {}, signal), ofTools()]);
  const [wrong, tiles, replicas, backends, tools] = Array.from({ length: 5 }, () => h("div", null));
  tiles.className = "tiles";
  fill(main, h("h1", { class: "hidden" }, "Overview"), wrong, tiles, running(signal, isNarrow() ? RUNNING.narrow : RUNNING.wide),
    replicas, h("h2", null, "Servers"), backends, h("h2", null, "Tools in the last hour"), tools);
  let [last, statisticsNow, isAll] = [first, called, false];
  // Render only changes, so that focus and selection stay.
  const shown = new Map();
  const update = (place, now, render) => {
    const text = JSON.stringify(now);
    if (shown.get(place) === text) return;
    shown.set(place, text);
    fill(place, render());
  };
  const show = () => {
    update(wrong, [last.backends, statisticsNow], () => trouble(last, statisticsNow));
    update(tiles, { ...last, backends: last.backends.map(({ state }) => state) }, () => [...figures(last), tile("Endpoint", last.endpoint, null, "wide")]);
    update(replicas, last.replicas, () => (last.replicas ? replicasOf(last.replicas) : []));
    update(backends, last.backends, () => (last.backends.length ? list(last.backends) : empty("No server is configured")));
    update(tools, [statisticsNow, isAll], () => statistics(statisticsNow, isAll, () => {
      isAll = true;
      show();
    }));
  };
  show();
  live.repeat(async () => {
    statisticsNow = await ofTools();
    show();
  }, signal);
  live.on("overview", (now) => {
    last = now;
    show();
  }, signal);
  const timer = setInterval(() => {
    const value = tiles.querySelector("[data-uptime]");
    if (value) value.textContent = uptime(last);
  }, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function uptime(now) {
  return long((Date.now() - now.startedMs) / 1000);
}

function figures(now) {
  const usable = now.backends.filter((one) => one.state === "ready" || one.state === "idle").length;
  const allUsable = now.ready && usable === now.backends.length;
  const up = tile("Uptime", uptime(now), `version ${now.version}`);
  up.querySelector(".value").dataset.uptime = "";
  return [
    tile("Servers", `${usable} of ${count(now.backends.length)}`, now.ready ? "usable" : "usable; not ready", allUsable ? "good" : "bad"),
    tile("Sessions", count(now.sessions), now.streams > 0 ? plural(now.streams, "open stream") : "no open stream", null, "#/sessions"),
    tile("Suspended calls", count(now.suspendedCalls), "waiting for input", null, "#/sessions"),
    now.traces === undefined
      ? tile("Traces", "off", "limits.traces is 0")
      : tile("Traces", count(now.traces), `${size(now.traceBytes)} in memory`, null, "#/traces"),
    up,
  ];
}

function tile(label, value, note, kind, href) {
  const inside = [h("span", { class: "label" }, label), h("span", { class: "value" }, value), note ? h("span", { class: "note" }, note) : null];
  return href
    ? h("a", { class: `tile ${kind ?? ""}`, href }, inside)
    : h("div", { class: `tile ${kind ?? ""}` }, inside);
}

/** The group of replicas that this process belongs to. */
function replicasOf({ own, valkey, members }) {
  const state = valkey.trouble
    ? [badge("bad", "away", "away"), ` since ${clock(valkey.sinceMs)}: ${valkey.trouble}`]
    : [badge("good", "connected", "connected"), ` since ${clock(valkey.sinceMs)}`];
  const row = (one) => h("tr", null,
    h("th", { scope: "row", class: "mono whole" }, one.id, one.id === own ? h("span", { class: "note" }, " this one") : null),
    h("td", null, one.name),
    h("td", { class: "whole" }, one.address ?? "–"),
    h("td", { class: "whole" }, one.version),
    h("td", { class: "whole", "data-sort": String(one.sinceMs) }, clock(one.sinceMs), one.isEnding ? ", ending" : ""));
  return [h("h2", null, "Replicas"), h("p", null, `Valkey at ${valkey.url}: `, state),
    table("Replicas", ["Replica", "Host", "Address", "Version", "Started"], members.map(row), { compact: true })];
}

/** Server states, worst first; equal ones stay in the order of the configuration. */
const ORDER = Object.keys(STATES).reverse();

function list(backends) {
  const right = (text, kind = "") => ({ text, class: `right ${kind}`.trim() });
  const wide = (text) => ({ text, class: "wide-only" });
  const heads = ["Server", "State", wide("Era and revision"), wide("Transport"), right("Median call", "wide-only"), right("95 %"),
    right("Requests", "wide-only"), right("Errors"), wide("Last error")];
  const sorted = [...backends].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  return table("Servers", heads, sorted.map(row), { compact: true });
}

function row(one) {
  return h("tr", null,
    h("th", { scope: "row", class: "words" }, h("a", { href: `#/servers/${encodeURIComponent(one.name)}` }, one.name)),
    h("td", null, badge(STATES[one.state] ?? "calm", one.state, one.state)),
    h("td", { class: "wide-only whole" }, one.revision ? [h("span", { class: "chip" }, one.era), " ", h("span", { class: "mono whole" }, one.revision)] : "–"),
    h("td", { class: "wide-only whole" }, h("span", { class: "chip" }, one.transport), logOf(one), endpointsOf(one), versionsOf(one)),
    numberCell(one.medianMs, duration(one.medianMs), "wide-only"),
    numberCell(one.p95Ms, duration(one.p95Ms)),
    numberCell(one.requests, some(one.requests), "wide-only"),
    numberCell(one.errors, some(one.errors), one.errors > 0 ? "error-text" : ""),
    h("td", { class: "line wide-only", "data-sort": String(one.lastError?.atMs ?? 0) }, lastError(one), again(one)));
}

function logOf(one) {
  const title = "Its standard error";
  return one.transport === "stdio" ? [" ", h("a", { href: `#/log/${encodeURIComponent(one.name)}`, title }, "log")] : null;
}

/** The number of usable endpoints; the title lists each. */
function endpointsOf(one) {
  if (!one.endpoints) return null;
  const usable = one.endpoints.filter((endpoint) => endpoint.state === "ready").length;
  const title = one.endpoints.map(({ place, state, leaving }) => `${place}, ${leaving ? "leaving" : state}`).join("\n");
  return [" ", h("span", { class: "chip", title }, `${usable} of ${plural(one.endpoints.length, "endpoint")}`)];
}

/** The canary and mirror of a server; titles explain them. */
function versionsOf({ canary, mirror }) {
  return [
    canary ? [" ", h("span", { class: "chip", title: `Serves ${percent(canary.share)} of the clients (${canary.state})` }, `canary ${canary.server}`)] : null,
    mirror ? [" ", h("span", { class: "chip", title: `Gets copies of ${percent(mirror.share)} of the safe requests (${mirror.state})` }, `mirror ${mirror.server}`)] : null,
  ];
}

function lastError(one) {
  const link = one.lastError
    ? h("a", { href: `#/traces/${one.lastError.traceId}` }, one.lastError.type, " at ", clock(one.lastError.atMs))
    : null;
  return link ?? h("span", { class: "faint" }, "none");
}

/** A number, or a dash for zero. */
function some(number) {
  return number > 0 ? count(number) : "–";
}

function again(one) {
  const parts = [];
  if (one.failedConnections > 0) parts.push(plural(one.failedConnections, "failed connection"));
  if (one.restarts > 0) parts.push(plural(one.restarts, "restart"));
  if (one.reconnects > 0) parts.push(plural(one.reconnects, "reconnect"));
  return parts.length ? h("span", { class: "note" }, ` ${parts.join(", ")}`) : null;
}
