// Rate limits, and the clients closest to them.

import { empty, fill, h } from "./dom.js";
import { watch } from "./live.js";
import { numberCell, table } from "./table.js";

export async function limits(main, { signal }) {
  const content = h("div", null);
  fill(main, h("h1", null, "Limits"),
    h("p", { class: "lead" }, "Rate limits: allowed, queued and refused requests since the start, and the heaviest users."), content);
  await watch("/api/limits", signal, ({ limits: all }) => {
    fill(content, all.length ? all.map(one) : empty("There are no rate limits", "limits.rates in the configuration sets limits."));
  });
}

function one(limit) {
  const counts = [["passed", limit.passed], ["waited", limit.waited], ["refused", limit.refused], ["counted apart", limit.keys]];
  return h("section", { class: "card" },
    h("h2", { class: "words" }, limit.rule),
    h("p", null, counts.map(([what, count]) => `${count} ${what}`).join(", ")),
    limit.nearest.length ? nearest(limit) : h("p", { class: "note" }, "No recent use."));
}

function nearest(limit) {
  const parts = [["client", "Client"], ["endpoint", "Endpoint"], ["server", "Server"], ["tool", "Tool"]];
  const told = parts.filter(([part]) => limit.nearest.some((use) => use[part] !== null));
  const heads = [...told.map(([, title]) => title), { text: `Used of ${limit.most}`, class: "right" }];
  return table(`Use of ${limit.rule}`, heads, limit.nearest.map((use) => h("tr", null,
    ...told.map(([part], at) => h(at ? "td" : "th", at ? { class: "words" } : { scope: "row", class: "words" }, use[part] || "not listed")),
    numberCell(use.used, String(use.used)))));
}
