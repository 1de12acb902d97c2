// The log of one server's processes.

import { get } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { clock, plural } from "./format.js";
import { repeat } from "./live.js";

export async function log(main, { rest, signal }) {
  const name = rest[0] ?? "";
  const content = h("div", null);
  fill(main,
    h("h1", null, `Log of ${name}`),
    h("p", { class: "lead" }, "Standard error of its processes, and lines on standard output that are not messages."),
    content);
  await logLines(content, name, signal);
}

/** Shows the lines of a server in an element, and adds new ones. */
export async function logLines(content, name, signal) {
  const path = `/api/servers/${encodeURIComponent(name)}/log`;
  let now = await get(path, {}, signal);
  fill(content, page(now));
  repeat(async () => {
    const next = await get(path, {}, signal);
    // Render only changes, so that a selection stays.
    if (JSON.stringify(next) !== JSON.stringify(now)) fill(content, page(next));
    now = next;
  }, signal);
}

function page(now) {
  if (!now.lines.length) return empty("Nothing was written");
  const processes = new Set(now.lines.map(({ process }) => process)).size;
  return [
    h("p", { class: "note" }, `${plural(now.lines.length, "line")} of ${processes === 1 ? "one process" : `${processes} processes`}`,
      now.droppedLines > 0 ? `; ${plural(now.droppedLines, "earlier line")} not kept` : null),
    h("pre", { class: "text", tabIndex: 0, role: "region", "aria-label": "Lines" }, now.lines.map((line) => [
      h("span", { class: "faint" }, `${clock(line.atMs)} #${line.process} ${line.stream} `), line.text, "\n"])),
  ];
}
