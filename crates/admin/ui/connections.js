// What users have granted at servers that each of them signs in to.

import { ask, get } from "./api.js";
import { empty, fill, h, say } from "./dom.js";
import { repeat } from "./live.js";
import { mayChange } from "./sign-in.js";
import { table } from "./table.js";

export async function connections(main, { signal }) {
  const content = h("div", null);
  fill(main, h("h1", null, "Connections"),
    h("p", { class: "lead" }, "What users have granted at servers that each of them signs in to. Nobody sees a token here."), content);
  let shown = "";
  const poll = async () => {
    const { connections: all } = await get("/api/connections", {}, signal);
    // Without a change nothing is rendered, so that the focus stays on its button.
    const now = JSON.stringify(all);
    if (now === shown) return;
    shown = now;
    fill(content, all.length ? list(all, poll) : empty("No user is connected", "Users sign in when a call of theirs needs it, or on the page /connections of the endpoint."));
  };
  await poll();
  repeat(poll, signal);
}

function list(all, refresh) {
  const heads = ["User", "Server", "How", "Scopes", "Since", "Ends", ...(mayChange() ? [{ text: h("span", { class: "hidden" }, "End") }] : [])];
  return table("Connections", heads, all.map((one) => h("tr", null,
    h("th", { scope: "row", class: "words" }, one.principal),
    h("td", { class: "words" }, one.server),
    h("td", { class: "words" }, one.key ? "a key" : one.issuer ?? "signed in"),
    h("td", { class: "words" }, one.scopes ?? "–"),
    h("td", null, moment(one.sinceMs)),
    h("td", { class: "words" }, one.expiresMs ? `${moment(one.expiresMs)}${one.renewed ? ", renewed before" : ""}` : "–"),
    mayChange() ? h("td", { class: "right" }, end(one, refresh)) : null)));
}

const moment = (at) => new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

/** A button that ends a connection: the user has to sign in anew. */
function end(one, refresh) {
  const now = async (event) => {
    event.target.disabled = true;
    try {
      await ask(`/api/connections/${encodeURIComponent(one.id)}/end`, { method: "POST" });
      say("Ended");
      await refresh();
    } catch (error) {
      say(error.message);
      event.target.disabled = false;
    }
  };
  return h("button", { type: "button", class: "small", onclick: now, "aria-label": `End the connection of ${one.principal} with ${one.server}` }, "End");
}
