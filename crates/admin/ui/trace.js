// One trace as a waterfall.

import { get, text } from "./api.js";
import { compare } from "./compare.js";
import { badge, copyButton, empty, fill, h, say } from "./dom.js";
import { clock, duration, plural } from "./format.js";
import * as live from "./live.js";
import { asCommand, asCurl, attribute, callOf, hasContent, payload, replayAddress } from "./payload.js";
import { save } from "./record.js";
import { serverLog } from "./server-log.js";
import { mayChange, onlyOperators } from "./sign-in.js";
import { spansOf, traceparent } from "./spans.js";

const KINDS = { server: "SERVER", client: "CLIENT", internal: "INTERNAL", producer: "PRODUCER", consumer: "CONSUMER" };

/** How many traces a comparison can choose from. */
const ALIKE = 50;

export async function trace(main, { signal, query, rest: [id, other] }) {
  if (other !== undefined) return compare(main, id, other, signal);
  const opened = new Set();
  const show = async () => {
    const [spans, target] = await Promise.all([get(`/api/traces/${encodeURIComponent(id)}`, {}, signal).then(spansOf), where(signal)]);
    if (!signal.aborted) page(main, id, spans, { opened, target, signal });
  };
  try {
    await show();
  } catch (error) {
    if (error.status !== 404) throw error;
    const keeper = query.get("replica");
    const { replica } = await get("/api/traces", { limit: 1 }, signal);
    fill(main, back(), h("h1", null, "Trace"), keeper && keeper !== replica
      ? empty(`The replica ${keeper} keeps this trace`, `This page is of ${replica ?? "a gateway without replicas"}. Open the link at that replica.`)
      : empty("This trace has been evicted", error.message));
    return;
  }
  live.on("traces", ({ traces }) => {
    if (traces.some((one) => one.traceId === id)) show();
  }, signal);
}

function back() {
  return h("p", { class: "back" }, h("a", { href: "#/traces" }, "All traces"));
}

/** The URL that clients use, and whether they need a token. */
async function where(signal) {
  const [{ endpoint }, config] = await Promise.all([get("/api/overview", {}, signal), get("/api/config", {}, signal)]);
  return { endpoint, needsToken: (config.auth?.oauth?.length ?? 0) > 0 || Boolean(config.auth?.keys) };
}

function page(main, id, spans, { opened, target, signal }) {
  const start = spans.reduce((least, span) => (span.startNs < least ? span.startNs : least), spans[0].startNs);
  const total = Math.max(...spans.map((span) => Number(span.startNs - start) / 1e6 + span.durationMs), 0.001);
  const own = spans.filter((span) => !span.isOfServer);
  const top = own[0];
  const focused = document.activeElement?.id;
  fill(main,
    back(),
    h("h1", { class: "mono-title" }, top.name),
    h("div", { class: "facts" },
      fact("Trace", h("span", { class: "mono" }, id)),
      fact("Began", clock(Number(start / 1_000_000n))),
      fact("Took", duration(total)),
      fact("Spans", own.length === spans.length ? String(own.length) : `${own.length}, and ${spans.length - own.length} of servers`),
      client(top),
      h("div", { class: "fact end" }, copyButton("Copy traceparent", traceparent(top)))),
    failure(own),
    again(callOf(own), target, mayChange() && own.some((span) => span.content.length > 0) ? id : null),
    h("div", { class: "legend", "aria-hidden": "true" }, ["server", "client", "internal"].map((kind) => h("span", { class: `key ${kind}` }, KINDS[kind])), h("span", { class: "key failed" }, "failed")),
    h("div", { class: "waterfall card" }, scale(total), h("ol", { class: "spans", "aria-label": "Spans" },
      spans.map((span) => item(span, start, total, opened)))),
    h("section", { class: "after" }, content(own), serverLog(own, signal), alike(id, top, signal)));
  if (focused) document.getElementById(focused)?.focus();
}

function fact(label, value) {
  return h("div", { class: "fact" }, h("span", { class: "label" }, label), value);
}

function client(top) {
  const name = [attribute(top, "fanlight.client.name"), attribute(top, "fanlight.client.version")].filter(Boolean).join(" ");
  const principal = attribute(top, "fanlight.principal");
  if (!name && !principal) return null;
  return fact("Client", h("span", null, name || "–", principal ? h("span", { class: "note" }, ` ${principal}`) : null));
}

/** The first failure message of a tool, a server or Fanlight. */
function failure(spans) {
  const failed = spans.find((span) => span.message !== "");
  return failed ? h("p", { class: "error-text words" }, failed.message) : null;
}

/** The content of the call, or why there is none. */
function content(spans) {
  const shown = payload(spans);
  if (shown.length === 0) {
    return hasContent(spans[0]) ? h("p", { class: "note" }, "Arguments and results of this call are not kept: telemetry.content, or content of its server or endpoint, is off. ", mayChange() ? h("a", { href: "#/traces" }, "Keep it for a time") : null) : null;
  }
  return [mayChange() ? null : onlyOperators("read what was sent and answered"), shown];
}

/** Links and buttons that repeat the call. */
function again(call, target, recorded) {
  const exports = recorded ? [copyButton("Copy as recording", () => recording(recorded)),
    h("button", { type: "button", class: "small", onclick: () => recording(recorded).then(save, (error) => say(error.message)) }, "Export this trace")] : null;
  if (!call) return exports && h("div", { class: "row again" }, exports);
  const isHttp = /^https?:/.test(target.endpoint);
  return h("div", { class: "row again" },
    mayChange() ? h("a", { class: "button", href: replayAddress(call) }, "Replay in the form") : null,
    isHttp ? copyButton("Copy as curl", asCurl(call, target.endpoint, target.needsToken)) : null,
    copyButton("Copy as command", asCommand(call)),
    exports,
    call.isKnown ? null : h("span", { class: "note" }, "without its arguments, which are not kept whole or not for you to read"),
    call.isMasked ? h("span", { class: "note" }, "with [redacted] in place of secrets") : null);
}

/** The trace as a recording. */
const recording = (id) => text(`/api/traces/${encodeURIComponent(id)}/recording`);

/** A menu of traces of the same request, to compare with this one. */
function alike(id, top, signal) {
  const select = h("select", { id: "t-other", onchange: (event) => {
    if (event.target.value) location.hash = `#/traces/${id}/${event.target.value}`;
  } }, h("option", { value: "" }, "choose one"));
  const load = async (event) => {
    if (!event.target.open || select.options.length > 1) return;
    const parameters = { text: top.name, limit: ALIKE };
    const { traces } = await get("/api/traces", parameters, signal);
    const others = traces.filter((one) => one.name === top.name && one.traceId !== id);
    select.append(...others.map((one) => h("option", { value: one.traceId }, `${clock(one.startMs)}, ${duration(one.durationMs)}, ${one.error ?? "ok"}`)));
    if (others.length === 0) select.append(h("option", { value: "", disabled: true }, "there is no other"));
  };
  return h("details", { ontoggle: load }, h("summary", null, "Compare with another trace"),
    h("div", { class: "field endpoint" }, h("label", { for: "t-other" }, "Trace of the same request"), select));
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
    span.backend ? h("span", { class: "chip" }, span.isOfServer ? `by ${span.backend}` : span.backend) : null,
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
    span.droppedEvents ? h("p", { class: "note" }, `and ${plural(span.droppedEvents, "event")} not recorded`) : null,
    span.links.length ? h("section", null, h("h3", null, "Links"), h("ul", null, span.links.map((link) =>
      h("li", { class: "mono" }, h("a", { href: `#/traces/${link.traceId}` }, link.traceId), ` span ${link.spanId}`)))) : null,
    span.isOfServer ? h("p", { class: "note" }, `Reported by ${span.backend} itself, with its own clock; drawn within the request that it answered.`) : h("p", { class: "row" }, copyButton("Copy traceparent", traceparent(span)), h("span", { class: "note mono" }, `span ${span.id}`),
      span.sampled ? null : h("span", { class: "chip" }, "not sampled")),
  ];
}

function pairs(title, all) {
  if (all.length === 0) return null;
  return h("section", null, h("h3", null, title),
    h("dl", { class: "pairs" }, all.map(([key, value]) => [h("dt", null, key), h("dd", null, value)])));
}
