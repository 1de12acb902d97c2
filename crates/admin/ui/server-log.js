// The log of a trace's servers from the time of the trace.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { clock, plural } from "./format.js";

/** Margins in milliseconds, since lines are read a little after they were written. */
const BEFORE = 50;
const AFTER = 500;

/** A section loaded on demand; null if no server of the trace is a process. */
export function serverLog(spans, signal) {
  const isProcess = (span) => span.backend !== undefined && span.attributes.some(([key, value]) => key === "network.transport" && value === "pipe");
  const names = [...new Set(spans.filter((span) => span.kind !== "server" && isProcess(span)).map((span) => span.backend))];
  if (names.length === 0) return null;
  const content = h("div", null, h("p", { class: "note" }, "Loading…"));
  const load = async (event) => {
    if (!event.target.open) return;
    const parts = await Promise.all(names.map((name) => part(name, spans.filter((span) => span.backend === name), signal)));
    if (!signal.aborted) fill(content, parts);
  };
  return h("details", { ontoggle: load }, h("summary", null, `Log of ${names.join(", ")} in that time`), content);
}

async function part(name, spans, signal) {
  const starts = spans.map((span) => Number(span.startNs) / 1e6);
  const from = Math.min(...starts) - BEFORE;
  const until = Math.max(...spans.map((span, index) => starts[index] + span.durationMs)) + AFTER;
  const title = h("h3", null, name);
  try {
    const { lines, droppedLines } = await get(`/api/backends/${encodeURIComponent(name)}/log`, {}, signal);
    const meant = lines.filter((line) => line.atMs >= from && line.atMs <= until);
    const isLost = droppedLines > 0 && (lines.length === 0 || lines[0].atMs > from);
    return h("section", null, title,
      isLost ? h("p", { class: "note" }, `${plural(droppedLines, "earlier line")} not kept`) : null,
      meant.length === 0
        ? h("p", { class: "note" }, "Nothing. ", h("a", { href: `#/log/${encodeURIComponent(name)}` }, "Its whole log"))
        : h("pre", { class: "text", tabIndex: 0, role: "region", "aria-label": `Lines of ${name}` }, meant.map((line) => [
          h("span", { class: "faint" }, `${clock(line.atMs)} ${line.stream} `), line.text, "\n"])));
  } catch (error) {
    return h("section", null, title, h("p", { class: "note" }, error.message));
  }
}
