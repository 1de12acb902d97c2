// The frame of a field: its label, its description, and its error.
//
// A field has an `element` and a function `read`. `read` returns the JSON text of its value, or
// undefined if it has none. For an invalid value it shows an error, and adds the control to the
// given list.

import { h } from "../dom.js";
import { words } from "./schema.js";

let last = 0;

/** The purpose of a field: its name, its schema, and whether it needs a value. */
export class Purpose {
  constructor(name, schema, { isRequired = false, isNullable = false, given = undefined } = {}) {
    Object.assign(this, { name, schema, isRequired, isNullable });
    /** The initial value. */
    this.given = given === undefined ? schema.default : given;
  }

  /** The text to send if nothing was entered: `otherwise` if a value is required. */
  absent(otherwise) {
    if (!this.isRequired) return undefined;
    const isGiven = typeof this.given === "object" && this.given !== null;
    return this.isNullable && !isGiven ? "null" : otherwise;
  }
}

export function star() {
  return h("span", { class: "star", title: "required" }, " *", h("span", { class: "hidden" }, "(required)"));
}

export function about(schema, id) {
  const text = words(schema.description);
  return text ? h("p", { class: "note description", id }, text) : null;
}

/** A label, a control, its description and its error; `fail` shows an error, and `clear` removes it. */
export function framed(purpose, control, kind, ...extra) {
  const { name, schema, isRequired } = purpose;
  last += 1;
  control.id = `argument-${last}`;
  const help = about(schema, `${control.id}-help`);
  const error = h("p", { class: "error-text field-error", id: `${control.id}-error`, hidden: true });
  control.setAttribute("aria-describedby", [help?.id, error.id].filter(Boolean).join(" "));
  if (isRequired) control.setAttribute("aria-required", "true");
  const title = words(schema.title) !== name ? words(schema.title) : null;
  const element = h("div", { class: "field" },
    h("label", { for: control.id }, h("span", { class: "mono" }, name), title ? ` ${title}` : null, isRequired ? star() : null, h("span", { class: "type" }, kind)),
    control, extra, error, help);
  return { element, ...judged(control, error) };
}

/** A group of fields with a legend, a description and an error. */
export function grouped(purpose, kind, ...inside) {
  last += 1;
  const help = about(purpose.schema, `argument-${last}-help`);
  const error = h("p", { class: "error-text field-error", id: `argument-${last}-error`, hidden: true });
  const element = h("fieldset", { tabIndex: -1, "aria-describedby": [help?.id, error.id].filter(Boolean).join(" ") },
    h("legend", null, purpose.name, purpose.isRequired ? star() : null, kind ? h("span", { class: "type" }, ` ${kind}`) : null), help, inside, error);
  return { element, ...judged(element, error) };
}

/** A field of several values with a box that says whether it is sent. A change inside the field ticks the box. */
export function optional(purpose, field) {
  if (purpose.isRequired && !purpose.isNullable) return field;
  const box = h("input", { type: "checkbox", checked: purpose.given !== undefined && purpose.given !== null });
  field.element.querySelector("legend").after(h("label", { class: "box" }, box, ` send ${purpose.name}`));
  const tick = ({ type, target }) => {
    if (target !== box && (type === "input" || target.matches("button"))) box.checked = true;
  };
  field.element.addEventListener("input", tick);
  field.element.addEventListener("click", tick);
  return { element: field.element, read: (problems) => (box.checked ? field.read(problems) : purpose.absent("null")) };
}

function judged(control, error) {
  const clear = () => {
    error.hidden = true;
    error.textContent = "";
    control.removeAttribute("aria-invalid");
  };
  const fail = (problems, message) => {
    error.textContent = message;
    error.hidden = false;
    if (control.tagName !== "FIELDSET") control.setAttribute("aria-invalid", "true");
    problems.push({ control, message });
    return undefined;
  };
  return { clear, fail };
}
