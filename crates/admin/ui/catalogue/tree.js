// The entries of a list as a tree, grouped by server (WAI-ARIA Authoring Practices, Tree View). The
// tree is a single stop of the Tab key; the arrow keys move within it.

import { fill, h, icon } from "../dom.js";
import { count, plural } from "../format.js";

/** Entries of one server shown without a search. */
const MOST = 500;

/** The servers whose groups are closed; they stay closed while the page is open. */
const closed = new Set();

/** A tree of entries; `place` returns an entry's address, `current` is the key of the shown one. */
export class Tree {
  constructor(label, place, current) {
    Object.assign(this, { place, current });
    this.element = h("div", { class: "entries", role: "tree", "aria-label": label, onkeydown: (event) => this.key(event), onfocusin: (event) => this.mark(event.target) });
  }

  /** Shows the entries that contain all words. */
  show(entries, search) {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = entries.filter((one) => words.every((word) => searched(one).includes(word)));
    const groups = new Map();
    for (const one of fits) groups.set(one.backend, [...(groups.get(one.backend) ?? []), one]);
    fill(this.element, [...groups].map(([backend, all]) => this.group(backend, all, words.length > 0)));
    if (fits.length === 0) fill(this.element, h("div", { role: "treeitem", "aria-disabled": "true", class: "note" }, "No match"));
    this.stop = undefined;
    this.mark(this.element.querySelector("[aria-current]") ?? this.items()[0]);
    return fits.length;
  }

  group(backend, all, isSearch) {
    const shown = all.slice(0, MOST);
    const inside = h("div", { role: "group" }, shown.map((one) => this.entry(one)),
      all.length > MOST ? h("div", { role: "treeitem", "aria-level": "2", "aria-disabled": "true", class: "note" }, `and ${plural(all.length - MOST, "more entry").replace("entrys", "entries")}: use the search`) : null);
    const item = h("div", { role: "treeitem", "aria-level": "1", class: "group", tabIndex: -1, "aria-label": `${backend}, ${plural(all.length, "entry").replace("entrys", "entries")}` },
      h("div", { class: "head", onclick: () => this.toggle(item) }, icon("next"), h("span", { class: "strong" }, backend), h("span", { class: "count" }, count(all.length))), inside);
    item.dataset.backend = backend;
    this.open(item, isSearch || !closed.has(backend));
    return item;
  }

  entry(one) {
    const title = typeof one.entry.title === "string" ? one.entry.title : one.entry.annotations?.title;
    return h("a", { role: "treeitem", "aria-level": "2", tabIndex: -1, href: this.place(one.key ?? ""), "aria-current": one.key === this.current ? "true" : null },
      h("span", { class: "mono name" }, one.key ?? "(no name)"),
      typeof title === "string" ? h("span", { class: "note" }, title.slice(0, 200)) : null);
  }

  toggle(item) {
    const isOpen = item.getAttribute("aria-expanded") !== "true";
    this.open(item, isOpen);
    if (isOpen) closed.delete(item.dataset.backend);
    else closed.add(item.dataset.backend);
    this.focus(item);
  }

  open(item, isOpen) {
    item.setAttribute("aria-expanded", String(isOpen));
    item.querySelector("[role=group]").hidden = !isOpen;
  }

  /** The items that are visible. */
  items() {
    return [...this.element.querySelectorAll("[role=treeitem]:not([aria-disabled])")].filter((item) => !item.closest("[role=group][hidden]"));
  }

  /** Makes an item the only one that the Tab key reaches. */
  mark(item) {
    if (!item?.matches?.("[role=treeitem]")) return;
    if (this.stop) this.stop.tabIndex = -1;
    item.tabIndex = 0;
    this.stop = item;
  }

  focus(item) {
    if (!item) return;
    this.mark(item);
    item.focus();
  }

  key(event) {
    const item = event.target.closest("[role=treeitem]");
    const isGroup = item?.classList.contains("group");
    const items = this.items();
    const at = items.indexOf(item);
    const isOpen = item?.getAttribute("aria-expanded") === "true";
    const moves = {
      ArrowDown: () => this.focus(items[at + 1]),
      ArrowUp: () => this.focus(items[at - 1]),
      Home: () => this.focus(items[0]),
      End: () => this.focus(items.at(-1)),
      ArrowRight: () => isGroup && (isOpen ? this.focus(items[at + 1]) : this.toggle(item)),
      ArrowLeft: () => (isGroup ? isOpen && this.toggle(item) : this.focus(item.closest(".group"))),
      Enter: isGroup ? () => this.toggle(item) : undefined,
      " ": isGroup ? () => this.toggle(item) : () => item.click(),
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  }
}

const texts = new WeakMap();

/** The text to search: names and descriptions. */
function searched(one) {
  if (!texts.has(one)) {
    const parts = [one.key, one.original, one.backend, one.entry.name, one.entry.title, one.entry.annotations?.title, one.entry.description];
    texts.set(one, parts.filter((part) => typeof part === "string").join("\n").toLowerCase());
  }
  return texts.get(one);
}
