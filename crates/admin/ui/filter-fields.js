// The fields of a filter. Each edits one text of an object.

import { h } from "./dom.js";

const TYPING = 250;

/** Makes fields for members of `filter`; calls `changed` shortly after an edit. */
export function filterFields(filter, changed) {
  let timer;
  const change = (key) => (event) => {
    filter[key] = event.target.value.trim();
    clearTimeout(timer);
    timer = setTimeout(changed, event.type === "input" ? TYPING : 0);
  };
  const field = (key, label, control) => h("div", { class: "field" }, h("label", { for: `f-${key}` }, label), control);
  const select = (key, label, options) => {
    const known = options.some(([value]) => value === filter[key]) ? options : [...options, [filter[key], filter[key]]];
    return field(key, label, h("select", { id: `f-${key}`, onchange: change(key) },
      known.map(([value, text]) => h("option", { value, selected: filter[key] === value }, text))));
  };
  const input = (key, label, more = {}) => field(key, label,
    h("input", { id: `f-${key}`, type: "search", value: filter[key], oninput: change(key), autocomplete: "off", spellcheck: false, maxLength: 512, ...more }));
  return { select, input };
}
