// OTLP-JSON as a tree of spans.

const KINDS = { 1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer" };

/** Limits of a server's own spans: how many are shown, and the length of their texts. */
const MOST_OF_SERVER = 200;
const LONGEST_OF_SERVER = 500;

/** The spans of a trace in display order, parents before children, each with its depth. */
export function spansOf(otlp) {
  const own = listOf(otlp.resourceSpans).map(read);
  for (const message of otlp.content ?? []) own.find((span) => span.id === message.spanId)?.content.push(message);
  const spans = [...own, ...(otlp.serverSpans ?? []).flatMap((one, index) => ofServer(one, index, own))];
  const byId = new Map(spans.map((span) => [span.id, span]));
  const roots = [];
  for (const span of spans) {
    const parent = byId.get(span.parent);
    if (parent && parent !== span) parent.children.push(span);
    else roots.push(span);
  }
  const ordered = [];
  const seen = new Set();
  // An explicit stack: a hostile trace may be arbitrarily deep.
  const stack = sorted(roots).reverse().map((span) => [span, 0]);
  while (stack.length) {
    const [span, depth] = stack.pop();
    if (seen.has(span.id)) continue;
    seen.add(span.id);
    ordered.push({ ...span, depth });
    for (const child of sorted(span.children).reverse()) stack.push([child, depth + 1]);
  }
  return ordered;
}

function listOf(resourceSpans) {
  const list = (value) => (Array.isArray(value) ? value : []);
  return list(resourceSpans).flatMap((resource) => list(resource?.scopeSpans).flatMap((scope) => list(scope?.spans)));
}

/** The spans that a server returned, placed below the span of the request that it answered. Their content is untrusted. */
function ofServer({ backend, spanId, resourceSpans }, index, own) {
  const above = own.find((span) => span.id === spanId);
  if (!above) return [];
  const place = (id) => `${index}-${String(id).slice(0, 64)}`;
  const given = listOf(resourceSpans).slice(0, MOST_OF_SERVER).map((span) => {
    try {
      return read({ kind: 0, ...span, spanId: place(span.spanId), parentSpanId: span.parentSpanId ? place(span.parentSpanId) : "" });
    } catch {
      return null;
    }
  }).filter((span) => span !== null && typeof span.name === "string" && Number.isFinite(span.durationMs));
  const known = new Set(given.map((span) => span.id));
  const cut = (text) => (String(text).length > LONGEST_OF_SERVER ? `${String(text).slice(0, LONGEST_OF_SERVER)}…` : String(text));
  const endNs = above.startNs + BigInt(Math.round(above.durationMs * 1e6));
  const within = (at) => (at < above.startNs ? above.startNs : at > endNs ? endNs : at);
  return given.map((span) => {
    // The server's clock may differ, so its spans are drawn within the request.
    const startNs = within(span.startNs);
    const end = within(span.startNs + BigInt(Math.round(Math.max(0, span.durationMs) * 1e6)));
    return {
      ...span, startNs, name: cut(span.name), message: cut(span.message), error: span.error === undefined ? undefined : cut(span.error),
      parent: known.has(span.parent) && span.parent !== span.id ? span.parent : above.id,
      durationMs: Number(end - startNs) / 1e6,
      attributes: span.attributes.slice(0, 50).map(([key, value]) => [cut(key), cut(value)]),
      events: [], links: [], backend, isOfServer: true,
    };
  });
}

function sorted(spans) {
  return [...spans].sort((a, b) => Number(a.startNs - b.startNs));
}

function read(span) {
  const startNs = BigInt(span.startTimeUnixNano ?? 0);
  const endNs = BigInt(span.endTimeUnixNano ?? 0);
  const attributes = (span.attributes ?? []).map(({ key, value }) => [key, valueOf(value)]);
  return {
    id: span.spanId,
    traceId: span.traceId,
    parent: span.parentSpanId ?? "",
    name: span.name,
    kind: KINDS[span.kind] ?? "internal",
    startNs,
    durationMs: Number(endNs - startNs) / 1e6,
    attributes,
    events: (span.events ?? []).map((event) => ({
      name: event.name,
      offsetMs: Number(BigInt(event.timeUnixNano ?? 0) - startNs) / 1e6,
      attributes: (event.attributes ?? []).map(({ key, value }) => [key, valueOf(value)]),
    })),
    droppedEvents: span.droppedEventsCount ?? 0,
    links: (span.links ?? []).map((link) => ({ traceId: link.traceId, spanId: link.spanId })),
    sampled: ((span.flags ?? 0) & 1) === 1,
    failed: span.status?.code === 2,
    message: span.status?.message || (attributes.find(([key]) => key === "fanlight.error.message")?.[1] ?? ""),
    // A mistake of the sender has only a code, no `error.type`.
    error: (attributes.find(([key]) => key === "error.type") ?? attributes.find(([key]) => key === "rpc.response.status_code"))?.[1],
    backend: attributes.find(([key]) => key === "fanlight.backend.name")?.[1],
    content: [],
    children: [],
  };
}

function valueOf(value) {
  if (value === undefined || value === null) return "";
  if (typeof value !== "object") return String(value);
  if ("arrayValue" in value) return (value.arrayValue.values ?? []).map(valueOf).join(", ");
  const [first] = Object.values(value);
  return String(first);
}

/** The `traceparent` that makes another request a child of a span. */
export function traceparent(span) {
  return `00-${span.traceId}-${span.id}-${span.sampled ? "01" : "00"}`;
}
