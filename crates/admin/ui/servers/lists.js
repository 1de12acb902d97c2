// The lists of a server and their size: each entry is in the context of every model that sees it.

import { empty, h } from "../dom.js";
import { count, size } from "../format.js";
import { elements, member } from "../json.js";
import { numberCell, table } from "../table.js";

const KINDS = [["tools", "Tools"], ["resources", "Resources"], ["resourceTemplates", "Templates"], ["prompts", "Prompts"]];
/** Bytes per token: roughly the average of tokenizers for English and JSON. */
const BYTES = 4;
/** The number of largest entries shown. */
const MOST = 10;

/** The sizes of a server's lists, computed from the catalogue's text. */
export function listsOf(name, raw) {
  const parsed = JSON.parse(raw);
  const lists = KINDS.filter(([kind]) => parsed[kind]).map(([kind, title]) => {
    const texts = [...elements(member(member(raw, kind), "entries"))];
    const mine = parsed[kind].entries.map((one, at) => [one, texts[at]]).filter(([one]) => one.backend === name)
      .map(([one, text]) => ({ key: one.key, bytes: bytesOf(member(text, "entry") ?? "") }));
    return { kind, title, mine, bytes: mine.reduce((sum, { bytes }) => sum + bytes, 0), outcome: parsed[kind].backends.find(({ backend }) => backend === name) };
  });
  const wrong = new Set(lists.map((one) => JSON.stringify([one.outcome?.outcome, one.outcome?.reason])));
  if (lists.length > 1 && wrong.size === 1 && lists[0].outcome?.outcome !== "ok") return empty("Its lists cannot be read", words(lists[0].outcome));
  return [
    table(`Lists of ${name}`, ["List", { text: "Entries", class: "right" }, { text: "Size", class: "right" }, { text: "Tokens, about", class: "right" }, "Outcome"], lists.map((one) => h("tr", null,
      h("th", { scope: "row" }, h("a", { href: `#/catalogue/${one.kind}` }, one.title)),
      numberCell(one.mine.length, count(one.mine.length)),
      numberCell(one.bytes, size(one.bytes)),
      numberCell(one.bytes, count(Math.ceil(one.bytes / BYTES))),
      h("td", { class: "words" }, outcome(one.outcome))))),
    h("p", { class: "note" }, `Estimated with ${BYTES} bytes per token. Models differ.`),
    largest(lists[0]),
  ];
}

function bytesOf(text) {
  return new TextEncoder().encode(text).length;
}

function outcome(one) {
  if (!one) return "–";
  return one.outcome === "ok" ? "ok" : h("span", { class: "error-text" }, words(one));
}

function words(one) {
  return one?.reason ? `${one.outcome}: ${one.reason.slice(0, 300)}` : one?.outcome;
}

function largest(tools) {
  if (!tools || tools.mine.length < 2) return null;
  const all = [...tools.mine].sort((a, b) => b.bytes - a.bytes).slice(0, MOST);
  return h("details", null, h("summary", null, `The largest of its ${count(tools.mine.length)} tools`),
    table("Largest tools", ["Tool", { text: "Size", class: "right" }, { text: "Tokens, about", class: "right" }], all.map(({ key, bytes }) => h("tr", null,
      h("th", { scope: "row", class: "mono" }, h("a", { href: `#/catalogue/tools/${encodeURIComponent(key ?? "")}` }, key ?? "(no name)")),
      numberCell(bytes, size(bytes)),
      numberCell(bytes, count(Math.ceil(bytes / BYTES)))))));
}
