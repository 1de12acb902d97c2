// The newest traces, live.

import { get } from "./api.js";
import { badge, empty, fill, h } from "./dom.js";
import { clock, count, duration, plural } from "./format.js";
import { keepContent } from "./keep-content.js";
import * as live from "./live.js";
import { recordButton } from "./record.js";
import { running } from "./running.js";
import { mayChange } from "./sign-in.js";
import { addressOf, filterForm, filtersOf, isFiltered, parametersOf } from "./trace-filters.js";

const PAGE = 100;
/** The limit of rows, so that an open page does not grow. */
const MOST = 500;
const TYPING = 250;

export async function traces(main, { signal, query }) {
  const page = new Page(main, filtersOf(query), signal);
  await page.begin();
}

class Page {
  constructor(main, filter, signal) {
    Object.assign(this, { main, filter, signal, paused: false, known: new Map(), missed: false, more: false });
    this.rows = h("tbody", { role: "rowgroup" });
    this.below = h("div", { class: "below" });
    this.status = h("span", { class: "note", role: "status" });
  }

  async begin() {
    const [first, now] = await Promise.all([this.fetch(), get("/api/overview", {}, this.signal)]);
    this.recording = first.recording;
    this.replica = first.replica;
    const names = now.backends.map((one) => one.name);
    const keep = mayChange() ? await keepContent(names, this.signal) : null;
    fill(this.main, h("h1", null, "Traces"), running(this.signal), this.form(names), keep, this.table());
    this.take(first, true);
    live.on("traces", ({ traces: ended }) => this.heard(ended), this.signal);
    live.on("missed", () => this.paused || this.reload(), this.signal);
  }

  fetch(before) {
    return get("/api/traces", { ...parametersOf(this.filter), limit: PAGE, before }, this.signal);
  }

  form(names) {
    const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
      this.paused = !this.paused;
      pause.setAttribute("aria-pressed", String(this.paused));
      pause.textContent = this.paused ? "Go on" : "Pause";
      if (!this.paused) this.reload();
    } }, "Pause");
    return filterForm(this.filter, names, () => this.refilter(), pause, recordButton(this.signal), this.status);
  }

  table() {
    // A narrow window shows only the request and its outcome; the trace has the rest.
    const heads = [["Time"], ["Request"], ["Client", "wide-only"], ["Servers", "wide-only"], ["Spans", "right wide-only"], ["Duration", "right"], ["Outcome"]]
      .map(([text, kind]) => h("th", { scope: "col", role: "columnheader", class: kind ?? "" }, text));
    this.scroll = h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Traces" },
      h("table", { class: "rows", role: "table" }, h("caption", { class: "hidden" }, "Traces"),
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), this.rows));
    return h("div", null, this.scroll, this.below);
  }

  /** Shows fetched traces instead of the rows, or below them. */
  take(answer, anew) {
    if (anew) this.known.clear();
    for (const one of answer.traces) this.known.set(one.traceId, one);
    this.more = answer.traces.length === PAGE && this.filter.sort === "";
    this.show();
  }

  show() {
    const order = this.filter.sort === "slowest" ? (a, b) => b.durationMs - a.durationMs : (a, b) => b.number - a.number;
    const sorted = [...this.known.values()].sort(order);
    for (const gone of sorted.slice(MOST)) this.known.delete(gone.traceId);
    const shown = sorted.slice(0, MOST);
    const longest = Math.max(1, ...shown.map((one) => one.durationMs));
    const focused = document.activeElement?.getAttribute?.("href");
    fill(this.rows, shown.map((one) => row(one, longest, linkTo(one.traceId, this.replica))));
    // The rows are new elements: move the focus to the row that had it.
    if (focused) [...this.rows.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    this.status.textContent = plural(shown.length, "trace");
    this.scroll.hidden = shown.length === 0;
    fill(this.below, shown.length === 0 ? this.nothing() : null,
      this.more && shown.length < MOST ? h("button", { type: "button", onclick: () => this.older(shown.at(-1)) }, "Older") : null);
  }

  nothing() {
    if (!this.recording) return empty("Traces are not recorded", "limits.traces is 0 in the configuration.");
    return isFiltered(this.filter)
      ? empty("No matching trace", "Remove one of the filters above.")
      : empty("No trace yet", "Each request of a client appears here. To make one, open a tool in the catalogue and run it.");
  }

  async older(last) {
    this.take(await this.fetch(last.number), false);
  }

  async refilter() {
    history.replaceState(null, "", addressOf(this.filter));
    await this.reload();
  }

  async reload() {
    if (this.signal.aborted) return;
    try {
      this.take(await this.fetch(), true);
    } catch (error) {
      if (error.name !== "AbortError") this.status.textContent = error.message;
    }
  }

  /** Takes in traces in which a span has ended. With filters the page reloads, since only Fanlight can tell which traces match. */
  heard(ended) {
    if (this.paused) return;
    if (isFiltered(this.filter)) {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.reload(), TYPING);
      return;
    }
    for (const one of ended) {
      if (one.own) this.known.delete(one.traceId);
      else this.add(one);
    }
    this.show();
  }

  /** Adds a trace. It replaces the earlier traces of the attempts that it counts. */
  add(one) {
    const isRepeated = (other) => other.attempts && other.backends[0] === one.backends[0] && other.number < one.number && other.startMs >= one.firstMs;
    if (one.attempts > 1) [...this.known.values()].filter(isRepeated).forEach((other) => this.known.delete(other.traceId));
    this.known.set(one.traceId, one);
  }
}

/** The address of a trace, with the replica that keeps it. */
function linkTo(id, replica) {
  return `#/traces/${id}${replica ? `?replica=${encodeURIComponent(replica)}` : ""}`;
}

function row(one, longest, address) {
  const bar = h("span", { class: "meter", "aria-hidden": "true" });
  const part = h("span", null);
  part.style.width = `${Math.max(2, (Math.sqrt(one.durationMs) / Math.sqrt(longest)) * 100)}%`;
  bar.append(part);
  const open = (event) => {
    if (!event.target.closest("a")) location.hash = address;
  };
  // Explicit roles keep the table readable for screen readers where narrow windows turn rows into
  // blocks.
  const cells = [
    h("td", { class: "number" }, clock(one.startMs)),
    h("th", { scope: "row", class: "words" }, h("a", { href: address }, one.name),
      one.message ? h("div", { class: "note error-text two-lines" }, one.message) : null,
      one.attempts > 1 ? h("span", { class: "note" }, ` ${count(one.attempts)} attempts since ${clock(one.firstMs)}`) : null),
    h("td", { class: "words narrow wide-only" }, one.client ?? "–", one.principal ? h("span", { class: "note" }, ` ${one.principal}`) : null),
    h("td", { class: "wide-only" }, one.backends.map((name) => [h("span", { class: "chip" }, name), " "])),
    h("td", { class: "right number wide-only" }, one.spans),
    h("td", { class: "right number" }, bar, h("span", { class: "took" }, duration(one.durationMs))),
    h("td", null, one.error ? [badge("bad", one.error, "down"), " ", h("span", { class: "note" }, one.side)]
      : one.ended || one.own ? badge("good", "ok", "ready") : badge("", "not over", "connecting")),
  ];
  for (const cell of cells) cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
  return h("tr", { role: "row", onclick: open, class: one.error ? "failed" : "" }, cells);
}
