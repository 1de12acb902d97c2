// The entry for each client that connects it to this gateway.

import { get } from "./api.js";
import { copyButton, empty, fill, h } from "./dom.js";

/** The server's placeholder for a token, in entries of clients that read no variable. */
const PLACEHOLDER = "YOUR_TOKEN";

export async function connect(main, { signal, rest: [chosen] }) {
  const clients = await get("/api/connect", {}, signal);
  const one = clients.find(({ client }) => client === chosen) ?? (chosen === undefined ? clients[0] : undefined);
  const isMove = main.querySelector(".clients") !== null;
  const detail = h("section", { class: "detail", "aria-label": "Entry of the client" });
  fill(main,
    h("h1", null, "Connect your client"),
    h("p", { class: "lead" }, "Add one entry to your client's settings to give it the tools of all servers. ", h("span", { class: "mono" }, "fanlight connect"),
      " writes it for you and keeps a backup."),
    h("div", { class: "clients" },
      h("nav", { "aria-label": "Clients", class: "card" }, h("ul", null, clients.map(({ client, title }) =>
        h("li", null, h("a", { href: `#/connect/${encodeURIComponent(client)}`, "aria-current": client === one?.client ? "true" : null }, title))))),
      detail));
  fill(detail, one ? entry(one) : empty("There is no such client", "Choose one from the list."));
  if (isMove) {
    const heading = detail.querySelector("h2");
    heading?.focus({ preventScroll: true });
  }
}

function entry({ title, file, language, text, command, variable }) {
  const needsToken = text.includes(PLACEHOLDER) || command?.includes(PLACEHOLDER);
  const place = h("div", null);
  const show = (token) => {
    const filled = (template) => (token === "" ? template : template.replaceAll(PLACEHOLDER, language === "json" ? JSON.stringify(token).slice(1, -1) : token));
    fill(place,
      command ? [h("h3", null, "By a command"), snippet(filled(command), "Command")] : null,
      h("h3", null, command ? "Or in its file" : "In its file"),
      file ? h("p", null, h("span", { class: "mono" }, file), " ", copyButton("Copy the path", file)) : null,
      snippet(filled(text), `Entry in ${language}`));
  };
  show("");
  return [
    h("h2", { tabIndex: -1 }, title),
    variable ? h("p", null, "Your token goes into the environment variable ", h("span", { class: "mono strong" }, variable), ", which the client reads. ", tokens()) : null,
    needsToken ? tokenField(show) : null,
    place,
  ];
}

function tokens() {
  return ["An operator creates one for you: ", h("span", { class: "mono" }, "fanlight keys new"), "."];
}

/** A field for the token. The page only inserts it into the entries. */
function tokenField(show) {
  const control = h("input", { id: "connect-token", type: "password", autocomplete: "off", spellcheck: false, "aria-describedby": "connect-token-help", oninput: () => show(control.value.trim()) });
  return h("div", { class: "field token" }, h("label", { for: "connect-token" }, "Your token"), control,
    h("p", { class: "note", id: "connect-token-help" }, "The page puts it into the texts below, and neither sends nor stores it. ", tokens()));
}

function snippet(text, label) {
  return h("div", { class: "json" }, h("div", { class: "tools" }, copyButton("Copy", text)),
    h("pre", { class: "text", tabIndex: 0, role: "region", "aria-label": label }, text));
}
