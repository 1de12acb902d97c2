// The merged catalogue: its lists, a search, and the chosen entry.

import { get, text } from "../api.js";
import { badge, empty, fill, h } from "../dom.js";
import { clock, plural } from "../format.js";
import { element, member } from "../json.js";
import { interval } from "../live.js";
import { cost, entryDetail } from "./entry.js";
import { Tree } from "./tree.js";

const KINDS = [["tools", "Tools"], ["resources", "Resources"], ["resourceTemplates", "Templates"], ["prompts", "Prompts"]];

export async function catalogue(main, { signal, query, rest: [kind = "tools", key] }) {
  const isMove = main.querySelector(".catalogue") !== null;
  if (!isMove) fill(main, h("h1", null, "Catalogue"), h("p", { class: "note" }, "Asking the servers…"));
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
  const { entries } = lists[current];
  const tree = new Tree(title(current), (one) => to(current, one), key);
  const search = h("input", { id: "c-search", type: "search", autocomplete: "off", spellcheck: false, value: main.dataset.search ?? "", "aria-describedby": "c-found" });
  const found = h("p", { class: "note", id: "c-found", role: "status" });
  const show = () => {
    main.dataset.search = search.value;
    const count = tree.show(entries, search.value);
    found.textContent = search.value.trim() === "" ? "" : `${count} of ${entries.length}`;
  };
  search.addEventListener("input", show);
  show();
  const at = key === undefined ? -1 : entries.findIndex((entry) => entry.key === key);
  const detail = h("section", { class: "detail", "aria-label": "Entry" });
  const back = { href: to(current), title: `All ${title(current).toLowerCase()}` };
  const scrolled = main.querySelector(".entries")?.scrollTop ?? 0;
  fill(main,
    h("h1", null, "Catalogue"),
    choice,
    h("nav", { class: "tabs", "aria-label": "Lists" }, KINDS.map(([id, name]) =>
      h("a", { href: to(id), "aria-current": id === current ? "true" : null }, name, " ", h("span", { class: "count" }, lists[id].entries.length)))),
    entries.length > 0 ? h("p", { class: "note" }, `${plural(entries.length, "definition")}: ${cost(entries)}`) : null,
    problems(lists[current]),
    h("div", { class: key === undefined && entries.length > 0 ? "catalogue" : "catalogue chosen" },
      h("div", { class: "side" }, h("div", { class: "field" }, h("label", { for: "c-search" }, "Search"), search, found), tree.element),
      detail));
  tree.element.scrollTop = scrolled;
  if (at < 0) {
    fill(detail, key === undefined ? null : h("p", { class: "back" }, h("a", { href: back.href }, back.title)), nothing(entries, current, key, endpoint));
  } else {
    fill(detail, entryDetail(entries[at], current, rawEntry(raw, current, at), { endpoint, signal, given: query.get("arguments") ?? undefined, back }));
  }
  if (!focusChoice() && key !== undefined && isMove) focusEntry(detail);
}

/** The message shown instead of an entry. */
function nothing(entries, kind, key, endpoint) {
  const list = title(kind).toLowerCase();
  if (key !== undefined) return empty(`There is no ${key}`, endpoint === "" ? "Its server may be down." : "Its server may be down, or the endpoint does not show it.");
  if (entries.length > 0) return empty("Choose an entry", "You can try each one here.");
  return empty(endpoint === "" ? `No server offers ${list}` : `${endpoint} shows no ${list}`);
}

/** Moves the focus into the form of the chosen entry. */
function focusEntry(detail) {
  const form = detail.querySelector(".try form");
  const target = form?.querySelector("input, select, textarea") ?? form?.querySelector("button[type=submit]") ?? detail.querySelector("h2") ?? detail.querySelector("a");
  target?.focus({ preventScroll: true });
  if (matchMedia("(max-width: 760px)").matches) scrollTo(0, 0);
}

/** The address of a list, or of an entry in it, for an endpoint. */
function address(endpoint, ...place) {
  const path = ["catalogue", ...place].map(encodeURIComponent).join("/");
  return endpoint === "" ? `#/${path}` : `#/${path}?${new URLSearchParams({ endpoint })}`;
}

/** Whether the user has just chosen an endpoint: the focus then returns to the menu. */
let hasChosen = false;

function focusChoice() {
  const isHere = hasChosen;
  if (isHere) document.getElementById("c-endpoint")?.focus();
  hasChosen = false;
  return isHere;
}

/** The menu of endpoints; a change opens the same list there. */
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

/** The lists of an endpoint, read once while the page is used. */
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

function problems(list) {
  const failed = list.backends.filter((one) => one.outcome !== "ok");
  const kept = list.backends.filter((one) => one.asOfMs !== undefined);
  if (failed.length + kept.length + list.collisions.length === 0) return null;
  return h("ul", { class: "problems" },
    kept.map((one) => h("li", null, badge("calm", "kept", "idle"), " ", h("span", { class: "strong" }, one.backend), `: as of ${clock(one.asOfMs)}, until it is started`)),
    failed.map((one) => h("li", null, badge("bad", one.outcome, "down"), " ", h("span", { class: "strong" }, one.backend), one.reason ? `: ${one.reason}` : " returned no list")),
    list.collisions.map((one) => h("li", null, badge("busy", "collision"), " ", h("span", { class: "mono" }, one.key), ` is in both ${one.kept} and ${one.other}; the second one `,
      one.alias ? ["is readable as ", h("span", { class: "mono" }, one.alias)] : "is left out")));
}
