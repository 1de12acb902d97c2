// The recorded arguments and results of a trace's calls, and ways to repeat them.

import { copyButton, fill, h } from "./dom.js";
import { view } from "./json.js";

const ARGUMENTS = "gen_ai.tool.call.arguments";
const RESULT = "gen_ai.tool.call.result";
const TOOL = "gen_ai.tool.name";
/** The marks of a removed secret and of a cut value (docs/tracing.md). */
const MASK = "[redacted]";
const CUT = "…";
const REVISION = "2026-07-28";

export function attribute(span, name) {
  return span.attributes.find(([key]) => key === name)?.[1];
}

/** The section with the contents of calls; null if the trace has no call. */
export function payload(spans) {
  const calls = spans.filter((span) => span.kind === "client" && attribute(span, "mcp.method.name") === "tools/call");
  if (calls.length === 0) return null;
  const recorded = calls.filter((span) => attribute(span, ARGUMENTS) !== undefined || attribute(span, RESULT) !== undefined);
  if (recorded.length === 0) {
    return h("p", { class: "note" }, "Arguments and results are not recorded. ", h("span", { class: "mono" }, "recordContent: true"),
      " at the server records them. Known secrets are removed, and long values cut.");
  }
  return recorded.map((span) => h("div", { class: "payload" },
    part(`To ${span.backend ?? "the server"}: arguments of ${attribute(span, TOOL) ?? "the tool"}`, attribute(span, ARGUMENTS)),
    part(`From ${span.backend ?? "the server"}: result`, attribute(span, RESULT))));
}

/** One text, formatted or as recorded. */
function part(title, text) {
  if (text === undefined) return h("section", null, h("h3", null, title), h("p", { class: "note" }, "not recorded"));
  const isWhole = isJson(text);
  const raw = () => h("pre", { class: "text", tabIndex: 0, role: "region", "aria-label": title }, text);
  const content = h("div", null);
  let isRaw = !isWhole;
  const toggle = h("button", { type: "button", class: "small", "aria-pressed": String(isRaw), hidden: !isWhole, onclick: () => {
    isRaw = !isRaw;
    toggle.setAttribute("aria-pressed", String(isRaw));
    show();
  } }, "Raw");
  const show = () => fill(content, isRaw ? raw() : view(text, title));
  show();
  return h("section", null,
    h("div", { class: "row" }, h("h3", null, title), toggle, isRaw ? copyButton("Copy", text) : null),
    isWhole ? null : h("p", { class: "note" }, "Cut at the longest value that traces record."),
    content);
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The call of a trace, for repeating it; null if the trace is not about a tool call. */
export function callOf(spans) {
  const top = spans[0];
  const name = attribute(top, TOOL);
  if (top.kind !== "server" || attribute(top, "mcp.method.name") !== "tools/call" || name === undefined) return null;
  const sent = spans.find((span) => span.kind === "client" && attribute(span, ARGUMENTS) !== undefined);
  const text = sent ? attribute(sent, ARGUMENTS) : undefined;
  const isKnown = text !== undefined && !text.endsWith(CUT) && isJson(text);
  return { name, endpoint: attribute(top, "fanlight.endpoint") ?? "", arguments: isKnown ? text : "{}", isKnown, isMasked: isKnown && text.includes(MASK) };
}

/** A text quoted for a POSIX shell. */
function quoted(text) {
  return /^[A-Za-z0-9_./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
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
  return `fanlight call ${quoted(call.name)} ${quoted(call.arguments)}${through}`;
}

/** The address of the catalogue's form, filled in for this call. */
export function replayAddress(call) {
  const query = new URLSearchParams();
  if (call.endpoint) query.set("endpoint", call.endpoint);
  if (call.isKnown) query.set("arguments", call.arguments);
  const text = query.toString();
  return `#/catalogue/tools/${encodeURIComponent(call.name)}${text ? `?${text}` : ""}`;
}
