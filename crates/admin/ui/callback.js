// The page to which the issuer sends the browser back: it hands what the issuer has added to its address to the API.

import { post } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { PLACE } from "./sign-in.js";

const main = document.getElementById("main");
const query = location.search.slice(1);
// The code is of use once, and stays neither in the address bar nor in the history.
history.replaceState(null, "", location.pathname);

// Where the page was when the sign-in began.
const place = sessionStorage.getItem(PLACE) ?? "";
sessionStorage.removeItem(PLACE);
const page = place.startsWith("#/") ? `/ui${place}` : "/ui";

try {
  await post("/api/session/issuer/answer", JSON.stringify({ query }));
  location.replace(page);
} catch (error) {
  document.title = "Not signed in – Fanlight";
  fill(main, h("h1", null, "Not signed in"), h("div", { role: "alert" }, empty(error.message)),
    h("p", { class: "row" }, h("a", { href: page }, "Back to sign-in")));
}
