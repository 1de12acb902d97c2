// The texts and images of a result. They come from a server and are untrusted.

import { h } from "../dom.js";
import { view } from "../json.js";

/** Whether a result has texts or images to show. */
export function readable(result) {
  return parts(result).length > 0;
}

/** The texts and images of a result. */
export function content(result) {
  return h("div", { class: "content" }, parts(result));
}

function parts(result) {
  const blocks = [
    ...(Array.isArray(result?.content) ? result.content : []),
    ...(Array.isArray(result?.contents) ? result.contents.map((one) => ({ type: "resource", resource: one })) : []),
    ...(Array.isArray(result?.messages) ? result.messages.map((one) => ({ ...one?.content, role: one?.role })) : []),
  ];
  return blocks.map(block).filter(Boolean);
}

/** Whether a text is a JSON object or array. Tools write these for programs, on one line. */
function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function block(one) {
  const role = typeof one?.role === "string" ? h("span", { class: "chip" }, one.role) : null;
  const text = one?.type === "text" ? one.text : one?.resource?.text;
  if (typeof text === "string") return h("div", { class: "said-block" }, role, isJson(text) ? view(text, "Text") : h("pre", { class: "text" }, text));
  // Only raster images: an SVG could contain scripts.
  const kinds = ["image/png", "image/jpeg", "image/gif", "image/webp"];
  if (one?.type === "image" && kinds.includes(one.mimeType) && /^[A-Za-z0-9+/=]+$/.test(one.data ?? "")) {
    return h("img", { class: "picture", alt: "An image in the result", src: `data:${one.mimeType};base64,${one.data}` });
  }
  return null;
}
