// How often each tool was called in the last hour, how often that failed, and how long it took.

import { empty, h, table } from "./dom.js";
import { count, duration } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 22;
/** Width of a minute, and of the gap after it. */
const MINUTE = 2;

/** The table of `GET /api/tools/statistics`. */
export function statistics({ tools, toolCount }) {
  if (tools.length === 0) return empty("No tool was called in the last hour", "Calls of clients, and those from the catalogue, are counted here.");
  const right = (text) => ({ text, class: "right" });
  const heads = ["Tool", "Backend", right("Calls"), right("Per minute"), right("Errors"), right("Median"), right("95 %"), right("99 %"), "Last hour"];
  const more = toolCount - tools.length;
  return [
    table("Tools in the last hour", heads, tools.map(row)),
    more > 0 ? h("p", { class: "note" }, `and ${count(more)} more that were called less`) : null,
    h("p", { class: "note" }, "Times are from sending a call until its response, without connecting. Calls that could not be sent count as errors."),
  ];
}

function row(one) {
  const isOne = one.tool !== "_OTHER";
  const traces = `#/traces?${new URLSearchParams({ backend: one.backend, tool: one.tool })}`;
  return h("tr", null,
    h("th", { scope: "row", class: "words mono" }, isOne ? h("a", { href: traces, title: "Its traces" }, one.tool) : "others"),
    h("td", null, h("span", { class: "chip" }, one.backend)),
    h("td", { class: "right number" }, count(one.calls)),
    h("td", { class: "right number" }, rate(one.perMinute)),
    h("td", { class: one.errors > 0 ? "right number error-text" : "right number" }, errors(one)),
    h("td", { class: "right number" }, duration(one.p50Ms)),
    h("td", { class: "right number" }, duration(one.p95Ms)),
    h("td", { class: "right number" }, duration(one.p99Ms)),
    h("td", null, sparkline(one.callsByMinute, one.errorsByMinute)));
}

function rate(perMinute) {
  if (perMinute === 0) return "–";
  return perMinute < 10 ? perMinute.toFixed(1) : count(Math.round(perMinute));
}

function errors({ calls, errors: failed }) {
  if (failed === 0) return "–";
  const percent = (failed / calls) * 100;
  return `${count(failed)} (${percent < 1 ? "< 1" : Math.round(percent)} %)`;
}

/** Bars of the calls in each minute, the failed ones at the foot. */
function sparkline(calls, failed) {
  const most = Math.max(1, ...calls);
  const svg = element("svg", { viewBox: `0 0 ${calls.length * MINUTE} ${HEIGHT}`, role: "img", class: "sparkline" });
  svg.setAttribute("aria-label", `Calls in each minute, at most ${count(Math.max(...calls))}`);
  // Minutes without a call have a dot, so that an empty hour is not taken for a missing picture.
  const bar = (index, value, kind) => element("rect", {
    x: index * MINUTE, width: MINUTE - 0.5, class: kind,
    y: HEIGHT - Math.max(1, (value / most) * HEIGHT), height: Math.max(1, (value / most) * HEIGHT),
  });
  calls.forEach((value, index) => {
    svg.append(bar(index, value, value > 0 ? "some" : "none"));
    if (failed[index] > 0) svg.append(bar(index, failed[index], "failed"));
  });
  return svg;
}

function element(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
