// Sessions of clients, and suspended calls.

import { ask } from "./api.js";
import { empty, fill, h, say } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { watch } from "./live.js";
import { mayChange } from "./sign-in.js";
import { numberCell, table } from "./table.js";

export async function sessions(main, { signal }) {
  const content = h("div", null);
  fill(main, h("h1", null, "Sessions"), content);
  await watch("/api/sessions", signal, (now) => fill(content, page(now)), stable);
}

/** The answer without constantly changing values. */
function stable(now) {
  return {
    ...now,
    sessions: now.sessions.map((one) => ({ ...one, idleMs: one.idleMs === null ? null : Math.floor(one.idleMs / 10_000) })),
    suspendedCalls: now.suspendedCalls.map((one) => ({ ...one, waitingMs: Math.floor(one.waitingMs / 10_000), leftMs: 0 })),
  };
}

function page(now) {
  const more = now.sessionCount - now.sessions.length;
  return [
    h("p", { class: "lead" }, "Sessions of legacy clients. Modern clients have none: each of their requests is independent."),
    now.sessions.length ? sessionTable(now.sessions) : empty("No session is open", "A legacy client that connects appears here."),
    more > 0 ? h("p", { class: "note" }, `and ${count(more)} more`) : null,
    h("h2", null, "Suspended calls"),
    h("p", { class: "lead" }, "Calls of modern clients that wait for input requested by a legacy server."),
    now.suspendedCalls.length ? suspendedTable(now.suspendedCalls) : empty("No call is suspended"),
  ];
}

function sessionTable(all) {
  const heads = ["Session (digest)", "Client", "Principal", "Revision", "Endpoint", "Transport", { text: "Running", class: "right" },
    { text: "Server requests", class: "right" }, { text: "Streams", class: "right" }, { text: "Idle", class: "right" }, "Traces"];
  return table("Sessions", heads, all.map((one) => h("tr", null,
    h("th", { scope: "row", class: "mono" }, one.digest ?? "–"),
    h("td", { class: "words" }, client(one.clientInfo)),
    h("td", { class: "words" }, one.principal ? `${one.principal} (${one.source})` : "–"),
    h("td", { class: "mono" }, one.revision ?? "–"),
    h("td", { class: "mono" }, one.endpoint ?? "default"),
    h("td", null, h("span", { class: "chip" }, one.transport)),
    numberCell(one.running, count(one.running)),
    numberCell(one.questions, count(one.questions)),
    numberCell(one.streams, count(one.streams)),
    numberCell(one.idleMs, one.idleMs === null ? "active" : duration(one.idleMs)),
    h("td", null, h("a", { href: one.digest ? `#/traces?text=${one.digest}` : "#/traces" }, "its traces"), end(one)))));
}

/** A button that ends a session over HTTP. A session over standard input and output ends with its process. */
function end(one) {
  if (!one.digest || !mayChange()) return null;
  const now = async (event) => {
    event.target.disabled = true;
    await ask(`/api/sessions/${one.digest}/end`, { method: "POST" }).catch((error) => say(error.message));
  };
  return [" ", h("button", { type: "button", class: "small", onclick: now, "aria-label": `End the session ${one.digest}` }, "End")];
}

function client(info) {
  if (!info || typeof info !== "object") return "–";
  const parts = [info.title ?? info.name, info.version].filter((part) => typeof part === "string");
  return parts.length ? parts.join(" ") : "–";
}

function suspendedTable(all) {
  const heads = ["Call", "Requested input", { text: "Round", class: "right" }, { text: "Waiting", class: "right" }, { text: "Expires in", class: "right" }];
  return table("Suspended calls", heads, all.map((one) => h("tr", null,
    h("th", { scope: "row" }, one.method, one.name ? [" ", h("span", { class: "mono" }, one.name)] : null),
    h("td", { class: "words" }, one.asked.join(", ") || plural(0, "request")),
    numberCell(one.round, count(one.round)),
    numberCell(one.waitingMs, duration(one.waitingMs)),
    numberCell(one.leftMs, duration(one.leftMs)))));
}
