// Calls a tool, gets a prompt or reads a resource, and shows the result.

import { post } from "./api.js";
import { badge, fill, h } from "./dom.js";
import { argumentForm, FieldError } from "./form.js";
import { duration } from "./format.js";
import { member, view } from "./json.js";
import { mayChange, onlyOperators } from "./sign-in.js";

/** The form for an entry of an endpoint, or null if there is nothing to call. */
export function runner(one, kind, { endpoint, signal }) {
  const form = fieldsFor(one, kind);
  if (!form || typeof one.key !== "string") return null;
  if (!mayChange()) return onlyOperators("try it");
  const result = h("div", { class: "result", role: "status" });
  const problem = h("p", { class: "error-text", role: "alert", hidden: true });
  const button = h("button", { type: "submit", class: "primary" }, { tools: "Run", prompts: "Get" }[kind] ?? "Read");
  const submit = async (event) => {
    event.preventDefault();
    problem.hidden = true;
    button.disabled = true;
    try {
      const body = requestFor(one, kind, form, endpoint);
      fill(result, h("p", { class: "note" }, "Waiting for the response…"));
      const raw = await post("/api/call", body, signal);
      fill(result, shown(raw));
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(result);
      problem.textContent = error.message;
      problem.hidden = false;
      if (error instanceof FieldError) error.field.focus();
    } finally {
      button.disabled = false;
    }
  };
  return h("div", null, h("form", { class: "arguments", onsubmit: submit, noValidate: true }, form.element, problem, h("div", null, button)), result);
}

function fieldsFor(one, kind) {
  const { entry } = one;
  if (kind === "tools") return argumentForm(entry.inputSchema ?? {});
  if (kind === "prompts") {
    const all = Array.isArray(entry.arguments) ? entry.arguments.filter((argument) => typeof argument?.name === "string") : [];
    const properties = Object.fromEntries(all.map(({ name, title, description }) => [name, { type: "string", title, description }]));
    return argumentForm({ type: "object", properties, required: all.filter((argument) => argument.required === true).map(({ name }) => name) });
  }
  if (kind === "resources") return argumentForm({ type: "object", properties: {} });
  const template = typeof entry.uriTemplate === "string" ? entry.uriTemplate : "";
  return argumentForm({ type: "object", required: ["uri"], properties: { uri: { type: "string", title: "URI", description: "The template with values in the places of its variables", default: template } } });
}

/** The text of the request. Arguments are texts of their own, so that numbers stay as they were typed. */
function requestFor(one, kind, form, endpoint) {
  const given = form.read();
  const key = JSON.stringify(one.key);
  const through = endpoint === "" ? "" : `"endpoint":${JSON.stringify(endpoint)},`;
  switch (kind) {
    case "tools": return `{${through}"method":"tools/call","params":{"name":${key},"arguments":${given}}}`;
    case "prompts": return `{${through}"method":"prompts/get","params":{"name":${key},"arguments":${given}}}`;
    case "resources": return `{${through}"method":"resources/read","params":{"uri":${key}}}`;
    default: return `{${through}"method":"resources/read","params":${given}}`;
  }
}

function shown(raw) {
  const answer = JSON.parse(raw);
  const failed = answer.error !== undefined || answer.result?.isError === true;
  const text = member(raw, answer.error === undefined ? "result" : "error") ?? "null";
  return [
    h("div", { class: "row outcome" },
      failed ? badge("bad", answer.error ? `error ${answer.error.code}` : "the tool failed", "down") : badge("good", "ok", "ready"),
      h("span", { class: "note" }, duration(answer.durationMs)),
      answer.traceId ? h("a", { href: `#/traces/${answer.traceId}`, class: "to-trace" }, "Show its trace") : null),
    unanswered(answer.requiredCapabilities),
    answer.error ? h("p", { class: "error-text" }, answer.error.message) : content(answer.result),
    h("details", { open: !readable(answer.result) }, h("summary", null, answer.error ? "The error, unchanged" : "The result, unchanged"), view(text, "Result")),
  ];
}

/** The requests of the server, which this page cannot answer. */
function unanswered(required) {
  if (!required) return null;
  const names = Object.entries(required).flatMap(([name, parts]) => {
    const inside = Object.keys(parts ?? {});
    return inside.length ? inside.map((part) => `${name}.${part}`) : [name];
  });
  return h("p", { class: "note" }, badge("busy", "refused"), " The server sent a request (", h("span", { class: "mono" }, names.join(", ")),
    ") that this page cannot answer. Make this call from a client with that capability.");
}

function readable(result) {
  return parts(result).length > 0;
}

/** The texts and images of a result. */
function content(result) {
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

/** Whether a text is an object or array of JSON: tools write them for programs, on one line. */
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
