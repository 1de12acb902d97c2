// A form made from a JSON Schema, and the same arguments as JSON text.

import { fill, h } from "../dom.js";
import { compact, pretty } from "../json.js";
import { grouped, optional, Purpose } from "./field.js";
import { fileField, isFile } from "./files.js";
import { alternatives, choices, isObject, joined, listOf, MOST, resolved, typeOf } from "./schema.js";
import { arrayField, mapField } from "./several.js";
import { booleanField, choiceField, constantField, jsonField, numberField, stringField } from "./simple.js";
import { unionField } from "./union.js";

/** The limits on how much of a schema becomes fields. Arrays, maps and shapes create their fields on demand. */
class Context {
  constructor(document, left = { fields: MOST.fields }, depth = 0) {
    Object.assign(this, { document, left, depth });
  }

  deeper() {
    return new Context(this.document, this.left, this.depth + 1);
  }

  /** The field for a value of this schema. */
  field(name, given, options) {
    const { schema, isNullable } = resolved(given, this.document);
    const purpose = new Purpose(name, schema, { ...options, isNullable: isNullable || options?.isNullable });
    this.left.fields -= 1;
    if (this.depth > MOST.depth || this.left.fields < 0) return jsonField(purpose);
    if (Object.hasOwn(schema, "const")) return constantField(purpose);
    const options_ = choices(schema);
    if (options_) return options_.length <= MOST.choices ? choiceField(purpose, options_) : jsonField(purpose);
    if (alternatives(schema)) return isUnion(schema, this.document) ? unionField(purpose, this) : jsonField(purpose);
    switch (typeOf(schema)) {
      case "string": return isFile(schema) ? fileField(purpose) : stringField(purpose);
      case "integer":
      case "number": return numberField(purpose);
      case "boolean": return booleanField(purpose);
      case "array": return arrayField(purpose, this);
      case "object": return objectField(purpose, this);
      default: return jsonField(purpose);
    }
  }
}

/** Whether each alternative states its type or values. */
function isUnion(schema, document) {
  return alternatives(schema).length <= MOST.variants
    && alternatives(schema).every((one) => typeOf(joined(schema, resolved(one, document).schema)) !== undefined || Array.isArray(one?.enum) || isObject(one) && Object.hasOwn(one, "const"));
}

function hasProperties(schema) {
  const count = isObject(schema.properties) ? Object.keys(schema.properties).length : 0;
  return count > 0 && count <= MOST.fields;
}

function objectField(purpose, context) {
  const { schema } = purpose;
  if (hasProperties(schema)) {
    const inside = propertyFields(schema, purpose.given, context.deeper());
    const { element } = grouped(purpose, "", inside.element);
    const read = (problems) => {
      const members = inside.read(problems);
      return members.length > 0 ? `{${members.join(",")}}` : purpose.absent("{}");
    };
    return optional(purpose, { element, read });
  }
  const isMap = !isObject(schema.properties) && isObject(schema.additionalProperties);
  return isMap ? mapField(purpose, context) : jsonField(purpose, "{}");
}

/** The fields for the properties of an object, required ones first. */
function propertyFields(schema, given, context) {
  const required = new Set(listOf(schema.required));
  const properties = Object.entries(schema.properties).sort(([a], [b]) => Number(required.has(b)) - Number(required.has(a)));
  const values = isObject(given) ? given : {};
  const fields = properties.map(([name, one]) =>
    [name, context.field(name, one, { isRequired: required.has(name), given: Object.hasOwn(values, name) ? values[name] : undefined })]);
  const read = (problems) => fields.map(([name, field]) => [name, field.read(problems)])
    .filter(([, text]) => text !== undefined).map(([name, text]) => `${JSON.stringify(name)}:${text}`);
  return { element: h("div", { class: "fields" }, fields.map(([, field]) => field.element)), read };
}

/** The fields for arguments, or null if there are none. */
function fieldsOf(top, document, given) {
  const context = new Context(document);
  if (hasProperties(top) && !alternatives(top)) {
    const inside = propertyFields(top, given, context);
    return { element: inside.element, read: (problems) => `{${inside.read(problems).join(",")}}` };
  }
  const isOpen = top.additionalProperties !== undefined && top.additionalProperties !== false;
  const isEmpty = !isObject(top.properties) || Object.keys(top.properties).length === 0;
  if (isEmpty && !isOpen && !alternatives(top)) return null;
  const field = isEmpty && isOpen || alternatives(top)
    ? context.field("Arguments", { ...top, type: "object" }, { isRequired: true, given })
    : jsonField(new Purpose("Arguments", top, { isRequired: true, given }), "{}");
  return field;
}

/**
 * The form for the arguments of an object schema. `given` is the JSON text of initial arguments. `read` returns the
 * arguments' JSON text; if they are invalid, it shows the errors, moves the focus there and returns undefined.
 */
export function argumentForm(schema, given = undefined) {
  const document = isObject(schema) ? schema : {};
  const top = resolved(document, document).schema;
  const place = h("div", null);
  const toggle = h("button", { type: "button", class: "small", "aria-pressed": "false" }, "As JSON");
  let fields;
  let raw = null;
  const showFields = (value) => {
    raw = null;
    fields = fieldsOf(top, document, value);
    fill(place, fields ? fields.element : h("p", { class: "note" }, "It takes no arguments."));
  };
  const showRaw = (text) => {
    raw = h("textarea", { rows: 10, class: "mono", id: "arguments-json", value: text, spellcheck: false });
    fill(place, h("div", { class: "field" }, h("label", { for: raw.id }, "Arguments as JSON"), raw));
  };
  const mark = () => toggle.setAttribute("aria-pressed", String(raw !== null));
  const wrong = h("p", { class: "error-text field-error", role: "alert", hidden: true });
  const complain = (message) => {
    wrong.textContent = message;
    wrong.hidden = false;
    raw?.focus();
    return undefined;
  };
  toggle.addEventListener("click", () => {
    wrong.hidden = true;
    if (raw === null) {
      const text = fields?.read([]) ?? "{}";
      showRaw(pretty(text));
    } else {
      const value = objectOf(raw.value);
      if (value === undefined) return void complain("Arguments must be a JSON object");
      showFields(value);
    }
    mark();
    place.querySelector("input, select, textarea")?.focus();
  });
  // Start with the raw text if fields would change how numbers are written.
  const start = given === undefined ? undefined : objectOf(given);
  const isExact = start !== undefined && JSON.stringify(start) === compact(given);
  if (given !== undefined && !isExact) showRaw(start === undefined ? given : pretty(given));
  else showFields(start);
  mark();
  const read = () => {
    wrong.hidden = true;
    if (raw !== null) return objectOf(raw.value) === undefined ? complain("Arguments must be a JSON object") : raw.value.trim();
    if (fields === null) return "{}";
    const problems = [];
    const text = fields.read(problems);
    if (problems.length === 0) return text ?? "{}";
    wrong.textContent = problems.length === 1 ? problems[0].message : `${problems.length} fields need another value`;
    wrong.hidden = false;
    problems[0].control.focus();
    return undefined;
  };
  return { element: h("div", { class: "fields" }, fields === null ? null : h("div", { class: "row" }, h("span", { class: "end" }, toggle)), place, wrong), read, isEmpty: fields === null };
}

function objectOf(text) {
  try {
    const value = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
