// Elements built without markup, so that text stays text. Invisible characters are escaped.

import { visible } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  ready: "M3 8.5l3.2 3.2L13 5",
  idle: "M5 4v8M11 4v8",
  connecting: "M8 3a5 5 0 1 1-4.6 3",
  down: "M4 4l8 8M12 4l-8 8",
  failed: "M4 4l8 8M12 4l-8 8",
  ejected: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  next: "M6 3l5 5-5 5",
};

/** An element. `props` are properties and `on…` listeners; names with a dash are attributes. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name.includes("-") || name === "for" || name === "role" || name === "scope" || name === "list") {
      element.setAttribute(name, value === true ? "" : shown(value));
    } else element[name] = name === "title" ? shown(value) : value;
  }
  add(element, children);
  return element;
}

/** An attribute's value, with invisible characters escaped. */
function shown(value) {
  return typeof value === "string" ? visible(value) : value;
}

/** Appends nodes and texts, also from nested arrays; skips null and undefined. */
function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** A decorative icon. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("icon", `icon-${name}`);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name] ?? ICONS.next);
  svg.append(path);
  return svg;
}

/** Shows a short message, which screen readers read too. */
export function say(text) {
  const said = document.getElementById("said");
  said.textContent = visible(text);
  said.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => said.classList.remove("shown"), 2500);
}

/** A button that copies a text, or what a function promises. */
export function copyButton(label, text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : await text());
      say("Copied");
    } catch {
      say("The browser does not allow this page to copy");
    }
  };
  return h("button", { type: "button", class: "small", onclick: copy, title: typeof text === "string" ? text : null }, icon("copy"), label);
}

/** A badge with an icon and a word, never a colour alone. */
export function badge(kind, text, picture) {
  return h("span", { class: `badge ${kind}` }, picture ? icon(picture) : null, text);
}

/** The text in place of an empty list. */
export function empty(title, text) {
  return h("div", { class: "empty" }, h("p", { class: "strong" }, title), text ? h("p", null, text) : null);
}
