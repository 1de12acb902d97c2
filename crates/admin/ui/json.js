// JSON as text: formatted and sliced without decoding, so that 1.0 stays 1.0 and members keep their
// order.

import { copyButton, h } from "./dom.js";
import { visible } from "./visible.js";

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
/** Longer texts are shown without colours, which would be slow. */
const MOST_COLOURED = 200_000;

/** The tokens of a JSON text. */
function tokens(text) {
  return text.match(TOKEN) ?? [];
}

/** A JSON text without the white space between its tokens. */
export function compact(text) {
  return tokens(text).join("");
}

/** The text of a member of an object, or undefined. */
export function member(text, key) {
  const found = text.matchAll(TOKEN);
  let depth = 0;
  let name;
  let start = -1;
  let before;
  for (const match of found) {
    const token = match[0];
    if (depth === 1 && (token === "," || token === "}") && start >= 0) return text.slice(start, before);
    if (token === "{" || token === "[") depth += 1;
    if (token === "}" || token === "]") depth -= 1;
    if (depth === 1 && start < 0) {
      if (token[0] === '"') name = token;
    }
    if (depth === 1 && token === ":" && start < 0 && name !== undefined && JSON.parse(name) === key) {
      start = match.index + 1;
    }
    before = match.index + token.length;
  }
  return undefined;
}

/** The text of an element of an array, or undefined. */
export function element(text, index) {
  let at = 0;
  for (const one of elements(text)) {
    if (at === index) return one;
    at += 1;
  }
  return undefined;
}

/** The texts of the elements of an array, in one pass. */
export function* elements(text) {
  let depth = 0;
  let start = 0;
  for (const match of text.matchAll(TOKEN)) {
    const token = match[0];
    if (token === "{" || token === "[") {
      depth += 1;
      if (depth === 1) start = match.index + 1;
    }
    if (token === "}" || token === "]") depth -= 1;
    if ((token === "," && depth === 1) || depth === 0) {
      const one = text.slice(start, match.index).trim();
      if (one !== "") yield one;
      start = match.index + 1;
    }
  }
}

/** A JSON text with line breaks and indents, otherwise unchanged. */
export function pretty(text) {
  let out = "";
  let depth = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const token of tokens(text)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") out += line();
    } else if (before === "{" || before === "[") out += line();
    out += token;
    if (token === "{" || token === "[") depth += 1;
    if (token === ",") out += line();
    if (token === ":") out += " ";
    before = token;
  }
  return out;
}

/** A formatted JSON text, with a button that copies the original. */
export function view(text, label = "JSON") {
  // An escaped character in JSON is still the same JSON.
  const shown = visible(pretty(text));
  const code = h("code", null);
  if (shown.length > MOST_COLOURED) code.textContent = shown;
  else colour(code, shown);
  return h("div", { class: "json" },
    h("div", { class: "tools" }, copyButton("Copy", text)),
    h("pre", { tabIndex: 0, role: "region", "aria-label": label }, code));
}

function colour(code, text) {
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    const token = match[0];
    if (match.index > at) code.append(text.slice(at, match.index));
    at = match.index + token.length;
    const kind = kindOf(token, text[at]);
    if (kind) code.append(h("span", { class: kind }, token));
    else code.append(token);
  }
  code.append(text.slice(at));
}

function kindOf(token, after) {
  if (token[0] === '"') return after === ":" ? "j-key" : "j-string";
  if ("{}[],:".includes(token)) return undefined;
  return token === "true" || token === "false" || token === "null" ? "j-word" : "j-number";
}
