// Definitions of servers that differ from the approved ones, beside these.

import { act } from "./act.js";
import { badge, empty, fill, h } from "./dom.js";
import { watch } from "./live.js";
import { mayApprove } from "./sign-in.js";

export async function pins(main, { signal }) {
  const content = h("div", { class: "approvals" });
  fill(main, h("h1", null, "Pins"),
    h("p", { class: "lead" }, "What servers say about themselves and what they offer, where it differs from the approved text."), content);
  await watch("/api/pins", signal, ({ pins: all, flags }, refresh) => {
    fill(content, compared(all, refresh), flags.length ? look(flags) : null);
  });
}

function compared(all, refresh) {
  if (all === null) return empty("Nothing is pinned", "Run fanlight pin, and set pins.mode to warn or hold.");
  if (all.definitions.length === 0) return empty("Everything is as approved", "This covers pinned servers whose lists have been read.");
  return all.definitions.map((one) => card(one, all.held, refresh));
}

/** Suspicious definitions, changed or not. */
function look(flags) {
  const line = (one) => h("li", null, badge("warn", one.what), ` ${one.kind} ${one.server}/${one.name}: ${one.text}`);
  return h("section", { class: "card" }, h("h2", null, "Suspicious"), h("ul", null, flags.map(line)));
}

function card(one, held, refresh) {
  const text = (value) => (value ? JSON.stringify(value, null, 2) : "nothing");
  const side = (head, value) => h("div", null, h("h3", null, head), h("pre", { tabIndex: 0 }, text(value)));
  return h("section", { class: "card" },
    h("h2", null, `${one.server}/${one.name} `, badge(one.what === "breaking" ? "bad" : "warn", one.what)),
    h("p", null, `A ${one.kind}. ${held ? "Clients do not see it." : "Clients see it."}`),
    one.reasons.length ? h("ul", null, one.reasons.map((reason) => h("li", null, reason))) : null,
    h("div", { class: "sides" }, side("Approved", one.approved), side("Now", one.offered)),
    one.id && mayApprove() ? approve(one, refresh) : null);
}

function approve(one, refresh) {
  const now = (event) => act([event.target], `/api/pins/${encodeURIComponent(one.id)}/approve`, "Approved", refresh);
  return h("button", { type: "button", onclick: now, "aria-label": `Approve ${one.server}/${one.name} as shown` }, "Approve");
}
