// Running requests of clients, each with a button that cancels it.

import { ask, get } from "./api.js";
import { fill, h, say } from "./dom.js";
import { count, duration } from "./format.js";
import { repeat } from "./live.js";
import { mayChange } from "./sign-in.js";
import { numberCell, table } from "./table.js";

const SECOND = 1000;

/** A section with the oldest `most` running requests; hidden if there are none. */
export function running(signal, most = Infinity) {
  const content = h("div", null);
  const section = h("section", { hidden: true, class: "running-calls" }, h("h2", null, "Running now"), content);
  let shown = "";
  const show = ({ calls, callCount }) => {
    const at = performance.now();
    section.hidden = calls.length === 0;
    const shownCalls = calls.slice(0, most);
    const now = JSON.stringify(calls.map(({ spanId, cancelled }) => [spanId, cancelled]));
    // Keep the rows if nothing changed, so that the focus stays on its button.
    if (now === shown) return;
    shown = now;
    const more = callCount - shownCalls.length;
    fill(content, rows(shownCalls, at), more > 0 ? h("p", { class: "note" }, `and ${count(more)} more`) : null);
  };
  const poll = async () => show(await get("/api/calls", {}, signal));
  poll().catch(() => {});
  repeat(poll, signal);
  const timer = setInterval(() => {
    for (const cell of section.querySelectorAll("[data-since]")) cell.textContent = duration(performance.now() - Number(cell.dataset.since));
  }, SECOND);
  signal.addEventListener("abort", () => clearInterval(timer));
  return section;
}

function rows(calls, at) {
  const heads = ["Request", "Client", { text: "For", class: "right" }, ...(mayChange() ? [""] : [])];
  return table("Running requests", heads.map((head) => head || { text: h("span", { class: "hidden" }, "Cancel") }), calls.map((one) => {
    const elapsed = numberCell(one.elapsedMs, duration(one.elapsedMs));
    elapsed.dataset.since = String(at - one.elapsedMs);
    return h("tr", null,
      h("th", { scope: "row", class: "words mono long" }, one.name),
      h("td", { class: "words narrow" }, one.client ?? "–", one.principal ? h("span", { class: "note" }, ` ${one.principal}`) : null),
      elapsed,
      mayChange() ? h("td", { class: "right" }, cancel(one)) : null);
  }), { compact: true });
}

function cancel(one) {
  const now = async (event) => {
    event.target.disabled = true;
    try {
      await ask(`/api/calls/${encodeURIComponent(one.spanId)}/cancel`, { method: "POST" });
      say("Cancelled");
    } catch (error) {
      say(error.message);
    }
  };
  return h("button", { type: "button", class: "small", onclick: now, disabled: one.cancelled, "aria-label": `Cancel ${one.name}` }, one.cancelled ? "Cancelled" : "Cancel");
}
