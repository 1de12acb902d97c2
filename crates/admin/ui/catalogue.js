// The merged catalogue, and a form to try each entry.

import { get, text } from "./api.js";
import { badge, empty, fill, h } from "./dom.js";
import { clock, plural } from "./format.js";
import { element, member, view } from "./json.js";
import { interval } from "./live.js";
import { runner } from "./runner.js";

const KINDS = [["tools", "Tools"], ["resources", "Resources"], ["resourceTemplates", "Templates"], ["prompts", "Prompts"]];
/** Most entries that are shown without a search. */
const MOST = 500;

export async function catalogue(main, { signal, query, rest: [kind = "tools", key] }) {
  if (!main.querySelector(".catalogue")) fill(main, h("h1", null, "Catalogue"), h("p", { class: "note" }, "Asking the backends…"));
  const endpoint = query.get("endpoint") ?? "";
  const { endpoints } = await get("/api/endpoints", {}, signal);
  const choice = selector(endpoints, endpoint, kind);
  if (endpoint !== "" && !endpoints.some(({ path }) => path === endpoint)) {
    fill(main, h("h1", null, "Catalogue"), choice, empty(`There is no endpoint ${endpoint}`, "The configuration may have changed."));
    return focusChoice();
  }
  const to = (...place) => address(endpoint, ...place);
  const raw = await known(endpoint, signal);
  const lists = JSON.parse(raw);
  const current = lists[kind] ? kind : "tools";
  const search = h("input", { id: "c-search", type: "search", autocomplete: "off", spellcheck: false, value: main.dataset.search ?? "" });
  const list = h("ul", { class: "entries", "aria-label": title(current) });
  const show = () => {
    main.dataset.search = search.value;
    fill(list, entries(lists[current], (one) => to(current, one), search.value.toLowerCase(), key));
  };
  search.addEventListener("input", show);
  show();
  const found = key === undefined ? undefined : lists[current].entries.findIndex((entry) => entry.key === key);
  const detail = h("section", { class: "detail", "aria-label": "Entry" });
  fill(main,
    h("h1", null, "Catalogue"),
    choice,
    h("nav", { class: "tabs", "aria-label": "Lists" }, KINDS.map(([id, name]) =>
      h("a", { href: to(id), "aria-current": id === current ? "true" : null }, name, " ", h("span", { class: "count" }, lists[id].entries.length)))),
    problems(lists[current]),
    h("div", { class: "catalogue" },
      h("div", { class: "side" }, h("div", { class: "field" }, h("label", { for: "c-search" }, "Search"), search), list),
      detail));
  focusChoice();
  if (found === undefined || found < 0) {
    const nothing = lists[current].entries.length === 0;
    fill(detail, key !== undefined ? empty(`There is no ${key}`, endpoint === "" ? "Its backend may be down." : "Its backend may be down, or the endpoint does not show it.")
      : nothing ? empty(endpoint === "" ? `No backend offers ${title(current).toLowerCase()}` : `${endpoint} shows no ${title(current).toLowerCase()}`) : empty("Choose an entry", "You can try each one here."));
  } else {
    fill(detail, entryDetail(lists[current].entries[found], current, rawEntry(raw, current, found), { endpoint, signal }));
    if (matchMedia("(max-width: 760px)").matches) detail.scrollIntoView();
  }
}

/** The address of a list, or of an entry in it, as an endpoint shows it. */
function address(endpoint, ...place) {
  const path = ["catalogue", ...place].map(encodeURIComponent).join("/");
  return endpoint === "" ? `#/${path}` : `#/${path}?${new URLSearchParams({ endpoint })}`;
}

/** Whether the page is shown because an endpoint was chosen: the keyboard then continues at the choice. */
let hasChosen = false;

function focusChoice() {
  if (hasChosen) document.getElementById("c-endpoint")?.focus();
  hasChosen = false;
}

/** The choice of an endpoint; a change opens the same list there. */
function selector(endpoints, chosen, kind) {
  const option = (value, ...label) => h("option", { value, selected: value === chosen }, ...label);
  const known = endpoints.map(({ path, servers }) => option(path, `${path} (${plural(servers.length, "server")})`));
  const gone = chosen === "" || endpoints.some(({ path }) => path === chosen) ? null : option(chosen, chosen);
  const change = (event) => {
    hasChosen = true;
    location.hash = address(event.target.value, kind);
  };
  return h("div", { class: "field endpoint" },
    h("label", { for: "c-endpoint" }, "As shown by"),
    h("select", { id: "c-endpoint", onchange: change }, option("", "no endpoint: everything"), known, gone));
}

const latest = { endpoint: undefined, at: 0, raw: "" };

/** The lists that an endpoint shows, requested once while the page is used. */
async function known(endpoint, signal) {
  if (latest.endpoint !== endpoint || Date.now() - latest.at > interval("listsMs", 5000)) {
    const query = endpoint === "" ? "" : `?${new URLSearchParams({ endpoint })}`;
    const raw = await text(`/api/catalogue${query}`, signal);
    Object.assign(latest, { endpoint, at: Date.now(), raw });
  }
  return latest.raw;
}

function title(kind) {
  return KINDS.find(([id]) => id === kind)[1];
}

/** The text of an entry as clients receive it. */
function rawEntry(raw, kind, index) {
  const list = member(raw, kind);
  const all = member(list, "entries");
  return member(element(all, index), "entry");
}

function entries(list, place, wanted, current) {
  const fits = list.entries.filter((one) => wanted === "" ||
    [one.key, one.original, one.backend, one.entry.title, one.entry.description].some((part) => typeof part === "string" && part.toLowerCase().includes(wanted)));
  const shown = fits.slice(0, MOST).map((one) => h("li", null,
    h("a", { href: place(one.key ?? ""), "aria-current": one.key === current ? "true" : null },
      h("span", { class: "mono name" }, one.key ?? "(no name)"),
      h("span", { class: "note" }, one.backend))));
  if (fits.length === 0) return h("li", { class: "note" }, "No match");
  if (fits.length > MOST) shown.push(h("li", { class: "note" }, `and ${plural(fits.length - MOST, "more entry")}: use the search`));
  return shown;
}

function problems(list) {
  const failed = list.backends.filter((one) => one.outcome !== "ok");
  const kept = list.backends.filter((one) => one.asOfMs !== undefined);
  if (failed.length + kept.length + list.collisions.length === 0) return null;
  return h("ul", { class: "problems" },
    kept.map((one) => h("li", null, badge("calm", "kept", "idle"), " ", h("span", { class: "strong" }, one.backend), `: as of ${clock(one.asOfMs)}, until it is started`)),
    failed.map((one) => h("li", null, badge("bad", one.outcome, "down"), " ", h("span", { class: "strong" }, one.backend), one.reason ? `: ${one.reason}` : " returned no list")),
    list.collisions.map((one) => h("li", null, badge("busy", "collision"), " ", h("span", { class: "mono" }, one.key), ` is claimed by ${one.kept}, which keeps it, and by ${one.other}, `,
      one.alias ? ["which is readable as ", h("span", { class: "mono" }, one.alias)] : "which is left out")));
}

function entryDetail(one, kind, raw, { endpoint, signal }) {
  const { entry } = one;
  const meta = member(raw, "_meta");
  const run = runner(one, kind, { endpoint, signal });
  return [
    h("h2", { class: "mono-title" }, one.key ?? "(no name)"),
    typeof entry.title === "string" ? h("p", { class: "strong" }, entry.title) : null,
    h("p", { class: "row" }, h("span", { class: "chip" }, one.backend),
      one.original !== one.key ? h("span", { class: "note" }, "its backend calls it ", h("span", { class: "mono" }, one.original)) : null,
      hints(entry.annotations)),
    typeof entry.description === "string" ? h("p", { class: "description" }, entry.description) : null,
    run ? h("section", null, h("h3", null, "Try it"), run) : null,
    kind === "tools" && entry.outputSchema ? fold("Output schema", member(raw, "outputSchema")) : null,
    kind === "tools" && entry.inputSchema ? fold("Input schema", member(raw, "inputSchema")) : null,
    meta ? fold("_meta", meta) : null,
    fold("The entry as clients receive it", raw),
  ];
}

function fold(summary, raw) {
  return h("details", null, h("summary", null, summary), view(raw, summary));
}

function hints(annotations) {
  if (!annotations || typeof annotations !== "object") return null;
  const words = { readOnlyHint: "read only", destructiveHint: "destructive", idempotentHint: "idempotent", openWorldHint: "open world" };
  return Object.entries(words).filter(([key]) => annotations[key] === true).map(([, word]) => h("span", { class: "chip" }, word));
}
