// The page: navigation between its parts, and the form for the token.

import { ApiError, get, token } from "./api.js";
import { empty, fill, h } from "./dom.js";
import * as live from "./live.js";
import { catalogue } from "./catalogue.js";
import { config } from "./config.js";
import { log } from "./log.js";
import { overview } from "./overview.js";
import { sessions } from "./sessions.js";
import { trace } from "./trace.js";
import { traces } from "./traces.js";

const PAGES = [
  ["overview", "Overview", overview],
  ["traces", "Traces", traces],
  ["catalogue", "Catalogue", catalogue],
  ["sessions", "Sessions", sessions],
  ["config", "Config", config],
];

const main = document.getElementById("main");
let leaving = new AbortController();
let shown = "";

/** The path segments and the query of the address. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const segments = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { page: segments[0] ?? "overview", rest: segments.slice(1), query: new URLSearchParams(query ?? "") };
}

function nav(current) {
  const pages = document.getElementById("pages");
  fill(pages, PAGES.map(([id, title]) => h("a", { href: `#/${id}`, "aria-current": id === current ? "page" : null }, title)));
}

async function show() {
  const at = place();
  const [id, title, render] = PAGES.find(([page]) => page === at.page) ?? PAGES[0];
  leaving.abort();
  leaving = new AbortController();
  nav(id);
  document.title = `${title} – Fanlight`;
  const signal = leaving.signal;
  // The log of a server belongs to the overview.
  const isLog = at.page === "log" && at.rest.length > 0;
  const page = id === "traces" && at.rest.length > 0 ? trace : isLog ? log : render;
  try {
    await page(main, { ...at, signal, title });
    // Keyboard and screen reader continue at the new part, not at the link.
    if (shown && shown !== location.hash && !signal.aborted && !main.contains(document.activeElement)) {
      main.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    shown = location.hash || "#/overview";
  } catch (error) {
    if (!signal.aborted) failed(error);
  }
}

function failed(error) {
  if (error instanceof ApiError && error.status === 401) return login(token.get() !== null);
  fill(main, h("h1", null, "Something went wrong"), empty(error.message), h("button", { type: "button", onclick: show }, "Try again"));
}

function login(refused) {
  token.clear();
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, "aria-describedby": "token-help" });
  const submit = async (event) => {
    event.preventDefault();
    token.set(field.value);
    await show();
    live.follow();
  };
  fill(main, h("form", { class: "login card", onsubmit: submit },
    h("h1", null, "Token"),
    h("label", { for: "token" }, "Token of the admin listener"),
    field,
    h("p", { id: "token-help", class: "note" }, "The value of admin.token in the configuration. It is kept until this tab is closed."),
    refused ? h("p", { class: "error-text", role: "alert" }, "The token is wrong.") : null,
    h("button", { type: "submit", class: "primary" }, "Go on")));
  field.focus();
}

function state(now) {
  const words = { following: "Live", waiting: "Connecting…", locked: "Locked" };
  const element = document.getElementById("live");
  element.className = `live ${now}`;
  element.textContent = words[now];
}

async function begin() {
  addEventListener("hashchange", show);
  live.on("state", state);
  state("waiting");
  await show();
  try {
    await get("/api/overview");
    live.follow();
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) live.follow();
  }
}

begin();
