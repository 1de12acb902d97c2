// The configuration in force.

import { get, text } from "./api.js";
import { fill, h, table } from "./dom.js";
import { count } from "./format.js";
import { view } from "./json.js";

export async function config(main, { signal }) {
  const [known, { endpoints }] = await Promise.all([text("/api/config", signal), get("/api/endpoints", {}, signal)]);
  fill(main,
    h("h1", null, "Config"),
    h("h2", null, "Endpoints"),
    h("p", { class: "lead" }, "What clients see at each path. What an endpoint does not show does not exist there."),
    endpointTable(endpoints),
    h("h2", null, "Configuration"),
    h("p", { class: "lead" }, "The configuration in force, with every default. Secrets, arguments, and URLs beyond their host are ***."),
    h("div", { class: "card" }, view(known, "Configuration")));
}

function endpointTable(endpoints) {
  const right = (text) => ({ text, class: "right" });
  const heads = ["Path", "Servers", right("Tools"), right("Resources"), right("Templates"), right("Prompts")];
  const amount = (value) => h("td", { class: "right number" }, count(value));
  return table("Endpoints", heads, endpoints.map(({ path, servers, entries }) => h("tr", null,
    h("th", { scope: "row", class: "mono" }, path),
    h("td", { class: "words" }, servers.join(", ") || "–"),
    amount(entries.tools), amount(entries.resources), amount(entries.resourceTemplates), amount(entries.prompts))));
}
