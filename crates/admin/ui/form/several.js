// Fields of several values: arrays, and objects with free names.

import { h } from "../dom.js";
import { framed, grouped, Purpose } from "./field.js";
import { choices, isObject, MOST, resolved, typeOf } from "./schema.js";

/** An array: checkboxes for a choice, lines for texts and numbers, otherwise a field per item. */
export function arrayField(purpose, context) {
  const { schema: items } = resolved(purpose.schema.items ?? {}, context.document);
  const options = choices(items);
  if (options && options.length <= MOST.choices) return boxes(purpose, options);
  const kind = typeOf(items);
  const isPlain = ["string", "integer", "number"].includes(kind) && items.format === undefined && items.contentEncoding === undefined && !options;
  return isPlain ? lines(purpose, kind) : itemFields(purpose, context);
}

function given(purpose) {
  return Array.isArray(purpose.given) ? purpose.given : [];
}

function wrongCount(count, { minItems, maxItems }, name) {
  if (count < minItems) return `${name} must have ${minItems} or more`;
  if (count > maxItems) return `${name} must have ${maxItems} or less`;
  return undefined;
}

/** The text of an array; undefined or null if it is empty and may be. */
function arrayText(field, problems, purpose, texts) {
  if (texts.length === 0 && (!purpose.isRequired || purpose.isNullable)) return purpose.absent("[]");
  const wrong = wrongCount(texts.length, purpose.schema, purpose.name);
  return wrong ? field.fail(problems, wrong) : `[${texts.join(",")}]`;
}

function boxes(purpose, options) {
  const chosen = new Set(given(purpose).map((value) => JSON.stringify(value)));
  const all = options.map(([value, text]) => {
    const box = h("input", { type: "checkbox", checked: chosen.has(JSON.stringify(value)) });
    return { value, box, element: h("label", { class: "box" }, box, " ", text) };
  });
  const field = grouped(purpose, "any of", h("div", { class: "boxes" }, all.map(({ element }) => element)));
  const read = (problems) => {
    field.clear();
    return arrayText(field, problems, purpose, all.filter(({ box }) => box.checked).map(({ value }) => JSON.stringify(value)));
  };
  return { element: field.element, read };
}

function lines(purpose, kind) {
  const control = h("textarea", { rows: 3, value: given(purpose).join("\n"), spellcheck: false, placeholder: "one per line" });
  const field = framed(purpose, control, `array of ${kind}`);
  const number = kind === "integer" ? /^-?(0|[1-9]\d*)$/ : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
  const read = (problems) => {
    field.clear();
    const texts = control.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const wrong = kind === "string" ? undefined : texts.find((line) => !number.test(line));
    if (wrong !== undefined) return field.fail(problems, `${purpose.name} must have one ${kind === "integer" ? "whole number" : "number"} per line: ${wrong.slice(0, 40)} is none`);
    return arrayText(field, problems, purpose, kind === "string" ? texts.map((line) => JSON.stringify(line)) : texts);
  };
  return { element: field.element, read };
}

/** Rows with buttons to add and remove them; `make` creates one. */
function repeated(what, make) {
  const list = h("ol", { class: "items" });
  let rows = [];
  const add = (value, isFocused) => {
    if (rows.length >= MOST.items) return;
    const row = make(rows.length + 1, value);
    const remove = () => {
      const at = rows.indexOf(row);
      rows = rows.filter((one) => one !== row);
      item.remove();
      const next = rows[Math.min(at, rows.length - 1)]?.item ?? button.parentElement;
      (next.querySelector("input, select, textarea, button") ?? button).focus();
    };
    const item = h("li", null, row.element, h("button", { type: "button", class: "small", onclick: remove, "aria-label": `Remove ${what} ${rows.length + 1}` }, "Remove"));
    row.item = item;
    rows.push(row);
    list.append(item);
    if (isFocused) item.querySelector("input, select, textarea, button")?.focus();
  };
  const button = h("button", { type: "button", class: "small", onclick: () => add(undefined, true) }, `Add ${what}`);
  return { element: h("div", { class: "repeated" }, list, h("div", null, button)), add, rows: () => rows };
}

function itemFields(purpose, context) {
  const schema = purpose.schema.items ?? {};
  const inner = context.deeper();
  const items = repeated("an item", (number, value) => inner.field(`item ${number}`, schema, { isRequired: true, given: value }));
  given(purpose).slice(0, MOST.items).forEach((value) => items.add(value));
  const field = grouped(purpose, "array", items.element);
  const read = (problems) => {
    field.clear();
    const texts = items.rows().map((row) => row.read(problems)).filter((text) => text !== undefined);
    return arrayText(field, problems, purpose, texts);
  };
  return { element: field.element, read };
}

/** An object with free names (`additionalProperties`): pairs of a name and a value. */
export function mapField(purpose, context) {
  const schema = isObject(purpose.schema.additionalProperties) ? purpose.schema.additionalProperties : {};
  const inner = context.deeper();
  const pairs = repeated("a pair", (number, pair) => {
    const key = h("input", { type: "text", value: pair?.[0] ?? "", autocomplete: "off", spellcheck: false });
    const name = framed(new Purpose(`name ${number}`, {}, { isRequired: true }), key, "string");
    const value = inner.field(`value ${number}`, schema, { isRequired: true, given: pair?.[1] });
    return { key, name, value, element: h("div", { class: "pair-fields" }, name.element, value.element) };
  });
  const start = isObject(purpose.given) ? Object.entries(purpose.given) : [];
  start.slice(0, MOST.items).forEach((pair) => pairs.add(pair));
  const field = grouped(purpose, "map", pairs.element);
  const read = (problems) => {
    field.clear();
    const seen = new Set();
    const members = pairs.rows().map(({ key, name, value }) => {
      name.clear();
      const text = value.read(problems);
      if (key.value === "") return name.fail(problems, "a name is required");
      if (seen.has(key.value)) return name.fail(problems, `${key.value} is there twice`);
      seen.add(key.value);
      return text === undefined ? undefined : `${JSON.stringify(key.value)}:${text}`;
    });
    const all = members.filter((text) => text !== undefined);
    return all.length > 0 ? `{${all.join(",")}}` : purpose.absent("{}");
  };
  return { element: field.element, read };
}
