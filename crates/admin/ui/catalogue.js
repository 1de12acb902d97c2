// The merged catalogue, and a form to try each entry.

import { text } from "./api.js";
import { badge, empty, fill, h } from "./dom.js";
import { plural } from "./format.js";
import { element, member, view } from "./json.js";
import { interval } from "./live.js";
import { runner } from "./runner.js";

const KINDS = [["tools", "Tools"], ["resources", "Resources"], ["resourceTemplates", "Templates"], ["prompts", "Prompts"]];
/** Most entries that are shown without a search. */
const MOST = 500;

export async function catalogue(main, { signal, rest: [kind = "tools", key] }) {
  if (!main.querySelector(".catalogue")) fill(main, h("h1", null, "Catalogue"), h("p", { class: "note" }, "Asking the backends…"));
  const raw = await known(signal);
  const lists = JSON.parse(raw);
  const current = lists[kind] ? kind : "tools";
  const search = h("input", { id: "c-search", type: "search", autocomplete: "off", spellcheck: false, value: main.dataset.search ?? "" });
  const list = h("ul", { class: "entries", "aria-label": title(current) });
  const show = () => {
    main.dataset.search = search.value;
    fill(list, entries(lists[current], current, search.value.toLowerCase(), key));
  };
  search.addEventListener("input", show);
  show();
  const found = key === undefined ? undefined : lists[current].entries.findIndex((entry) => entry.key === key);
  const detail = h("section", { class: "detail", "aria-label": "Entry" });
  fill(main,
    h("h1", null, "Catalogue"),
    h("nav", { class: "tabs", "aria-label": "Lists" }, KINDS.map(([id, name]) =>
      h("a", { href: `#/catalogue/${id}`, "aria-current": id === current ? "true" : null }, name, " ", h("span", { class: "count" }, lists[id].entries.length)))),
    problems(lists[current]),
    h("div", { class: "catalogue" },
      h("div", { class: "side" }, h("div", { class: "field" }, h("label", { for: "c-search" }, "Search"), search), list),
      detail));
  if (found === undefined || found < 0) {
    const nothing = lists[current].entries.length === 0;
    fill(detail, key !== undefined ? empty(`There is no ${key}`, "Its backend may be down.")
      : nothing ? empty(`No backend offers ${title(current).toLowerCase()}`) : empty("Choose an entry", "You can try each one here."));
  } else {
    fill(detail, entryDetail(lists[current].entries[found], current, rawEntry(raw, current, found), signal));
    if (matchMedia("(max-width: 760px)").matches) detail.scrollIntoView();
  }
}

const latest = { at: 0, raw: "" };

/** The lists, requested once while the page is used. */
async function known(signal) {
  if (Date.now() - latest.at > interval("listsMs", 5000)) {
    latest.raw = await text("/api/catalogue", signal);
    latest.at = Date.now();
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

function entries(list, kind, wanted, current) {
  const fits = list.entries.filter((one) => wanted === "" ||
    [one.key, one.original, one.backend, one.entry.title, one.entry.description].some((part) => typeof part === "string" && part.toLowerCase().includes(wanted)));
  const shown = fits.slice(0, MOST).map((one) => h("li", null,
    h("a", { href: `#/catalogue/${kind}/${encodeURIComponent(one.key ?? "")}`, "aria-current": one.key === current ? "true" : null },
      h("span", { class: "mono name" }, one.key ?? "(no name)"),
      h("span", { class: "note" }, one.backend))));
  if (fits.length === 0) return h("li", { class: "note" }, "No match");
  if (fits.length > MOST) shown.push(h("li", { class: "note" }, `and ${plural(fits.length - MOST, "more entry")}: use the search`));
  return shown;
}

function problems(list) {
  const failed = list.backends.filter((one) => one.outcome !== "ok");
  if (failed.length === 0 && list.collisions.length === 0) return null;
  return h("ul", { class: "problems" },
    failed.map((one) => h("li", null, badge("bad", one.outcome, "down"), " ", h("span", { class: "strong" }, one.backend), one.reason ? `: ${one.reason}` : " returned no list")),
    list.collisions.map((one) => h("li", null, badge("busy", "collision"), " ", h("span", { class: "mono" }, one.key), ` is claimed by ${one.kept}, which keeps it, and by ${one.other}, `,
      one.alias ? ["which is readable as ", h("span", { class: "mono" }, one.alias)] : "which is left out")));
}

function entryDetail(one, kind, raw, signal) {
  const { entry } = one;
  const meta = member(raw, "_meta");
  const run = runner(one, kind, signal);
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
