// Two traces side by side: the spans that took longer, and other differences.

import { get } from "./api.js";
import { badge, empty, fill, h } from "./dom.js";
import { clock, duration } from "./format.js";
import { spansOf } from "./spans.js";
import { table } from "./table.js";

/** Attributes that differ between any two traces, and so are not compared. */
const OWN = new Set(["jsonrpc.request.id", "client.port", "mcp.session.id"]);

export async function compare(main, one, other, signal) {
  const load = async (id) => spansOf(await get(`/api/traces/${encodeURIComponent(id)}`, {}, signal));
  let both;
  try {
    both = await Promise.all([load(one), load(other)]);
  } catch (error) {
    if (error.status !== 404) throw error;
    fill(main, back(), h("h1", null, "Two traces"), empty("One of them has been evicted", error.message));
    return;
  }
  const pairs = aligned(...both);
  const heads = ["Span", { text: "First", class: "right" }, { text: "Second", class: "right" }, { text: "Difference", class: "right" }];
  const differences = pairs.flatMap(([a, b]) => (a && b ? different(a, b) : []));
  fill(main, back(), h("h1", { class: "mono-title" }, both[0][0].name),
    h("div", { class: "facts" }, [[one, both[0]], [other, both[1]]].map(([id, spans], index) => h("div", { class: "fact" },
      h("span", { class: "label" }, index === 0 ? "First" : "Second"),
      h("a", { class: "mono", href: `#/traces/${id}` }, id.slice(0, 8)), h("span", null, clock(Number(spans[0].startNs / 1_000_000n)))))),
    table("Spans of both traces", heads, pairs.map(row)),
    h("h2", null, "Different"),
    differences.length === 0 ? h("p", { class: "note" }, "Nothing but times and ids.")
      : table("Different attributes", ["Span", "Attribute", "First", "Second"], differences.map(([name, key, a, b]) => h("tr", null,
        h("th", { scope: "row", class: "words mono" }, name), h("td", { class: "mono" }, key),
        h("td", { class: "words mono" }, a ?? "–"), h("td", { class: "words mono" }, b ?? "–")))));
}

function back() {
  return h("p", { class: "back" }, h("a", { href: "#/traces" }, "All traces"));
}

/** Pairs of matching spans: the n-th of each kind, name and server. */
function aligned(first, second) {
  const keyed = (spans) => {
    const seen = new Map();
    return spans.map((span) => {
      const alike = JSON.stringify([span.kind, span.name, span.backend, span.depth]);
      const number = seen.get(alike) ?? 0;
      seen.set(alike, number + 1);
      return [`${alike}${number}`, span];
    });
  };
  const others = new Map(keyed(second));
  const pairs = keyed(first).map(([key, span]) => {
    const other = others.get(key);
    others.delete(key);
    return [span, other];
  });
  return [...pairs, ...[...others.values()].map((span) => [undefined, span])];
}

function row([a, b]) {
  const span = a ?? b;
  const name = h("th", { scope: "row", class: "words mono" }, span.name, " ", span.backend ? h("span", { class: "chip" }, span.backend) : null);
  name.style.paddingInlineStart = `${0.9 + Math.min(span.depth, 12) * 1.1}rem`;
  const cell = (one) => h("td", { class: "right number" }, one ? duration(one.durationMs) : "–", one?.error ? [" ", badge("bad", one.error, "down")] : null);
  const more = a && b ? b.durationMs - a.durationMs : null;
  return h("tr", null, name, cell(a), cell(b),
    h("td", { class: "right number" }, more === null ? "–" : `${more < 0 ? "−" : "+"}${duration(Math.abs(more))}`));
}

function different(a, b) {
  const [left, right] = [a, b].map(({ attributes, content }) => new Map([...attributes, ...content.map(({ kind, text }) => [kind, text])]));
  const keys = [...new Set([...left.keys(), ...right.keys()])].filter((key) => !OWN.has(key) && left.get(key) !== right.get(key));
  const rows = keys.map((key) => [a.name, key, left.get(key), right.get(key)]);
  if (a.message !== b.message) rows.push([a.name, "message", a.message || undefined, b.message || undefined]);
  return rows;
}
