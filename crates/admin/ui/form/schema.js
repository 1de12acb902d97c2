// Reads the JSON Schema of a server. It is untrusted: recursive, huge, or no schema at all. So
// everything is bounded, and its patterns are never run.

/** The limits on how much of a schema becomes fields; the user enters the rest as JSON. */
export const MOST = { depth: 5, fields: 200, choices: 500, items: 100, text: 4000, variants: 50 };

const HOPS = 8;

export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An own member of an object; never an inherited one. */
export function own(object, name) {
  return isObject(object) && Object.hasOwn(object, name) ? object[name] : undefined;
}

/** A text from a schema, cut to a readable length. */
export function words(text) {
  if (typeof text !== "string") return undefined;
  return text.length > MOST.text ? `${text.slice(0, MOST.text)}…` : text;
}

/** A schema with its references and `allOf` resolved; `isNullable` tells whether null is an alternative. */
export function resolved(given, document) {
  let schema = merged(followed(given, document), document);
  let isNullable = Array.isArray(schema.type) && schema.type.includes("null");
  const choices = alternatives(schema);
  if (choices) {
    const others = choices.filter((one) => own(one, "type") !== "null");
    isNullable ||= others.length < choices.length;
    if (others.length === 1) {
      const { anyOf, oneOf, ...rest } = schema;
      schema = { ...merged(followed(others[0], document), document), ...rest };
    }
  }
  return { schema, isNullable };
}

/** The schema that a reference within the document names, joined with the members beside the reference. */
function followed(given, document) {
  let now = given;
  let beside = {};
  for (let hops = 0; isObject(now) && typeof now.$ref === "string"; hops += 1) {
    if (hops === HOPS || !now.$ref.startsWith("#")) return beside;
    const { $ref, ...rest } = now;
    beside = { ...rest, ...beside };
    now = target($ref, document);
  }
  return isObject(now) ? { ...now, ...beside } : beside;
}

function target(reference, document) {
  let at = document;
  for (const part of reference.slice(1).split("/").slice(1)) {
    let name = part;
    try {
      name = decodeURIComponent(part);
    } catch {
      // Use the reference as written.
    }
    name = name.replaceAll("~1", "/").replaceAll("~0", "~");
    at = Array.isArray(at) ? at[Number(name)] : own(at, name);
  }
  return at;
}

function merged(schema, document) {
  if (!Array.isArray(schema.allOf)) return schema;
  const { allOf, ...rest } = schema;
  return allOf.slice(0, MOST.variants).reduce((all, part) => joined(all, followed(part, document)), rest);
}

/** The schema that requires both of two schemas. */
export function joined(one, other) {
  const properties = isObject(one.properties) || isObject(other.properties) ? { ...one.properties, ...other.properties } : undefined;
  const required = [...listOf(one.required), ...listOf(other.required)];
  return { ...one, ...other, ...(properties && { properties }), ...(required.length > 0 && { required }) };
}

export function listOf(value) {
  return Array.isArray(value) ? value : [];
}

/** The alternatives of a schema. */
export function alternatives(schema) {
  return [schema.oneOf, schema.anyOf].find((one) => Array.isArray(one) && one.length > 0);
}

/** The only type of a schema, if it can be known. */
export function typeOf(schema) {
  const types = listOf(Array.isArray(schema.type) ? schema.type : [schema.type]).filter((one) => one !== "null");
  if (types.length === 1 && typeof types[0] === "string") return types[0];
  if (isObject(schema.properties)) return "object";
  return undefined;
}

/** The values to choose from, each with its text; undefined if the schema offers no choice. */
export function choices(schema) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  if (Array.isArray(schema.enum)) {
    const names = listOf(schema.enumNames);
    return schema.enum.map((value, at) => [value, words(typeof names[at] === "string" ? names[at] : text(value))]);
  }
  const titled = alternatives(schema)?.filter((one) => own(one, "type") !== "null");
  if (!titled?.length || !titled.every((one) => isObject(one) && Object.hasOwn(one, "const"))) return undefined;
  return titled.map((one) => [one.const, words(one.title) ?? words(text(one.const))]);
}
