// The filters above the traces, and their parameters of GET /api/traces.

import { h } from "./dom.js";
import { filterFields } from "./filter-fields.js";

const METHODS = [
  "tools/call", "tools/list", "prompts/get", "prompts/list", "resources/read", "resources/list", "resources/templates/list",
  "completion/complete", "initialize", "server/discover", "subscriptions/listen", "elicitation/create", "sampling/createMessage",
  "roots/list", "ping", "connect",
];
const OUTCOMES = [
  ["", "all"], ["true", "any error"], ["ok", "ok"], ["tool_error", "tool error"], ["protocol_error", "protocol error"],
  ["cancelled", "cancelled"], ["failed", "no answer"],
];
const WHOSE = [["", "of clients"], ["true", "Fanlight's own"], ["all", "all"]];
const TIMES = [["", "any"], ["5", "last 5 minutes"], ["15", "last 15 minutes"], ["60", "last hour"]];
const ORDERS = [["", "newest first"], ["slowest", "slowest first"]];

const FIRST = ["server", "tool", "outcome", "text"];
const MORE = ["own", "method", "client", "principal", "within", "minMs", "sort"];

/** The filters in the query of the address. */
export function filtersOf(query) {
  const filter = Object.fromEntries([...FIRST, ...MORE].map((key) => [key, query.get(key) ?? ""]));
  // Support older links.
  if (query.get("error") === "true" && !filter.outcome) filter.outcome = "true";
  return filter;
}

export function isFiltered(filter) {
  return Object.values(filter).some(Boolean);
}

/** The page's address with these filters. */
export function addressOf(filter) {
  const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value)).toString();
  return query ? `#/traces?${query}` : "#/traces";
}

/** The parameters of the API request. */
export function parametersOf({ server, outcome, within, minMs, own, ...rest }) {
  return {
    ...rest,
    backend: server,
    own: own === "all" ? "" : own || "false",
    error: outcome === "true" ? "true" : "",
    outcome: outcome === "true" ? "" : outcome,
    since: Number(within) > 0 ? Date.now() - Number(within) * 60_000 : "",
    minMs: Number(minMs) > 0 ? minMs : "",
  };
}

/** The form. It calls `changed` shortly after an edit of `filter`. */
export function filterForm(filter, servers, changed, ...buttons) {
  const { select, input } = filterFields(filter, changed);
  const named = (names) => [["", "all"], ...names.map((name) => [name, name])];
  return h("form", { role: "search", onsubmit: (event) => event.preventDefault() },
    h("div", { class: "filters" },
      select("server", "Server", named(servers)),
      input("tool", "Tool"),
      select("outcome", "Outcome", OUTCOMES),
      input("text", "Text, id or attribute"),
      h("div", { class: "field end" }, buttons)),
    h("details", { class: "more-filters", open: MORE.some((key) => filter[key]) }, h("summary", null, "More filters and order"),
      h("div", { class: "filters" },
        select("own", "Requests", WHOSE),
        select("method", "Method", named(METHODS)),
        input("client", "Client"),
        input("principal", "Principal"),
        select("within", "Time", TIMES),
        input("minMs", "Slower than (ms)", { type: "number", min: "0", step: "any" }),
        select("sort", "Order", ORDERS))));
}
