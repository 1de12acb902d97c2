// The list of all servers, with links to their pages.

import { get } from "../api.js";
import { badge, empty, fill, h } from "../dom.js";
import { count, duration } from "../format.js";
import * as live from "../live.js";
import { numberCell, table } from "../table.js";
import { server } from "./server.js";
import { STATES, startingFor, whileStarting } from "./state.js";

export async function servers(main, at) {
  if (at.rest.length > 0) return server(main, at);
  const first = await get("/api/overview", {}, at.signal);
  const place = h("div", null);
  fill(main, h("h1", null, "Servers"), place);
  let shown = [];
  const render = () => fill(place, shown.length ? list(shown) : empty("No server is configured"));
  const show = ({ backends }) => {
    // Render only changes, so that focus and selection stay.
    if (JSON.stringify(backends) === JSON.stringify(shown)) return;
    shown = backends;
    render();
  };
  render();
  show(first);
  live.on("overview", show, at.signal);
  whileStarting(() => shown, () => place.contains(document.activeElement) || render(), at.signal);
}

function list(backends) {
  const heads = ["Server", "State", { text: "Era and revision", class: "wide-only" }, { text: "Transport", class: "wide-only" }, { text: "Median", class: "right" }, { text: "Requests", class: "right" }, { text: "Errors", class: "right" }];
  return table("Servers", heads, backends.map((one) => h("tr", null,
    h("th", { scope: "row" }, h("a", { href: `#/servers/${encodeURIComponent(one.name)}` }, one.name)),
    h("td", null, badge(STATES[one.state] ?? "calm", one.state, one.state), why(one)),
    h("td", { class: "wide-only" }, one.revision ? [h("span", { class: "chip" }, one.era), " ", h("span", { class: "mono whole" }, one.revision)] : "–"),
    h("td", { class: "wide-only" }, h("span", { class: "chip" }, one.transport)),
    numberCell(one.medianMs, duration(one.medianMs)),
    numberCell(one.requests, count(one.requests)),
    numberCell(one.errors, count(one.errors), one.errors > 0 ? "error-text" : ""))), { compact: true });
}

/** The progress of a start, or the reason why the last one failed. */
function why({ starting, error, failure }) {
  const text = starting ? [startingFor(starting), starting.lastLine].filter(Boolean).join(": ") : failure?.what ?? error;
  if (!text) return null;
  return [h("p", { class: "note words" }, text.slice(0, 300)), !starting && failure?.remedy ? h("p", { class: "note words strong" }, failure.remedy) : null];
}
