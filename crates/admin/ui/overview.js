// The overview: the process and each backend.

import { get } from "./api.js";
import { badge, empty, fill, h, table } from "./dom.js";
import { clock, count, duration, long, plural, size } from "./format.js";
import * as live from "./live.js";
import { statistics } from "./statistics.js";

const STATES = { ready: "good", idle: "calm", connecting: "busy", down: "bad", failed: "bad" };

export async function overview(main, { signal }) {
  const ofTools = () => get("/api/tools/statistics", {}, signal);
  const [first, called] = await Promise.all([get("/api/overview", {}, signal), ofTools()]);
  const tiles = h("div", { class: "tiles" });
  const backends = h("div", null);
  const tools = h("div", null);
  fill(main, h("h1", null, "Overview"), tiles, h("h2", null, "Backends"), backends, h("h2", null, "Tools in the last hour"), tools);
  let shown = "";
  const showTools = (now) => {
    // Without a change nothing is rendered, so that focus and selection stay.
    if (JSON.stringify(now) === shown) return;
    shown = JSON.stringify(now);
    fill(tools, statistics(now));
  };
  showTools(called);
  live.repeat(async () => showTools(await ofTools()), signal);
  let last = first;
  const show = (now) => {
    last = now;
    fill(tiles, tile("Endpoint", now.endpoint, null, "wide"), ...figures(now));
    fill(backends, now.backends.length ? list(now.backends) : empty("No backend is configured"));
  };
  show(first);
  live.on("overview", show, signal);
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
  const up = tile("Uptime", uptime(now), `version ${now.version}`);
  up.querySelector(".value").dataset.uptime = "";
  return [
    tile("Ready", now.ready ? "yes" : "no", `${usable} of ${plural(now.backends.length, "backend")} usable`, now.ready ? "good" : "bad"),
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

function list(backends) {
  const heads = ["Backend", "State", "Era and revision", "Transport",
    { text: "Median call", class: "right" }, { text: "95 %", class: "right" }, { text: "Requests", class: "right" },
    { text: "Errors", class: "right" }, "Last error"];
  return table("Backends", heads, backends.map(row));
}

function row(one) {
  return h("tr", null,
    h("th", { scope: "row" }, h("a", { href: `#/traces?backend=${encodeURIComponent(one.name)}`, title: "Its traces" }, one.name)),
    h("td", null, badge(STATES[one.state] ?? "calm", one.state, one.state)),
    h("td", null, one.revision ? [h("span", { class: "chip" }, one.era), " ", h("span", { class: "mono whole" }, one.revision)] : "–"),
    h("td", null, h("span", { class: "chip" }, one.transport), logOf(one)),
    h("td", { class: "right number" }, duration(one.medianMs)),
    h("td", { class: "right number" }, duration(one.p95Ms)),
    h("td", { class: "right number" }, some(one.requests)),
    h("td", { class: one.errors > 0 ? "right number error-text" : "right number" }, some(one.errors)),
    h("td", { class: "words" }, lastError(one), again(one)));
}

function logOf(one) {
  const title = "What its process wrote to standard error";
  return one.transport === "stdio" ? [" ", h("a", { href: `#/log/${encodeURIComponent(one.name)}`, title }, "log")] : null;
}

function lastError(one) {
  const link = one.lastError
    ? h("a", { href: `#/traces/${one.lastError.traceId}` }, one.lastError.type, " at ", clock(one.lastError.atMs))
    : null;
  if (one.error) return [h("span", { class: "error-text" }, one.error), link ? [" ", link] : null];
  return link ?? h("span", { class: "faint" }, "none");
}

/** A number, or a dash where there was nothing. */
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
