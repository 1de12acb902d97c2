// The audit log: who called what, and how often.

import { get } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { filterFields } from "./filter-fields.js";
import { clock, count, duration } from "./format.js";
import { numberCell, table } from "./table.js";

const DAYS = [["1", "last 24 hours"], ["7", "last 7 days"], ["", "everything"]];
const OUTCOMES = ["", "ok", "tool_error", "error", "refused", "cancelled", "not_run", "decided", "asked", "approved"];

export async function audit(main, { signal }) {
  const filter = { principal: "", tool: "", outcome: "", days: "1", day: "" };
  const content = h("div", null);
  const used = h("div", null);
  const { select, input } = filterFields(filter, show);
  fill(main, h("h1", null, "Audit"),
    h("p", { class: "lead" }, "Who called what. fanlight audit verify detects changes of the audit log."),
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
      input("principal", "Who"), input("tool", "Tool or resource", { placeholder: "server/name, * for any" }),
      select("outcome", "Outcome", OUTCOMES.map((name) => [name, name || "all"])), select("days", "Time", DAYS),
      input("day", "Or one day (UTC)", { type: "date" })),
    content, h("h2", null, "Use"), used);

  function parameters() {
    const { principal, tool, outcome, days, day } = filter;
    if (day) {
      const since = Date.parse(`${day}T00:00:00Z`);
      return { principal, tool, outcome, since, until: since + 86_399_999 };
    }
    return { principal, tool, outcome, since: days ? Date.now() - Number(days) * 86_400_000 : "" };
  }

  async function show() {
    const asked = parameters();
    const [{ recording, lost, notExported, entries }, { usage }] = await Promise.all([
      get("/api/audit", { ...asked, limit: 200 }, signal), get("/api/usage", asked, signal)]);
    if (!recording) {
      fill(content, empty("There is no audit log", "Set stateDir or audit.file, and audit.keepFor to a time."));
      fill(used);
      return;
    }
    fill(content, ...losses(lost, notExported),
      entries.length ? lines(entries) : empty("Nothing fits", "Try another time or filter."));
    fill(used, usage.length ? uses(usage) : empty("No calls", ""));
  }
  await show();
}

function losses(lost, notExported) {
  const told = [[lost, "could not be written"], [notExported, "did not reach the collector"]];
  return told.filter(([number]) => number > 0).map(([number, what]) =>
    h("p", { class: "trouble", role: "status" }, `${count(number)} entries of this process ${what}; the log says why.`));
}

function lines(all) {
  return table("Audit", ["Time", "Who", "What", "About", "Outcome", { text: "Took", class: "right" }], all.map((one) => {
    const about = one.item ? `${one.server}/${one.item}` : [one.server, one.shown].filter(Boolean).join(" ");
    const why = [one.reason, ...(one.policies ?? [])].filter(Boolean).join(", ");
    const took = one.durationUs === undefined ? undefined : one.durationUs / 1000;
    return h("tr", null,
      h("th", { scope: "row" }, clock(Date.parse(one.time))),
      h("td", { class: "words" }, one.principal ?? one.who ?? "–"),
      h("td", { class: "words" }, one.action ?? one.event),
      h("td", { class: "words" }, one.trace ? h("a", { href: `#/traces/${encodeURIComponent(one.trace)}` }, about || "–") : about || "–"),
      h("td", { class: "words" }, why ? `${one.outcome} (${why})` : one.outcome),
      numberCell(took, took === undefined ? "" : duration(took)));
  }));
}

function uses(all) {
  const heads = ["Day", "Who", "Client, as it says", "What", ...["Calls", "Errors", "Refused", "Bytes", "≈ Tokens"].map((text) => ({ text, class: "right" }))];
  return table("Use", heads, all.map((one) => h("tr", null,
    h("th", { scope: "row" }, one.day), [one.principal || "–", one.client || "–", one.what].map((text) => h("td", { class: "words" }, text)),
    ...[one.calls, one.errors, one.refused, one.responseBytes, one.estimatedTokens].map((value) => numberCell(value, count(value))))));
}
