// OTLP-JSON as a tree of spans.

const KINDS = { 1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer" };

/** The spans of a trace in display order, parents before children, each with its depth. */
export function spansOf(otlp) {
  const all = (otlp.resourceSpans ?? []).flatMap((resource) => (resource.scopeSpans ?? []).flatMap((scope) => scope.spans ?? []));
  const spans = all.map(read);
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
    message: span.status?.message ?? "",
    error: attributes.find(([key]) => key === "error.type")?.[1],
    backend: attributes.find(([key]) => key === "fanlight.backend.name")?.[1],
    children: [],
  };
}

function valueOf(value) {
  if (value === undefined || value === null) return "";
  if ("arrayValue" in value) return (value.arrayValue.values ?? []).map(valueOf).join(", ");
  const [first] = Object.values(value);
  return String(first);
}

/** The `traceparent` by which another request becomes a child of a span. */
export function traceparent(span) {
  return `00-${span.traceId}-${span.id}-${span.sampled ? "01" : "00"}`;
}
