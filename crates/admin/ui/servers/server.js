// One server: state, history, description, lists, processes, log and buttons.

import { ask, get, text } from "../api.js";
import { badge, empty, fill, h, say } from "../dom.js";
import { clock, count, duration, long, percent } from "../format.js";
import { words } from "../form/schema.js";
import { view } from "../json.js";
import * as live from "../live.js";
import { logLines } from "../log.js";
import { mayChange, onlyOperators } from "../sign-in.js";
import { numberCell, table } from "../table.js";
import { listsOf } from "./lists.js";
import { STATES, stateOf, whileStarting } from "./state.js";

/** The fields whose change means that a server's description may have changed. */
const REASONS_TO_ASK = ["state", "era", "revision", "restarts", "reconnects", "error"];

export async function server(main, { rest: [name], signal }) {
  const [overview, config] = await Promise.all([get("/api/overview", {}, signal), get("/api/config", {}, signal)]);
  const one = overview.backends.find((backend) => backend.name === name);
  const configured = Object.hasOwn(config.mcpServers ?? {}, name) ? config.mcpServers[name] : undefined;
  const back = h("p", { class: "back" }, h("a", { href: "#/servers" }, "All servers"));
  if (!one && !configured) return void fill(main, back, h("h1", null, name), empty("No server has this name"));
  if (!one) return void fill(main, back, h("h1", null, name), empty("It is switched off"), buttons(name, false));
  const [state, figures, others, differing, about, history, lists, children, log] = Array.from({ length: 9 }, () => h("div", null));
  fill(main, back, h("h1", null, name), state, buttons(name, true), figures, others, differing,
    h("h2", null, "Its own description"), about,
    h("h2", null, "Lists"), lists,
    h("h2", null, "History"), history,
    one.transport === "stdio" ? [h("h2", null, "Processes"), children, h("h2", null, "Log"), log] : null);
  let latest;
  const show = (now) => {
    const next = now.backends.find((backend) => backend.name === name) ?? null;
    if (JSON.stringify(next) === JSON.stringify(latest)) return;
    const isAnother = !latest || !next || REASONS_TO_ASK.some((field) => latest[field] !== next[field]);
    latest = next;
    fill(state, latest ? stateOf(latest) : empty("It is gone"));
    if (latest) fill(figures, facts(latest));
    if (latest) fill(others, versions(latest));
    if (isAnother) more();
  };
  // Details that no event carries. They are read after a change of state, and regularly for the
  // processes.
  let known = "";
  const more = async () => {
    try {
      const details = await get(`/api/backends/${encodeURIComponent(name)}`, {}, signal);
      // Render only changes, so that open parts stay open.
      if (JSON.stringify(details) === known) return;
      known = JSON.stringify(details);
      fill(about, described(details.description));
      fill(differing, differences(details.differences));
      fill(history, changes(details.history));
      fill(children, processes(details.processes));
    } catch (error) {
      if (!signal.aborted) fill(about, h("p", { class: "note" }, error.message));
    }
  };
  live.on("overview", show, signal);
  live.repeat(more, signal);
  show(overview);
  whileStarting(() => [latest], () => fill(state, stateOf(latest)), signal);
  const catalogue = async () => {
    fill(lists, h("p", { class: "note" }, "Asking the servers…"));
    try {
      fill(lists, listsOf(name, await text("/api/catalogue", signal)));
    } catch (error) {
      if (!signal.aborted) fill(lists, h("p", { class: "note" }, error.message));
    }
  };
  catalogue();
  if (one.transport === "stdio") logLines(log, name, signal).catch((error) => signal.aborted || fill(log, h("p", { class: "note" }, error.message)));
}

function facts(one) {
  const fact = (label, value) => h("div", { class: "fact" }, h("span", { class: "label" }, label), h("span", { class: "number" }, value));
  const health = one.requests > 0 ? `${count(one.errors)} of ${count(one.requests)} (${Math.round((one.errors / one.requests) * 100)} %)` : "no request yet";
  return h("div", { class: "facts card" },
    fact("Era", one.era ?? "not known yet"), fact("Revision", one.revision ?? "–"), fact("Transport", one.transport),
    fact("Failed requests", health), fact("Median", duration(one.medianMs)), fact("95 %", duration(one.p95Ms)),
    fact("Restarts", count(one.restarts)), fact("Reconnects", count(one.reconnects)),
    h("div", { class: "fact end" }, h("a", { href: `#/traces?server=${encodeURIComponent(one.name)}` }, "Its traces")));
}

/** The canary and the mirror of a server. */
function versions({ canary, mirror }) {
  if (!canary && !mirror) return null;
  const to = ({ server, state }) => [h("a", { href: `#/servers/${encodeURIComponent(server)}` }, server), " ", badge(STATES[state] ?? "calm", state, state)];
  return [
    h("h2", null, "Other versions"),
    canary ? h("p", null, to(canary), ` serves ${percent(canary.share)} of the clients.`) : null,
    mirror ? h("p", null, to(mirror), ` gets copies of ${percent(mirror.share)} of the safe requests: ${count(mirror.same)} answered the same, `,
      `${count(mirror.different)} differently, ${count(mirror.failed)} not, ${count(mirror.dropped)} not sent.`) : null,
  ];
}

/** The mirror's latest differing answers. Their texts come from servers. */
function differences(all) {
  if (!all?.length) return null;
  return [h("h3", null, "Answers that differed"),
    table("Answers of the mirror that differed, newest first", ["When", "Request", "What differs"], all.map((one) => h("tr", null,
      h("th", { scope: "row", class: "number" }, one.traceId ? h("a", { href: `#/traces/${one.traceId}` }, clock(one.atMs)) : clock(one.atMs)),
      h("td", { class: "words" }, one.method, one.item ? ` ${one.item}` : ""),
      h("td", { class: "words mono" }, one.lines.map((line) => h("div", null, line))))))];
}

function buttons(name, isOn) {
  if (!mayChange()) return onlyOperators("restart and switch it");
  const button = (action, label) => h("button", { type: "button", onclick: async (event) => {
    event.target.disabled = true;
    try {
      await ask(`/api/servers/${encodeURIComponent(name)}/${action}`, { method: "POST" });
      say(`${name}: ${action}`);
      if (action !== "restart") dispatchEvent(new HashChangeEvent("hashchange"));
    } catch (error) {
      say(error.message);
    } finally {
      event.target.disabled = false;
    }
  } }, label);
  return h("p", { class: "row" }, isOn ? [button("restart", "Restart"), button("disable", "Disable")] : button("enable", "Enable"),
    h("span", { class: "note" }, "until Fanlight is restarted"));
}

/** The description of a server, with the server's own texts. */
function described(description) {
  if (!description) return h("p", { class: "note" }, "Known once it is connected.");
  const info = description.serverInfo ?? description._meta?.["io.modelcontextprotocol/serverInfo"] ?? {};
  const capabilities = Object.entries(description.capabilities ?? {}).flatMap(([capability, parts]) =>
    [capability, ...Object.entries(parts ?? {}).filter(([, on]) => on !== false).map(([part]) => `${capability}.${part}`)]);
  return [
    typeof info.name === "string" ? h("p", null, h("span", { class: "strong" }, words(info.title ?? info.name)), typeof info.version === "string" ? ` ${info.version.slice(0, 100)}` : null) : null,
    h("p", { class: "row" }, h("span", { class: "label" }, "Capabilities"), capabilities.length ? capabilities.slice(0, 60).map((one) => h("span", { class: "chip" }, one)) : "none"),
    typeof description.instructions === "string" ? [h("h3", null, "Instructions"), h("p", { class: "description" }, words(description.instructions))] : null,
    h("details", null, h("summary", null, "Its description"), view(JSON.stringify(description), "Description")),
  ];
}

function processes(running) {
  if (running.length === 0) return h("p", { class: "note" }, "None runs.");
  return table("Running processes", [{ text: "Number in the log", class: "right" }, { text: "Process id", class: "right" }, "Since"], running.map((one) => h("tr", null,
    h("th", { scope: "row", class: "right number" }, one.process),
    numberCell(one.id, one.id === null ? "–" : String(one.id)),
    h("td", { class: "number" }, clock(one.sinceMs)))));
}

function changes(history) {
  if (!history?.length) return h("p", { class: "note" }, "No changes since Fanlight started.");
  return table("Changes of its state, newest first", ["When", "State", { text: "For", class: "right" }, "Why"], [...history].reverse().map((one, at, all) => h("tr", null,
    h("th", { scope: "row", class: "number" }, clock(one.atMs)),
    h("td", null, badge(STATES[one.state] ?? "calm", one.state, one.state)),
    numberCell(at === 0 ? 0 : all[at - 1].atMs - one.atMs, at === 0 ? "now" : long((all[at - 1].atMs - one.atMs) / 1000)),
    h("td", { class: "words" }, one.error ?? "", one.times > 1 ? h("span", { class: "note" }, ` ${count(one.times)} attempts`) : null))));
}
