// The page to which the issuer sends the browser back. It posts the issuer's answer, which is in
// the page's address, to the API.

import { post } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { PLACE } from "./sign-in.js";

const main = document.getElementById("main");
const query = location.search.slice(1);
// The code can be used only once. This removes it from the address bar and the history.
history.replaceState(null, "", location.pathname);

// The view that was open when the sign-in began.
const place = sessionStorage.getItem(PLACE) ?? "";
sessionStorage.removeItem(PLACE);
const page = new URL(place.startsWith("#/") ? `../ui${place}` : "../ui", import.meta.url);

try {
  await post("/api/session/issuer/answer", JSON.stringify({ query, path: location.pathname }));
  location.replace(page);
} catch (error) {
  document.title = "Not signed in – Fanlight";
  fill(main, h("h1", null, "Not signed in"), h("div", { role: "alert" }, empty(error.message)),
    h("p", { class: "row" }, h("a", { href: page }, "Back to sign-in")));
}
