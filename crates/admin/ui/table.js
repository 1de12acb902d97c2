// Tables that can be sorted by each column.

import { h } from "./dom.js";

/** The last order of each table by its caption, so that a new table keeps it. */
const orders = new Map();

/**
 * A table with a caption for screen readers. Each named column sorts, by its cells' `data-sort` if present. In a narrow
 * window each row becomes a card of labelled cells, or with `compact` a line; explicit roles keep it a table for screen
 * readers.
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

/** Whether tables are shown as lists. The style sheet has the same limit. */
export const isNarrow = () => matchMedia("(max-width: 760px)").matches;

/** A cell that shows a text and sorts by a number. In a narrow window, it is left out if there is no number. */
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

  /** The column heads, each with a button if there is something to sort. */
  heads() {
    this.cells = this.named.map((head, at) => {
      const isSorting = isNamed(head) && this.rows.length > 1;
      const inside = isSorting ? h("button", { type: "button", class: "sort", onclick: () => this.by(at) }, head.text) : head.text;
      return h("th", { scope: "col", role: "columnheader", class: head.class }, inside);
    });
    this.mark();
    return this.cells;
  }

  /** A menu for sorting in a narrow window, which has no column heads. */
  choice() {
    if (this.rows.length < 2) return null;
    const order = orders.get(this.caption);
    const options = this.named.flatMap((head, at) => (isNamed(head) ? [h("option", { value: String(at), selected: order?.at === at }, head.text)] : []));
    const select = h("select", { "aria-label": `Sort ${this.caption} by`, onchange: () => select.value !== "" && this.by(Number(select.value)) },
      h("option", { value: "" }, "Sort by…"), options);
    const turn = h("button", { type: "button", class: "small", onclick: () => this.by(orders.get(this.caption)?.at ?? 0) }, "Reverse");
    return h("div", { class: "sort-by" }, select, turn);
  }

  /** Sorts by a column, or reverses its order. Numbers start with the largest. */
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
