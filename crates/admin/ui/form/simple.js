// Fields of one value: texts, numbers, choices, dates, and JSON.

import { h } from "../dom.js";
import { framed } from "./field.js";
import { choices, typeOf } from "./schema.js";

const WHOLE = /^-?(0|[1-9]\d*)$/;
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
/** Input types of the browser for formats of JSON Schema. */
const TYPES = { date: "date", "date-time": "datetime-local", email: "email", uri: "url" };

export function stringField(purpose) {
  const { schema, name } = purpose;
  const format = typeof schema.format === "string" ? schema.format : undefined;
  const given = typeof purpose.given === "string" ? purpose.given : "";
  const type = TYPES[format] ?? "text";
  const isMoment = type === "datetime-local";
  const start = isMoment ? local(given) : given;
  // A field for dates would lose a value that it cannot show.
  if ((isMoment && start === undefined) || (type === "date" && given !== "" && !/^\d{4}-\d\d-\d\d$/.test(given))) {
    return textField(purpose, h("input", { type: "text", value: given, autocomplete: "off" }), format);
  }
  if (type === "text" && (given.includes("\n") || schema.maxLength > 200)) return textField(purpose, h("textarea", { rows: 4, value: given }), format);
  const control = h("input", { type, value: start, autocomplete: "off", spellcheck: false });
  if (isMoment) {
    control.step = "1";
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const field = framed(purpose, control, `date-time, in ${zone}`);
    const read = (problems) => {
      field.clear();
      if (control.value !== "") return JSON.stringify(new Date(control.value).toISOString());
      return purpose.isRequired && !purpose.isNullable ? field.fail(problems, `${name} is required`) : purpose.absent("null");
    };
    return { element: field.element, read };
  }
  return textField(purpose, control, format);
}

/** A moment in the browser's time zone, in the form of its field; undefined if the text is not a moment. */
function local(text) {
  if (text === "") return "";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return undefined;
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function textField(purpose, control, format) {
  const { schema, name, isRequired, isNullable } = purpose;
  if (Array.isArray(schema.examples) && typeof schema.examples[0] === "string") control.placeholder = schema.examples[0].slice(0, 200);
  const field = framed(purpose, control, format ? format.slice(0, 40) : "string");
  const read = (problems) => {
    field.clear();
    const text = control.value;
    if (text === "") {
      const isNeeded = isRequired && !isNullable && (schema.minLength > 0 || format !== undefined || control.type === "date");
      return isNeeded ? field.fail(problems, `${name} is required`) : purpose.absent('""');
    }
    const length = [...text].length;
    if (length < schema.minLength) return field.fail(problems, `${name} must have ${schema.minLength} characters or more`);
    if (length > schema.maxLength) return field.fail(problems, `${name} must have ${schema.maxLength} characters or less`);
    if (format === "email" && !/^[^@\s]+@[^@\s]+$/.test(text)) return field.fail(problems, `${name} must be an address such as ann@example.com`);
    if (format === "uri" && !URL.canParse(text)) return field.fail(problems, `${name} must be a URI with its scheme`);
    return JSON.stringify(text);
  };
  return { element: field.element, read };
}

export function numberField(purpose) {
  const { schema, name } = purpose;
  const kind = typeOf(schema);
  const start = typeof purpose.given === "number" ? String(purpose.given) : "";
  const control = h("input", { type: "text", inputMode: kind === "integer" ? "numeric" : "decimal", value: start, autocomplete: "off" });
  const field = framed(purpose, control, kind);
  const read = (problems) => {
    field.clear();
    const text = control.value.trim();
    if (text === "") return purpose.isRequired && !purpose.isNullable ? field.fail(problems, `${name} is required`) : purpose.absent("null");
    const wrong = wrongNumber(text, schema, kind);
    return wrong ? field.fail(problems, `${name} ${wrong}`) : text;
  };
  return { element: field.element, read };
}

/** The problem with a number's text, if any. The form sends the text itself, so that 1.0 stays 1.0. */
function wrongNumber(text, { minimum, maximum, exclusiveMinimum, exclusiveMaximum }, kind) {
  if (!(kind === "integer" ? WHOLE : NUMBER).test(text)) return `must be ${kind === "integer" ? "a whole number" : "a number"}`;
  const value = Number(text);
  if (typeof minimum === "number" && value < minimum) return `must be ${minimum} or more`;
  if (typeof maximum === "number" && value > maximum) return `must be ${maximum} or less`;
  if (typeof exclusiveMinimum === "number" && value <= exclusiveMinimum) return `must be more than ${exclusiveMinimum}`;
  if (typeof exclusiveMaximum === "number" && value >= exclusiveMaximum) return `must be less than ${exclusiveMaximum}`;
  return undefined;
}

/** A choice among several values. */
export function choiceField(purpose, options = choices(purpose.schema)) {
  const { name, isRequired, isNullable } = purpose;
  const chosen = options.findIndex(([value]) => purpose.given !== undefined && JSON.stringify(value) === JSON.stringify(purpose.given));
  const control = h("select", null,
    isRequired && options.length === 1 ? null : h("option", { value: "" }, isRequired && !isNullable ? "choose…" : "(none)"),
    options.map(([, text], at) => h("option", { value: String(at), selected: at === chosen }, text)));
  const field = framed(purpose, control, typeOf(purpose.schema) ?? "one of");
  const read = (problems) => {
    field.clear();
    if (control.value !== "") return JSON.stringify(options[Number(control.value)][0]);
    return isRequired && !isNullable ? field.fail(problems, `${name} is required`) : purpose.absent("null");
  };
  return { element: field.element, read };
}

export const booleanField = (purpose) => choiceField(purpose, [[true, "true"], [false, "false"]]);

/** The only allowed value. */
export function constantField(purpose) {
  const value = JSON.stringify(purpose.schema.const);
  const control = h("input", { type: "text", class: "mono", value, readOnly: true });
  return { element: framed(purpose, control, "always this").element, read: () => value };
}

/** Any value, as JSON text. `stands` is sent if a value is required and none was entered. */
export function jsonField(purpose, stands = "") {
  const given = purpose.given === undefined ? "" : JSON.stringify(purpose.given, null, 2);
  const control = h("textarea", { rows: 4, class: "mono", value: given, spellcheck: false, placeholder: stands || "any JSON value" });
  const field = framed(purpose, control, "JSON");
  const read = (problems) => {
    field.clear();
    const text = control.value.trim();
    if (text === "") {
      const absent = purpose.absent(stands);
      return absent === "" ? field.fail(problems, `${purpose.name} is required`) : absent;
    }
    const wrong = wrongJson(text);
    return wrong ? field.fail(problems, `${purpose.name} is not JSON: ${wrong}`) : text;
  };
  return { element: field.element, read };
}

/** The reason why a text is not JSON. */
export function wrongJson(text) {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error.message;
  }
}
