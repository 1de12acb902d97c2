// The tools of each set, and the effects of their calls.

const object = (properties, required = []) => ({ type: "object", properties, required });

/** A schema with every kind of value that a form must produce. */
const EVERYTHING = {
  type: "object",
  required: ["name", "shape", "tags", "nothing", "none", "free"],
  properties: {
    name: { type: "string", description: "Who it is for", minLength: 2 },
    size: { type: "integer", minimum: 1, maximum: 9 },
    ratio: { type: "number" },
    tags: { type: "array", items: { type: "string" }, minItems: 1 },
    days: { type: "array", items: { enum: ["mon", "tue", "wed"] } },
    people: { type: "array", items: object({ first: { type: "string" }, age: { type: "integer" } }, ["first"]) },
    labels: { type: "object", additionalProperties: { type: "integer" } },
    shape: {
      oneOf: [
        { title: "circle", ...object({ kind: { const: "circle" }, radius: { type: "number" } }, ["kind", "radius"]) },
        { title: "square", ...object({ kind: { const: "square" }, side: { type: "number" } }, ["kind", "side"]) },
      ],
    },
    level: { anyOf: [{ const: "low", title: "Low" }, { const: "high", title: "High" }] },
    note: { anyOf: [{ type: "string" }, { type: "null" }] },
    day: { type: "string", format: "date" },
    at: { type: "string", format: "date-time" },
    file: { type: "string", contentEncoding: "base64", contentMediaType: "text/plain" },
    nested: object({ inner: object({ deep: { type: "boolean" } }) }),
    tree: { $ref: "#/$defs/node" },
    // A form sends these only once somebody has filled them in, whatever the defaults inside are.
    options: { anyOf: [object({ depth: { type: "integer", default: 2 } }), { type: "null" }], default: null },
    either: { oneOf: [object({ kind: { const: "a" } }), object({ kind: { const: "b" }, deep: { type: "boolean", default: true } })] },
    extra: object({ mode: { type: "string", default: "fast" } }),
    nothing: { type: ["object", "null"], properties: { level: { type: "integer", default: 1 } } },
    none: { type: ["array", "null"], items: { type: "string" } },
    free: { anyOf: [{ type: "object", additionalProperties: { type: "string" } }, { type: "null" }] },
  },
  $defs: { node: object({ value: { type: "string" }, children: { type: "array", items: { $ref: "#/$defs/node" } } }) },
};

const FORM = object({ who: { type: "string", title: "Your name" }, often: { type: "integer", minimum: 1, default: 2 }, how: { type: "string", enum: ["a", "b"], enumNames: ["First", "Second"] } }, ["who"]);

function forms() {
  let cancelled = 0;
  const empty = object({});
  const tools = [
    { name: "everything", description: "Returns its arguments.", inputSchema: EVERYTHING },
    { name: "remove_all", description: "Removes.", inputSchema: empty, annotations: { destructiveHint: true } },
    { name: "only_reads", description: "Removes nothing.", inputSchema: empty, annotations: { destructiveHint: true, readOnlyHint: true } },
    { name: "count_slowly", description: "Counts until it is cancelled.", inputSchema: empty },
    { name: "count_cancelled", description: "How many calls were cancelled.", inputSchema: empty },
    { name: "ask_form", description: "Asks for a name.", inputSchema: empty },
    { name: "ask_visit", description: "Asks for a visit.", inputSchema: object({ url: { type: "string" } }) },
    { name: "ask_model", description: "Asks for a language model.", inputSchema: empty },
  ];
  const call = async (name, given, client) => {
    switch (name) {
      case "everything": return given;
      case "remove_all": case "only_reads": return "removed";
      case "count_cancelled": return `cancelled: ${cancelled}`;
      case "ask_form": return client.ask("elicitation/create", { mode: "form", message: "<b>Who</b> are you?", requestedSchema: FORM });
      case "ask_visit": return client.ask("elicitation/create", { mode: "url", elicitationId: "e1", message: "Please sign in.", url: given.url ?? "https://sign-in.example/path?x=1" });
      case "ask_model": return client.ask("sampling/createMessage", { messages: [], maxTokens: 1 });
      default: {
        let isOver = false;
        client.cancelled.then(() => {
          isOver = true;
          cancelled += 1;
        });
        for (let progress = 1; !isOver; progress += 1) {
          client.progress({ progress, total: 1000, message: `step ${progress}` });
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        return undefined;
      }
    }
  };
  return { tools, call };
}

/** A whole result; other results are just a text. */
export class Whole {
  constructor(result) {
    this.result = result;
  }
}

/** Everything that a trace can show: arguments, failures, lines on standard error, and the server's own spans (SEP-2448). */
function traced() {
  const names = ["echo", "fail", "wait", "own_spans"];
  const tools = names.map((name) => ({ name, inputSchema: object({ word: { type: "string" }, token: { type: "string" } }) }));
  const call = async (name, given, client) => {
    console.error(`called: ${name}`);
    switch (name) {
      case "fail": return new Whole({ isError: true, content: [{ type: "text", text: `no such word: ${given.word} <img src=x>\nmore` }] });
      case "wait": return client.cancelled.then(() => undefined);
      case "own_spans": {
        const span = (id, parent, more) => ({ traceId: "0".repeat(31) + "1", spanId: id, parentSpanId: parent, name: `span ${id}`, startTimeUnixNano: "1", endTimeUnixNano: "2", ...more });
        // The last two spans are each other's parents, and one span has no name.
        const spans = [span("a", "", { name: "read <img src=x>" }), span("b", "a"), span("c", "d"), span("d", "c"), span("e", "", { name: 7 }), null];
        return new Whole({ content: [], _meta: { otel: { traces: { resourceSpans: [{ scopeSpans: [{ spans }] }, 7] } } } });
      }
      default: return given.word ?? "";
    }
  };
  return { tools, call };
}

function many() {
  const tools = Array.from({ length: 500 }, (_, at) => ({ name: `tool_${at}`, description: at === 321 ? "finds a needle in hay" : "hay", inputSchema: object({}) }));
  return { tools, call: async () => "done" };
}

/** Texts and schemas that must neither become markup nor stop the page. */
function hostile() {
  const EVIL = '<img src=x onerror="complain(\'markup\')"><script>complain("script")</script>';
  let deep = { type: "string" };
  for (let level = 0; level < 40; level += 1) deep = object({ in: deep });
  const loop = { $ref: "#/$defs/a" };
  const names = Array.from({ length: 10_000 }, (_, at) => [`p${at}`, { type: "string", description: EVIL }]);
  const properties = { constructor: { type: "string" }, toString: { type: "integer" }, [EVIL]: { type: "string", title: EVIL, description: EVIL }, choice: { enum: [EVIL, "b"] } };
  // Defines an own property called `__proto__`, which an object literal cannot.
  Object.defineProperty(properties, "__proto__", { value: { type: "string", default: "polluted" }, enumerable: true });
  const tools = [
    { name: "evil_texts", title: EVIL, description: EVIL.repeat(2000), inputSchema: object(properties) },
    { name: "deep", inputSchema: object({ in: deep }) },
    { name: "loops", inputSchema: { ...object({ one: loop, list: { type: "array", items: loop }, self: { $ref: "#" }, all: { allOf: [loop, { $ref: "#" }] } }), $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } } },
    { name: "wide", inputSchema: { type: "object", properties: Object.fromEntries(names) } },
    { name: "many_choices", inputSchema: object({ one: { enum: names.map(([name]) => name) }, shapes: { oneOf: names.slice(0, 5000).map(([name]) => ({ title: name, ...object({ [name]: { const: name } }) })) } }) },
    { name: "bad_pattern", inputSchema: object({ text: { type: "string", pattern: "^(a+)+$" } }) },
    { name: "invoice_\u202egnp.exe", title: "a\u2066b", inputSchema: { type: "object" } },
    { name: "no_schema", inputSchema: { type: "object", properties: { x: { type: 7 }, y: { type: null }, z: { type: [] }, w: { type: ["string", "integer", 7] }, v: { enum: "x" }, u: { oneOf: {} }, t: { anyOf: [null, 7] }, s: { $ref: 7 }, r: { required: 7, properties: { q: true } }, p: { type: "array", items: 7 } } } },
  ];
  return { tools, call: async (name, given) => given };
}

export const sets = { forms, traced, many, hostile };
