// The configuration in force.

import { text } from "./api.js";
import { fill, h } from "./dom.js";
import { view } from "./json.js";

export async function config(main, { signal }) {
  const known = await text("/api/config", signal);
  fill(main,
    h("h1", null, "Config"),
    h("p", { class: "lead" }, "The configuration in force, with every default. Secrets, arguments, and URLs beyond their host are ***."),
    h("div", { class: "card" }, view(known, "Configuration")));
}
