// Tables that sort by every column.

import { h } from "./dom.js";

/** How each table was sorted last, by its caption: a table that is made anew keeps its order. */
const orders = new Map();

/**
 * A table with a caption for screen readers. Every column with a name sorts, by `data-sort` of its cells where they have
 * one. In a narrow window each row is a card, in which every cell has the head of its column, or with `compact` a line; the
 * roles keep it a table for screen readers then.
 */
export function table(caption, heads, rows, { compact = false } = {}) {
  const all = rows.flat(Infinity);
  const named = heads.map((head) => (typeof head === "string" ? { text: head } : head));
  for (const row of all) {
    row.setAttribute("role", "row");
    [...row.children].forEach((cell, at) => {
      cell.setAttribute("role", cell.scope === "row" ? "rowheader" : "cell");
      if (cell.tagName === "TD") cell.dataset.head = isNamed(named[at]) ? named[at].text : "";
    });
  }
  const body = h("tbody", { role: "rowgroup" }, all);
  const sorting = new Sorting(caption, named, all, body);
  return h("div", { class: `scroll ${compact ? "compact" : "cards"}`, tabIndex: 0, role: "region", "aria-label": caption },
    sorting.choice(),
    h("table", { role: "table" },
      h("caption", { class: "hidden" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, sorting.heads())),
      body));
}

/** Whether tables are lists: the style says the same. */
export const isNarrow = () => matchMedia("(max-width: 760px)").matches;

/** A cell with a number that sorts by it, and is shown as a text; one without a number needs no place in a narrow window. */
export function numberCell(value, text, kind = "") {
  return h("td", { class: `right number ${value ? "" : "nothing"} ${kind}`.trim(), "data-sort": String(value ?? -1) }, text);
}

function isNamed(head) {
  return typeof head?.text === "string" && head.text !== "";
}

class Sorting {
  constructor(caption, named, rows, body) {
    Object.assign(this, { caption, named, rows, body, cells: [] });
    this.apply();
  }

  /** The heads of the columns, each with a button where there is something to sort. */
  heads() {
    this.cells = this.named.map((head, at) => {
      const isSorting = isNamed(head) && this.rows.length > 1;
      const inside = isSorting ? h("button", { type: "button", class: "sort", onclick: () => this.by(at) }, head.text) : head.text;
      return h("th", { scope: "col", role: "columnheader", class: head.class }, inside);
    });
    this.mark();
    return this.cells;
  }

  /** The same for a narrow window, which has no heads. */
  choice() {
    if (this.rows.length < 2) return null;
    const order = orders.get(this.caption);
    const options = this.named.flatMap((head, at) => (isNamed(head) ? [h("option", { value: String(at), selected: order?.at === at }, head.text)] : []));
    const select = h("select", { "aria-label": `Sort ${this.caption} by`, onchange: () => select.value !== "" && this.by(Number(select.value)) },
      h("option", { value: "" }, "Sort by…"), options);
    const turn = h("button", { type: "button", class: "small", onclick: () => this.by(orders.get(this.caption)?.at ?? 0) }, "Reverse");
    return h("div", { class: "sort-by" }, select, turn);
  }

  /** Sorts by a column, or the other way round if it is sorted by that. Numbers begin with the largest. */
  by(at) {
    const before = orders.get(this.caption);
    const isNumber = this.named[at].class?.includes("right") ?? false;
    orders.set(this.caption, { at, down: before?.at === at ? !before.down : isNumber });
    this.apply();
    this.mark();
  }

  apply() {
    const order = orders.get(this.caption);
    if (!order || order.at >= this.named.length) return;
    const sorted = [...this.rows].sort((a, b) => compare(key(a, order.at), key(b, order.at)) * (order.down ? -1 : 1));
    this.body.append(...sorted);
  }

  mark() {
    const order = orders.get(this.caption);
    this.cells.forEach((cell, at) => {
      if (order?.at === at) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }
}

function key(row, at) {
  const cell = row.children[at];
  if (cell?.dataset.sort === undefined) return cell?.textContent ?? "";
  const number = Number(cell.dataset.sort);
  return Number.isNaN(number) ? cell.dataset.sort : number;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
