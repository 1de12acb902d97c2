// How often each tool was called in the last hour, how often that failed, and how long it took.

import { empty, h } from "./dom.js";
import { count, duration } from "./format.js";
import { isNarrow, numberCell, table } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 22;
/** Width of a minute, and of the gap after it. */
const MINUTE = 2;

/** Tools shown at first, so that the page stays short; fewer in a narrow window. */
const FIRST = { wide: 8, narrow: 6 };

/** The table of `GET /api/tools/statistics`; `all` also shows the less called ones. */
export function statistics({ tools, toolCount }, all, showAll) {
  if (tools.length === 0) return empty("No tool was called in the last hour", "This counts calls of clients and from the catalogue page.");
  const right = (text, kind = "") => ({ text, class: `right ${kind}`.trim() });
  const heads = ["Tool", "Server", right("Calls"), right("Per minute", "wide-only"), right("Errors"), right("Median", "wide-only"), right("95 %"), right("99 %", "wide-only"), "Latency", { text: "Last hour", class: "wide-only" }];
  const shown = all ? tools : tools.slice(0, isNarrow() ? FIRST.narrow : FIRST.wide);
  const more = toolCount - shown.length;
  return [
    table("Tools in the last hour", heads, shown.map(row), { compact: true }),
    more > 0 && !all ? h("p", null, h("button", { type: "button", class: "small", onclick: showAll }, `Show ${count(tools.length - shown.length)} more`)) : null,
    more > 0 && all ? h("p", { class: "note" }, `and ${count(more)} more with fewer calls`) : null,
    h("p", { class: "note" }, "Times run from sending a call to its response, without connecting. Calls that could not be sent count as errors."),
  ];
}

function row(one) {
  const isOne = one.tool !== "_OTHER";
  const traces = `#/traces?${new URLSearchParams({ server: one.backend, tool: one.tool })}`;
  return h("tr", null,
    h("th", { scope: "row", class: "words mono long" }, isOne ? h("a", { href: traces, title: "Its traces" }, one.tool) : "others"),
    h("td", null, h("span", { class: "chip" }, one.backend)),
    numberCell(one.calls, count(one.calls)),
    numberCell(one.perMinute, rate(one.perMinute), "wide-only"),
    numberCell(one.errors, errors(one), one.errors > 0 ? "error-text" : ""),
    numberCell(one.p50Ms, duration(one.p50Ms), "wide-only"),
    numberCell(one.p95Ms, duration(one.p95Ms)),
    numberCell(one.p99Ms, duration(one.p99Ms), "wide-only"),
    h("td", { class: "picture-cell", "data-sort": String(one.p95Ms ?? -1) }, histogram(one.durations)),
    h("td", { class: "picture-cell wide-only", "data-sort": String(one.calls) }, sparkline(one.callsByMinute, one.errorsByMinute)));
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

/** Bars of the calls in each minute, failed ones at the bottom. */
function sparkline(calls, failed) {
  const most = Math.max(1, ...calls);
  const svg = element("svg", { viewBox: `0 0 ${calls.length * MINUTE} ${HEIGHT}`, role: "img", class: "sparkline" });
  svg.setAttribute("aria-label", `Calls in each minute, at most ${count(Math.max(...calls))}`);
  // A minute without calls gets a dot, so that an empty hour does not look like a missing picture.
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

/** Width of a range of durations. */
const RANGE = 7;

/** Bars of calls by duration, quickest first. Each range but the last ends at `toMs`. */
function histogram(ranges) {
  const last = ranges.findLastIndex(({ calls }) => calls > 0);
  if (last < 0) return "–";
  const first = ranges.findIndex(({ calls }) => calls > 0);
  const shown = ranges.slice(first, last + 1);
  const most = Math.max(...shown.map(({ calls }) => calls));
  const words = (at) => {
    const from = first + at > 0 ? duration(ranges[first + at - 1].toMs) : "0";
    return shown[at].toMs === null ? `above ${from}` : `${from} to ${duration(shown[at].toMs)}`;
  };
  const svg = element("svg", { viewBox: `0 0 ${ranges.length * RANGE} ${HEIGHT}`, role: "img", class: "histogram" });
  svg.setAttribute("aria-label", `Latency: ${shown.map(({ calls }, at) => (calls > 0 ? `${words(at)}: ${count(calls)}` : null)).filter(Boolean).join("; ")}`);
  ranges.forEach(({ calls }, at) => {
    const height = calls > 0 ? Math.max(2, (calls / most) * HEIGHT) : 1;
    const bar = element("rect", { x: at * RANGE, width: RANGE - 1, y: HEIGHT - height, height, class: calls > 0 ? "some" : "none" });
    if (at >= first && at <= last) {
      const title = element("title", {});
      title.textContent = `${words(at - first)}: ${count(calls)}`;
      bar.append(title);
    }
    svg.append(bar);
  });
  return svg;
}

function element(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
