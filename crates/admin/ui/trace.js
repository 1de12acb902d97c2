// One trace as a waterfall.

import { get } from "./api.js";
import { badge, copyButton, empty, fill, h } from "./dom.js";
import { clock, duration, plural } from "./format.js";
import * as live from "./live.js";
import { spansOf, traceparent } from "./spans.js";

const KINDS = { server: "SERVER", client: "CLIENT", internal: "INTERNAL", producer: "PRODUCER", consumer: "CONSUMER" };

export async function trace(main, { signal, rest: [id] }) {
  const opened = new Set();
  const show = async () => {
    const spans = spansOf(await get(`/api/traces/${encodeURIComponent(id)}`, {}, signal));
    if (!signal.aborted) page(main, id, spans, opened);
  };
  try {
    await show();
  } catch (error) {
    if (error.status !== 404) throw error;
    fill(main, back(), h("h1", null, "Trace"), empty("This trace has been evicted", error.message));
    return;
  }
  live.on("traces", ({ traces }) => {
    if (traces.some((one) => one.traceId === id)) show();
  }, signal);
}

function back() {
  return h("p", { class: "back" }, h("a", { href: "#/traces" }, "All traces"));
}

function page(main, id, spans, opened) {
  const start = spans.reduce((least, span) => (span.startNs < least ? span.startNs : least), spans[0].startNs);
  const total = Math.max(...spans.map((span) => Number(span.startNs - start) / 1e6 + span.durationMs), 0.001);
  const top = spans[0];
  const focused = document.activeElement?.id;
  fill(main,
    back(),
    h("h1", { class: "mono-title" }, top.name),
    h("div", { class: "facts" },
      fact("Trace", h("span", { class: "mono" }, id)),
      fact("Began", clock(Number(start / 1_000_000n))),
      fact("Took", duration(total)),
      fact("Spans", String(spans.length)),
      h("div", { class: "fact end" }, copyButton("Copy traceparent", traceparent(top)))),
    h("div", { class: "legend", "aria-hidden": "true" }, ["server", "client", "internal"].map((kind) => h("span", { class: `key ${kind}` }, KINDS[kind])), h("span", { class: "key failed" }, "failed")),
    h("div", { class: "waterfall card" }, scale(total), h("ol", { class: "spans", "aria-label": "Spans" },
      spans.map((span) => item(span, start, total, opened)))));
  if (focused) document.getElementById(focused)?.focus();
}

function fact(label, value) {
  return h("div", { class: "fact" }, h("span", { class: "label" }, label), value);
}

function scale(total) {
  const marks = h("div", { class: "scale", "aria-hidden": "true" }, h("span", { class: "name" }, ""));
  const track = h("span", { class: "track" });
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const mark = h("span", { class: part === 1 ? "mark last" : "mark" }, duration(total * part));
    mark.style.insetInlineStart = `${part * 100}%`;
    track.append(mark);
  }
  marks.append(track);
  return marks;
}

function item(span, start, total, opened) {
  const offset = Number(span.startNs - start) / 1e6;
  const id = `span-${span.id}`;
  const details = h("div", { class: "details", id: `${id}-details`, hidden: !opened.has(span.id) });
  const bar = h("span", { class: `bar ${span.kind}${span.error || span.failed ? " failed" : ""}` });
  bar.style.insetInlineStart = `${Math.min(99.5, (offset / total) * 100)}%`;
  bar.style.inlineSize = `${Math.max(0.5, (span.durationMs / total) * 100)}%`;
  const points = span.events.map((event) => {
    const point = h("span", { class: "point", title: event.name });
    point.style.insetInlineStart = `${Math.min(99.5, ((offset + event.offsetMs) / total) * 100)}%`;
    return point;
  });
  const name = h("span", { class: "name" },
    h("span", { class: `kind ${span.kind}` }, KINDS[span.kind]), h("span", { class: "text" }, span.name),
    span.backend ? h("span", { class: "chip" }, span.backend) : null,
    span.error ? badge("bad", span.error, "down") : null);
  name.style.paddingInlineStart = `${Math.min(span.depth, 12) * 1.1}rem`;
  const fillDetails = () => details.childElementCount || fill(details, detailsOf(span));
  if (opened.has(span.id)) fillDetails();
  const toggle = () => {
    const open = details.hidden;
    details.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open) {
      opened.add(span.id);
      fillDetails();
    } else opened.delete(span.id);
  };
  const button = h("button", {
    type: "button", class: "span", id, onclick: toggle, "aria-controls": `${id}-details`, "aria-expanded": String(opened.has(span.id)),
  }, name, h("span", { class: "track", "aria-hidden": "true" }, bar, points), h("span", { class: "took" }, duration(span.durationMs)));
  return h("li", null, button, details);
}

function detailsOf(span) {
  return [
    span.message ? h("p", { class: "error-text" }, span.message) : null,
    pairs("Attributes", span.attributes),
    span.events.length ? h("section", null, h("h3", null, "Events"), h("ul", { class: "events" }, span.events.map((event) =>
      h("li", null, h("span", { class: "number" }, `+${duration(event.offsetMs)}`), " ", h("span", { class: "strong" }, event.name),
        event.attributes.map(([key, value]) => h("span", { class: "mono pair" }, ` ${key}=${value}`)))))) : null,
    span.droppedEvents ? h("p", { class: "note" }, `and ${plural(span.droppedEvents, "event")} that were only counted`) : null,
    span.links.length ? h("section", null, h("h3", null, "Links"), h("ul", null, span.links.map((link) =>
      h("li", { class: "mono" }, h("a", { href: `#/traces/${link.traceId}` }, link.traceId), ` span ${link.spanId}`)))) : null,
    h("p", { class: "row" }, copyButton("Copy traceparent", traceparent(span)), h("span", { class: "note mono" }, `span ${span.id}`),
      span.sampled ? null : h("span", { class: "chip" }, "not sampled")),
  ];
}

function pairs(title, all) {
  if (all.length === 0) return null;
  return h("section", null, h("h3", null, title),
    h("dl", { class: "pairs" }, all.map(([key, value]) => [h("dt", null, key), h("dd", null, value)])));
}
