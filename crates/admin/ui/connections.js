// Where users are signed in, server by server.

import { act } from "./act.js";
import { empty, fill, h } from "./dom.js";
import { clock } from "./format.js";
import { watch } from "./live.js";
import { mayChange } from "./sign-in.js";
import { table } from "./table.js";

export async function connections(main, { signal }) {
  const content = h("div", null);
  fill(main, h("h1", null, "Connections"),
    h("p", { class: "lead" }, "Where users are signed in, server by server. Tokens are not shown."), content);
  await watch("/api/connections", signal, ({ connections: all }, refresh) => {
    fill(content, all.length ? list(all, refresh) : empty("No user is connected", "Users sign in when one of their calls needs it, or on the endpoint's page /connections."));
  });
}

function list(all, refresh) {
  const heads = ["User", "Server", "How", "Scopes", "Since", "Ends", ...(mayChange() ? [{ text: h("span", { class: "hidden" }, "End") }] : [])];
  return table("Connections", heads, all.map((one) => h("tr", null,
    h("th", { scope: "row", class: "words" }, one.principal),
    h("td", { class: "words" }, one.server),
    h("td", { class: "words" }, one.key ? "a key" : one.issuer ?? "signed in"),
    h("td", { class: "words" }, one.scopes ?? "–"),
    h("td", null, clock(one.sinceMs)),
    h("td", { class: "words" }, one.expiresMs ? `${clock(one.expiresMs)}${one.renewed ? ", renewed before" : ""}` : "–"),
    mayChange() ? h("td", { class: "right" }, end(one, refresh)) : null)));
}

/** A button that ends a connection; afterwards the user has to sign in again. */
function end(one, refresh) {
  const now = (event) => act([event.target], `/api/connections/${encodeURIComponent(one.id)}/end`, "Ended", refresh);
  return h("button", { type: "button", class: "small", onclick: now, "aria-label": `End the connection of ${one.principal} with ${one.server}` }, "End");
}
