// The newest traces, live.

import { get } from "./api.js";
import { badge, empty, fill, h } from "./dom.js";
import { clock, duration, plural } from "./format.js";
import * as live from "./live.js";

const PAGE = 100;
/** Most rows, so that a page left open does not grow. */
const MOST = 500;
const TYPING = 250;

export async function traces(main, { signal, query }) {
  const filter = Object.fromEntries(["backend", "tool", "error", "text"].map((key) => [key, query.get(key) ?? ""]));
  const page = new Page(main, filter, signal);
  await page.begin();
}

class Page {
  constructor(main, filter, signal) {
    Object.assign(this, { main, filter, signal, paused: false, known: new Map(), missed: false, more: false });
    this.rows = h("tbody", null);
    this.below = h("div", { class: "below" });
    this.status = h("span", { class: "note", role: "status" });
  }

  async begin() {
    const [first, now] = await Promise.all([this.fetch(), get("/api/overview", {}, this.signal)]);
    this.recording = first.recording;
    fill(this.main, h("h1", null, "Traces"), this.form(now.backends.map((one) => one.name)), this.table());
    this.take(first, true);
    live.on("traces", ({ traces: ended }) => this.heard(ended), this.signal);
    live.on("missed", () => this.paused || this.reload(), this.signal);
  }

  fetch(before) {
    return get("/api/traces", { ...this.filter, limit: PAGE, before }, this.signal);
  }

  form(names) {
    const change = (key) => (event) => {
      this.filter[key] = event.target.value;
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.refilter(), event.type === "input" ? TYPING : 0);
    };
    const select = (id, label, key, options) => h("div", { class: "field" }, h("label", { for: id }, label),
      h("select", { id, onchange: change(key) }, options.map(([value, text]) => h("option", { value, selected: this.filter[key] === value }, text))));
    const input = (id, label, key) => h("div", { class: "field" }, h("label", { for: id }, label),
      h("input", { id, type: "search", value: this.filter[key], oninput: change(key), autocomplete: "off", spellcheck: false }));
    const listed = this.filter.backend && !names.includes(this.filter.backend) ? [this.filter.backend, ...names] : names;
    const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
      this.paused = !this.paused;
      pause.setAttribute("aria-pressed", String(this.paused));
      pause.textContent = this.paused ? "Go on" : "Pause";
      if (!this.paused) this.reload();
    } }, "Pause");
    return h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      select("f-backend", "Backend", "backend", [["", "all"], ...listed.map((name) => [name, name])]),
      input("f-tool", "Tool", "tool"),
      select("f-error", "Outcome", "error", [["", "all"], ["true", "errors only"], ["false", "no errors"]]),
      input("f-text", "Text, id or attribute", "text"),
      h("div", { class: "field end" }, pause, this.status));
  }

  table() {
    const heads = ["Time", "Request", "Backends"].map((text) => h("th", { scope: "col" }, text));
    const right = ["Spans", "Duration"].map((text) => h("th", { scope: "col", class: "right" }, text));
    this.scroll = h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Traces" },
      h("table", { class: "rows" }, h("caption", { class: "hidden" }, "Traces, newest first"),
        h("thead", null, h("tr", null, heads, right, h("th", { scope: "col" }, "Outcome"))), this.rows));
    return h("div", null, this.scroll, this.below);
  }

  /** Shows fetched traces: in place of the rows, or below them. */
  take(answer, anew) {
    if (anew) this.known.clear();
    for (const one of answer.traces) this.known.set(one.traceId, one);
    this.more = answer.traces.length === PAGE;
    this.show();
  }

  show() {
    const sorted = [...this.known.values()].sort((a, b) => b.number - a.number);
    for (const gone of sorted.slice(MOST)) this.known.delete(gone.traceId);
    const shown = sorted.slice(0, MOST);
    const longest = Math.max(1, ...shown.map((one) => one.durationMs));
    const focused = document.activeElement?.getAttribute?.("href");
    fill(this.rows, shown.map((one) => row(one, longest)));
    // Rows are replaced; the focus stays on its row.
    if (focused) [...this.rows.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    this.status.textContent = plural(shown.length, "trace");
    this.scroll.hidden = shown.length === 0;
    fill(this.below, shown.length === 0 ? this.nothing() : null,
      this.more && shown.length < MOST ? h("button", { type: "button", onclick: () => this.older(shown.at(-1)) }, "Older") : null);
  }

  nothing() {
    if (!this.recording) return empty("Traces are not recorded", "limits.traces is 0 in the configuration.");
    const filtered = Object.values(this.filter).some(Boolean);
    return filtered
      ? empty("No matching trace", "Remove one of the filters above.")
      : empty("No trace yet", "Each request of a client appears here. To make one, open a tool in the catalogue and run it.");
  }

  async older(last) {
    this.take(await this.fetch(last.number), false);
  }

  async refilter() {
    const query = new URLSearchParams(Object.entries(this.filter).filter(([, value]) => value)).toString();
    history.replaceState(null, "", query ? `#/traces?${query}` : "#/traces");
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

  /** Traces in which a span has ended. With filters, only Fanlight can tell which match. */
  heard(ended) {
    if (this.paused) return;
    if (Object.values(this.filter).some(Boolean)) {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.reload(), TYPING);
      return;
    }
    for (const one of ended) this.known.set(one.traceId, one);
    this.show();
  }
}

function row(one, longest) {
  const bar = h("span", { class: "meter", "aria-hidden": "true" });
  const part = h("span", null);
  part.style.width = `${Math.max(2, (Math.sqrt(one.durationMs) / Math.sqrt(longest)) * 100)}%`;
  bar.append(part);
  const open = (event) => {
    if (!event.target.closest("a")) location.hash = `#/traces/${one.traceId}`;
  };
  return h("tr", { onclick: open, class: one.error ? "failed" : "" },
    h("td", { class: "number" }, clock(one.startMs)),
    h("th", { scope: "row", class: "words" }, h("a", { href: `#/traces/${one.traceId}` }, one.name)),
    h("td", null, one.backends.map((name) => [h("span", { class: "chip" }, name), " "])),
    h("td", { class: "right number" }, one.spans),
    h("td", { class: "right number" }, bar, h("span", { class: "took" }, duration(one.durationMs))),
    h("td", null, one.error ? badge("bad", one.error, "down") : badge("good", "ok", "ready")));
}
