// The calls of this tab, in memory only, since arguments may be secret. A reload forgets them.

import { badge, fill, h } from "../dom.js";
import { clock, duration } from "../format.js";

const MOST = 50;
const calls = [];
const followers = new Set();

/** Remembers a call: `{ kind, key, endpoint, given, at, durationMs, outcome, isFailed, traceId }`. */
export function remember(call) {
  calls.unshift(call);
  calls.length = Math.min(calls.length, MOST);
  for (const show of followers) show();
}

/** The calls of one entry, newest first; `use` gets the arguments of the chosen one. */
export function history(kind, key, use, signal) {
  const place = h("section", { class: "history", "aria-label": "Calls of this tab" });
  const show = () => {
    const mine = calls.filter((one) => one.kind === kind && one.key === key);
    place.hidden = mine.length === 0;
    fill(place, h("h3", null, "Calls of this tab"), h("ul", { class: "events" }, mine.map((one) => h("li", { class: "row" },
      h("span", { class: "number" }, clock(one.at)),
      badge(one.isFailed ? "bad" : "good", one.outcome, one.isFailed ? "down" : "ready"),
      h("span", { class: "note" }, duration(one.durationMs)),
      one.traceId ? h("a", { href: `#/traces/${one.traceId}` }, "trace") : null,
      h("button", { type: "button", class: "small", onclick: () => use(one.given), "aria-label": `Use the arguments of ${clock(one.at)}` }, "Use again"),
      h("span", { class: "mono faint cut" }, one.given.slice(0, 200))))));
  };
  followers.add(show);
  signal.addEventListener("abort", () => followers.delete(show));
  show();
  return place;
}
