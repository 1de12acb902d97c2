// A server's question during a call (elicitation): a form, or a request to visit a page.

import { h, say } from "../dom.js";
import { argumentForm } from "../form/form.js";
import { words } from "../form/schema.js";

/** The element for a question of `server`; `answer(action, content)` sends the answer. */
export function questionPanel({ params }, server, answer) {
  const send = async (action, content) => {
    for (const button of panel.querySelectorAll("button")) button.disabled = true;
    try {
      await answer(action, content);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    } finally {
      for (const button of panel.querySelectorAll("button")) button.disabled = false;
    }
  };
  const inside = params.mode === "url" ? byUrl(params, send) : byForm(params, send);
  const panel = h("section", { class: "question card", "aria-label": `Question of ${server}` },
    h("p", { class: "strong" }, `The server ${server} asks`),
    typeof params.message === "string" ? h("p", { class: "description" }, words(params.message)) : null,
    inside);
  return panel;
}

/** The buttons of every question. */
function refusals(send) {
  return [
    h("button", { type: "button", onclick: () => send("decline") }, "Decline"),
    h("button", { type: "button", onclick: () => send("cancel") }, "Dismiss"),
  ];
}

function byForm(params, send) {
  const form = argumentForm(params.requestedSchema ?? {});
  const submit = (event) => {
    event.preventDefault();
    const content = form.read();
    if (content !== undefined) send("accept", content);
  };
  return h("form", { class: "arguments", onsubmit: submit, noValidate: true },
    form.isEmpty ? null : form.element,
    h("p", { class: "note" }, "What you send reaches this server. Do not send it passwords or keys."),
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Send"), refusals(send)));
}

/**
 * The question to visit a page. It shows the whole URL and opens nothing without consent (2025-11-25
 * client/elicitation, Safe URL Handling).
 */
function byUrl(params, send) {
  const url = typeof params.url === "string" && URL.canParse(params.url) ? new URL(params.url) : undefined;
  if (!url || !["https:", "http:"].includes(url.protocol)) {
    return h("div", null, h("p", { class: "error-text" }, "It asks you to visit a page, but gives no web address."), h("div", { class: "row" }, refusals(send)));
  }
  return h("div", { class: "arguments" },
    visit(url),
    h("div", { class: "row" },
      h("a", { class: "button primary", href: url.href, target: "_blank", rel: "noopener noreferrer", onclick: () => send("accept") }, `Open ${url.host}`),
      refusals(send)));
}

/** The address of a page that a server asks the user to visit. */
function visit(url) {
  return [
    h("p", null, "It asks you to visit a page of ", h("span", { class: "strong mono" }, url.host), ". Open it only if you trust that page:"),
    h("p", { class: "mono address" }, url.href),
    url.protocol === "http:" ? h("p", { class: "error-text" }, "The connection to it is not encrypted.") : null,
  ];
}

/** The pages to visit before a call can succeed (2025-11-25 client/elicitation, URL Elicitation Required Error). */
export function requiredVisits(error) {
  const all = error?.code === -32042 && Array.isArray(error.data?.elicitations) ? error.data.elicitations : [];
  return all.slice(0, 16).filter((one) => typeof one?.url === "string" && URL.canParse(one.url)).map((one) => {
    const url = new URL(one.url);
    if (!["https:", "http:"].includes(url.protocol)) return null;
    return h("div", { class: "question card" }, typeof one.message === "string" ? h("p", { class: "description" }, words(one.message)) : null, visit(url),
      h("a", { class: "button", href: url.href, target: "_blank", rel: "noopener noreferrer" }, `Open ${url.host}`));
  });
}
