// One entry of the catalogue: its server's description, and a form to try it.

import { fill, h } from "../dom.js";
import { count, size } from "../format.js";
import { words } from "../form/schema.js";
import { member, view } from "../json.js";
import { runner } from "../call/runner.js";

/** The elements of an entry; `raw` is its text as clients receive it. */
export function entryDetail(one, kind, raw, { endpoint, signal, given, back }) {
  const { entry } = one;
  const meta = member(raw, "_meta");
  const run = runner(one, kind, { endpoint, signal, given });
  return [
    h("p", { class: "back" }, h("a", { href: back.href }, back.title)),
    h("h2", { class: "mono-title", tabIndex: -1 }, one.key ?? "(no name)"),
    typeof entry.title === "string" ? h("p", { class: "strong" }, words(entry.title)) : null,
    h("p", { class: "row" }, h("a", { class: "chip", href: `#/servers/${encodeURIComponent(one.backend)}` }, one.backend),
      one.original !== one.key ? h("span", { class: "note" }, "its server calls it ", h("span", { class: "mono" }, one.original)) : null,
      hints(entry.annotations), h("span", { class: "note" }, cost([one]))),
    typeof entry.description === "string" ? h("p", { class: "description" }, words(entry.description)) : null,
    run ? h("section", { class: "try" }, h("h3", null, "Try it"), run) : null,
    kind === "tools" && entry.outputSchema ? fold("Output schema", member(raw, "outputSchema")) : null,
    kind === "tools" && entry.inputSchema ? fold("Input schema", member(raw, "inputSchema")) : null,
    meta ? fold("_meta", meta) : null,
    fold("The entry as clients receive it", raw),
  ];
}

/** What definitions cost a client. */
export function cost(entries) {
  const sum = (of) => entries.reduce((all, one) => all + of(one), 0);
  return `${size(sum((one) => one.bytes))}, about ${count(sum((one) => one.estimatedTokens))} tokens`;
}

/** A foldable JSON text, rendered when it is opened, since a schema may be large. */
function fold(summary, raw) {
  const place = h("div", null);
  const open = (event) => {
    if (event.target.open && place.childElementCount === 0) fill(place, view(raw, summary));
  };
  return h("details", { ontoggle: open }, h("summary", null, summary), place);
}

function hints(annotations) {
  if (!annotations || typeof annotations !== "object") return null;
  const known = { readOnlyHint: "read only", destructiveHint: "destructive", idempotentHint: "idempotent", openWorldHint: "open world" };
  return Object.entries(known).filter(([key]) => annotations[key] === true).map(([, word]) => h("span", { class: "chip" }, word));
}
