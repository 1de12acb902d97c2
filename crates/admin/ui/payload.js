// The kept content of a trace's calls, and ways to repeat them.

import { copyButton, fill, h } from "./dom.js";
import { clock, size } from "./format.js";
import { view } from "./json.js";

const TOOL = "gen_ai.tool.name";
/** The mark of a removed secret (docs/tracing.md). */
const MASK = "[redacted]";
const REVISION = "2026-07-28";
const TITLES = { arguments: "Arguments", result: "Result", error: "Error", progress: "Progress", log: "Log message", question: "Question", answer: "Answer" };

export function attribute(span, name) {
  return span.attributes.find(([key]) => key === name)?.[1];
}

/** Whether traces can keep content of this call. */
export const hasContent = (top) => ["tools/call", "prompts/get", "resources/read"].includes(attribute(top, "mcp.method.name"));

/** The section with the content of calls. */
export function payload(spans) {
  return groups(spans).map((group) => h("div", { class: "payload" }, part(group)));
}

/** The messages in their order. Those that the client and the server have alike are one. */
function groups(spans) {
  const messages = spans.flatMap((span) => span.content.map((message) => ({ ...message, peer: span.backend ?? "the client" })));
  const all = [];
  for (const message of messages.sort((a, b) => a.atMs - b.atMs)) {
    const alike = all.find((one) => one.kind === message.kind && one.bytes === message.bytes && one.text === message.text && !one.peers.includes(message.peer));
    if (alike && message.text !== undefined) alike.peers.push(message.peer);
    else all.push({ ...message, peers: [message.peer] });
  }
  return all;
}

/** One message, formatted or as it was. */
function part({ kind, peers, text, bytes, whole, leftOut, atMs }) {
  const title = `${TITLES[kind] ?? kind}: ${peers.join(" and ")}`;
  const facts = h("span", { class: "note" }, `${size(bytes)}, ${clock(atMs)}`);
  const cut = whole ? null : h("p", { class: "note" }, `Not whole: ${size(leftOut)} of ${size(bytes)} are left out.`);
  if (text === undefined) return h("section", null, h("div", { class: "row" }, h("h3", null, title), facts), cut);
  const raw = () => h("pre", { class: "text", tabIndex: 0, role: "region", "aria-label": title }, text);
  const content = h("div", null);
  let isRaw = false;
  const copy = h("span", null);
  const toggle = h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => {
    isRaw = !isRaw;
    toggle.setAttribute("aria-pressed", String(isRaw));
    show();
  } }, "Raw");
  const show = () => {
    fill(content, isRaw ? raw() : view(text, title));
    fill(copy, isRaw ? copyButton("Copy", text) : null);
  };
  show();
  return h("section", null, h("div", { class: "row" }, h("h3", null, title), toggle, copy, facts), cut, content);
}

/** The call of a client that the trace stands for; undefined arguments are not known. */
export function callOf(spans) {
  const top = spans[0];
  const name = attribute(top, TOOL);
  if (top.kind !== "server" || attribute(top, "mcp.method.name") !== "tools/call" || name === undefined) return null;
  const sent = spans.flatMap((span) => span.content).find((one) => one.kind === "arguments" && one.whole && one.text !== undefined);
  const isKnown = sent !== undefined;
  return { name, endpoint: attribute(top, "fanlight.endpoint") ?? "", arguments: isKnown ? sent.text : "{}", isKnown, isMasked: isKnown && sent.text.includes(MASK) };
}

/** A text quoted for a POSIX shell. A terminal would act on control characters in a pasted text, so printf writes them. */
function quoted(text) {
  if (/^[A-Za-z0-9_./:@%+-][A-Za-z0-9_./:=@%+-]*$/.test(text)) return text;
  const inQuotes = (some) => `'${some.replaceAll("'", "'\\''")}'`;
  if (!/[\0-\x1f\x7f]/.test(text)) return inQuotes(text);
  const octal = (sign) => `\\0${sign.charCodeAt(0).toString(8).padStart(3, "0")}`;
  return `"$(printf %b ${inQuotes(text.replaceAll("\\", "\\\\").replaceAll(/[\0-\x1f\x7f]/g, octal))})"`;
}

/** A header's value, encoded if ASCII cannot carry it (2026-07-28 basic/transports/streamable-http, Value Encoding). */
function headerValue(text) {
  if (/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?")) return text;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;
}

/** The request as a curl command to the endpoint that clients use. */
export function asCurl(call, url, needsToken) {
  const at = new URL(url);
  if (call.endpoint) at.pathname = call.endpoint;
  const meta = `{"io.modelcontextprotocol/protocolVersion":"${REVISION}","io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`;
  const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(call.name)},"arguments":${call.arguments},"_meta":${meta}}}`;
  const headers = [
    "Content-Type: application/json", "Accept: application/json, text/event-stream",
    `MCP-Protocol-Version: ${REVISION}`, "Mcp-Method: tools/call", `Mcp-Name: ${headerValue(call.name)}`,
  ];
  const lines = [`curl -sS ${quoted(at.href)}`, ...headers.map((header) => `-H ${quoted(header)}`)];
  // The shell fills in the token, so no secret is ever copied.
  if (needsToken) lines.push('-H "Authorization: Bearer $FANLIGHT_TOKEN"');
  lines.push(`-d ${quoted(body)}`);
  return lines.join(" \\\n  ");
}

/** The call as a `fanlight` command, for the folder of the configuration. */
export function asCommand(call) {
  const through = call.endpoint ? ` --endpoint ${quoted(call.endpoint)}` : "";
  const words = [call.name, call.arguments];
  // A server chooses its tools' names, and must not choose options.
  const guard = words.some((word) => word.startsWith("-")) ? " --" : "";
  return `fanlight call${through}${guard} ${words.map(quoted).join(" ")}`;
}

/** The address of the catalogue's form, filled in for this call. */
export function replayAddress(call) {
  const query = new URLSearchParams();
  if (call.endpoint) query.set("endpoint", call.endpoint);
  if (call.isKnown) query.set("arguments", call.arguments);
  const text = query.toString();
  return `#/catalogue/tools/${encodeURIComponent(call.name)}${text ? `?${text}` : ""}`;
}
