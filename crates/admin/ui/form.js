// A form made from a JSON Schema. Values without a suitable field are entered as JSON.

import { h } from "./dom.js";

/** A field whose value cannot be sent. */
export class FieldError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

const DEEPEST = 4;
/** Further fields are entered as JSON: a recursive schema has no end. */
const MOST_FIELDS = 200;
let last = 0;

/** The form for the arguments of a schema of an object: its element, and `read` for the JSON text. */
export function argumentForm(schema) {
  const top = plainObject(schema) ? schema : {};
  const whole = objectField(top, [], { document: top, left: MOST_FIELDS }, 0);
  if (whole.empty) return { element: h("p", { class: "note" }, "It takes no arguments."), read: () => "{}" };
  return { element: whole.element, read: () => whole.read() ?? "{}" };
}

function plainObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A schema with its `$ref` resolved within the document, and a `null` alternative removed. */
function resolved(schema, root, deep = 0) {
  let now = schema;
  for (let hops = 0; plainObject(now) && typeof now.$ref === "string" && hops < 8; hops += 1) {
    const path = now.$ref.startsWith("#/") ? now.$ref.slice(2).split("/") : ["\u0000"];
    now = path.map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~")).reduce((at, part) => (plainObject(at) && Object.hasOwn(at, part) ? at[part] : undefined), root.document);
  }
  if (!plainObject(now)) return {};
  const choices = now.anyOf ?? now.oneOf;
  if (Array.isArray(choices)) {
    const others = choices.filter((one) => one?.type !== "null");
    if (others.length === 1 && deep < DEEPEST) return { ...now, ...resolved(others[0], root, deep + 1) };
  }
  return now;
}

function typeOf(schema) {
  const type = Array.isArray(schema.type) ? schema.type.filter((one) => one !== "null") : [schema.type];
  if (type.length === 1 && typeof type[0] === "string") return type[0];
  return plainObject(schema.properties) ? "object" : undefined;
}

function objectField(schema, path, root, depth) {
  const properties = plainObject(schema.properties) ? Object.entries(schema.properties) : [];
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const isOpen = schema.additionalProperties !== undefined && schema.additionalProperties !== false;
  if (properties.length === 0 || properties.length > MOST_FIELDS) {
    // Its members are unknown: it is entered as a whole, unless it is known to have none.
    const free = path.length > 0 || properties.length > 0 || isOpen || schema.anyOf || schema.oneOf || schema.allOf;
    if (!free) return { empty: true };
    const field = jsonField(path.at(-1) ?? "Arguments", schema, "{}");
    return { element: field.element, read: field.read };
  }
  // Required members first, otherwise in the order of the schema.
  properties.sort(([a], [b]) => Number(required.has(b)) - Number(required.has(a)));
  const fields = properties.map(([name, one]) => [name, fieldFor(name, resolved(one, root), required.has(name), [...path, name], root, depth)]);
  const read = () => {
    const members = [];
    for (const [name, field] of fields) {
      const value = field.read();
      if (value !== undefined) members.push(`${JSON.stringify(name)}:${value}`);
    }
    return members.length || path.length === 0 ? `{${members.join(",")}}` : undefined;
  };
  return { element: h("div", { class: "fields" }, fields.map(([, field]) => field.element)), read };
}

function fieldFor(name, schema, required, path, root, depth) {
  if (Array.isArray(schema.enum)) return choice(name, schema, required, schema.enum.map((value) => [value, String(typeof value === "string" ? value : JSON.stringify(value))]));
  const titled = Array.isArray(schema.oneOf) ? schema.oneOf : undefined;
  if (titled?.length && titled.every((one) => plainObject(one) && "const" in one)) {
    return choice(name, schema, required, titled.map((one) => [one.const, one.title ?? String(one.const)]));
  }
  root.left -= 1;
  switch (typeOf(schema)) {
    case "string": return stringField(name, schema, required);
    case "integer":
    case "number": return numberField(name, schema, required);
    case "boolean": return choice(name, schema, required, [[true, "true"], [false, "false"]]);
    case "array": return arrayField(name, schema, required, root);
    case "object": {
      if (depth < DEEPEST && root.left > 0 && plainObject(schema.properties) && Object.keys(schema.properties).length > 0) {
        const inner = objectField(schema, path, root, depth + 1);
        return {
          element: h("fieldset", null, h("legend", null, name, required ? star() : null), about(schema), inner.element),
          read: () => inner.read() ?? (required ? "{}" : undefined),
        };
      }
      return jsonField(name, schema, "{}", required);
    }
    default: return jsonField(name, schema, "", required);
  }
}

function star() {
  return h("span", { class: "star", title: "required" }, " *", h("span", { class: "hidden" }, "(required)"));
}

function about(schema, id) {
  return typeof schema.description === "string" ? h("p", { class: "note", id }, schema.description) : null;
}

/** A label, a control and its description. */
function labelled(name, schema, required, control, kind) {
  last += 1;
  control.id = `argument-${last}`;
  const help = about(schema, `${control.id}-help`);
  if (help) control.setAttribute("aria-describedby", help.id);
  if (required) control.setAttribute("aria-required", "true");
  const title = typeof schema.title === "string" && schema.title !== name ? schema.title : null;
  return h("div", { class: "field" },
    h("label", { for: control.id }, h("span", { class: "mono" }, name), title ? ` ${title}` : null, required ? star() : null, h("span", { class: "type" }, kind)),
    control, help);
}

function missing(control, name) {
  return new FieldError(control, `${name} is required`);
}

function stringField(name, schema, required) {
  const given = typeof schema.default === "string" ? schema.default : "";
  const long = given.includes("\n") || (schema.maxLength ?? 0) > 200;
  const control = long ? h("textarea", { rows: 4, value: given }) : h("input", { type: "text", value: given, autocomplete: "off", spellcheck: false });
  if (Array.isArray(schema.examples) && typeof schema.examples[0] === "string") control.placeholder = schema.examples[0];
  const read = () => {
    if (control.value !== "") return JSON.stringify(control.value);
    if (required && (schema.minLength ?? 0) > 0) throw missing(control, name);
    return required ? '""' : undefined;
  };
  return { element: labelled(name, schema, required, control, schema.format ?? "string"), read };
}

function numberField(name, schema, required) {
  const kind = typeOf(schema);
  const control = h("input", { type: "text", inputMode: kind === "integer" ? "numeric" : "decimal", value: schema.default ?? "", autocomplete: "off" });
  const read = () => {
    const text = control.value.trim();
    if (text === "") {
      if (required) throw missing(control, name);
      return undefined;
    }
    const valid = kind === "integer" ? /^-?(0|[1-9]\d*)$/ : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
    if (!valid.test(text)) throw new FieldError(control, `${name} must be ${kind === "integer" ? "a whole number" : "a number"}`);
    if (typeof schema.minimum === "number" && Number(text) < schema.minimum) throw new FieldError(control, `${name} must be ${schema.minimum} or more`);
    if (typeof schema.maximum === "number" && Number(text) > schema.maximum) throw new FieldError(control, `${name} must be ${schema.maximum} or less`);
    return text;
  };
  return { element: labelled(name, schema, required, control, kind), read };
}

function choice(name, schema, required, options) {
  const control = h("select", null, required && options.length === 1 ? null : h("option", { value: "" }, required ? "choose…" : "(none)"),
    options.map(([value, text], at) => h("option", { value: String(at), selected: schema.default !== undefined && schema.default === value }, text)));
  const read = () => {
    if (control.value !== "") return JSON.stringify(options[Number(control.value)][0]);
    if (required) throw missing(control, name);
    return undefined;
  };
  return { element: labelled(name, schema, required, control, typeOf(schema) ?? "one of"), read };
}

/** Texts and numbers one per line; everything else as JSON. */
function arrayField(name, schema, required, root) {
  const items = resolved(schema.items ?? {}, root);
  const kind = typeOf(items);
  const simple = !Array.isArray(items.enum) && ["string", "integer", "number"].includes(kind);
  if (!simple) return jsonField(name, schema, "[]", required);
  const given = Array.isArray(schema.default) ? schema.default.join("\n") : "";
  const control = h("textarea", { rows: 3, value: given, spellcheck: false, placeholder: "one per line" });
  const read = () => {
    const lines = control.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (lines.length === 0) return required ? "[]" : undefined;
    const texts = lines.map((line) => {
      if (kind === "string") return JSON.stringify(line);
      if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(line)) throw new FieldError(control, `${name} must have one number per line`);
      return line;
    });
    return `[${texts.join(",")}]`;
  };
  return { element: labelled(name, schema, required, control, `array of ${kind}`), read };
}

function jsonField(name, schema, stands, required = false) {
  const given = schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2);
  const control = h("textarea", { rows: 4, class: "mono", value: given, spellcheck: false, placeholder: stands || "any JSON value" });
  const read = () => {
    const text = control.value.trim();
    if (text === "") {
      if (required && !stands) throw missing(control, name);
      return required ? stands : undefined;
    }
    try {
      JSON.parse(text);
    } catch (error) {
      throw new FieldError(control, `${name} is no JSON: ${error.message}`);
    }
    return text;
  };
  return { element: labelled(name, schema, required, control, "JSON"), read };
}
