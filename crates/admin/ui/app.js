// The page: navigation between its parts, and signing in.

import { ApiError, get } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { clock } from "./format.js";
import * as live from "./live.js";
import { approvals } from "./approvals.js";
import { audit } from "./audit.js";
import { catalogue } from "./catalogue/catalogue.js";
import { config } from "./config.js";
import { connections } from "./connections.js";
import { connect } from "./connect.js";
import { limits } from "./limits.js";
import { log } from "./log.js";
import { overview } from "./overview.js";
import { pins } from "./pins.js";
import { servers } from "./servers/list.js";
import { sessions } from "./sessions.js";
import { signIn, whoami } from "./sign-in.js";
import { trace } from "./trace.js";
import { traces } from "./traces.js";

const PAGES = [
  ["overview", "Overview", overview],
  ["traces", "Traces", traces],
  ["catalogue", "Catalogue", catalogue],
  ["servers", "Servers", servers],
  ["sessions", "Sessions", sessions],
  ["approvals", "Approvals", approvals],
  ["limits", "Limits", limits],
  ["pins", "Pins", pins],
  ["audit", "Audit", audit],
  ["connections", "Connections", connections],
  ["connect", "Connect", connect],
  ["config", "Config", config],
];

/** Pages that are in the navigation only if this gateway has something for them. */
const USES = {
  approvals: async () => {
    const { policy, hooks, mcpServers } = await get("/api/config");
    return policy.files.length > 0 || hooks.length > 0 || Object.values(mcpServers).some((one) => one.approval.tools.length > 0);
  },
  limits: async () => (await get("/api/limits")).limits.length > 0,
  pins: async () => {
    const { pins: all, flags } = await get("/api/pins");
    return all !== null || flags.length > 0;
  },
  connections: async () => (await get("/api/connections")).connections.length > 0,
};
const unused = new Set(Object.keys(USES));

const main = document.getElementById("main");
let leaving = new AbortController();
let shown = "";
/** Whether the user is signed in, or no sign-in is needed. */
let isOpen = false;

/** The path segments and the query of the address. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const segments = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { page: segments[0] ?? "overview", rest: segments.slice(1), query: new URLSearchParams(query ?? "") };
}

const pageAt = (at) => PAGES.find(([page]) => page === at.page) ?? PAGES[0];

function nav() {
  const [current] = pageAt(place());
  const pages = document.getElementById("pages");
  fill(pages, PAGES.filter(([id]) => id === current || !unused.has(id)).map(([id, title]) => h("a", { href: `#/${id}`, "aria-current": id === current ? "page" : null }, title)));
}

async function show() {
  const at = place();
  const [id, title, render] = pageAt(at);
  leaving.abort();
  leaving = new AbortController();
  nav();
  document.title = `${lostSince ? "✗ " : ""}${title} – Fanlight`;
  const signal = leaving.signal;
  // The log of a server belongs to the overview.
  const isLog = at.page === "log" && at.rest.length > 0;
  const page = id === "traces" && at.rest.length > 0 ? trace : isLog ? log : render;
  try {
    await page(main, { ...at, signal, title });
    // Move the focus from the link to the new part.
    if (shown && shown !== location.hash && !signal.aborted && !main.contains(document.activeElement)) {
      focusHeading();
    }
    shown = location.hash || "#/overview";
  } catch (error) {
    if (!signal.aborted) failed(error);
  }
}

/** Moves the focus of keyboard and screen reader to the heading, which names the part. */
function focusHeading() {
  const heading = main.querySelector("h1") ?? main;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function failed(error) {
  if (error instanceof ApiError && error.status === 401) return locked();
  fill(main, h("h1", null, "Something went wrong"), empty(error.message), h("button", { type: "button", onclick: show }, "Try again"));
}

/** Asks the API again who the user is, and shows the sign-in if nobody is signed in. */
async function locked(hasEnded = true) {
  leaving.abort();
  leaving = new AbortController();
  try {
    if (await whoami()) return await opened();
  } catch (error) {
    return fill(main, h("h1", null, "Not signed in"), empty(error.message), h("button", { type: "button", onclick: () => locked(hasEnded) }, "Try again"));
  }
  document.title = "Sign in – Fanlight";
  fill(document.getElementById("pages"));
  isOpen = false;
  state("locked");
  signIn(main, hasEnded, opened);
}

/** Shows the part that the address names, and follows Fanlight's events. */
async function opened() {
  isOpen = true;
  state("waiting");
  await show();
  live.follow();
  // A page whose answer fails says why itself.
  const used = await Promise.all(Object.entries(USES).map(async ([id, isUsed]) => await isUsed().catch(() => true) && unused.delete(id)));
  if (isOpen && used.includes(true)) nav();
}

/** The time at which Fanlight stopped answering. */
let lostSince;

function state(now) {
  const words = { following: "Live", waiting: "Connecting…", locked: "Not signed in", lost: "Not responding" };
  const element = document.getElementById("live");
  element.className = `live ${now}`;
  element.textContent = words[now];
  // While the page waits between two attempts, the banner stays as it is.
  if (now !== "waiting") lost(now === "lost");
}

/** Shows or hides the banner that says the page is out of date. */
function lost(isLost) {
  lostSince = isLost ? (lostSince ?? Date.now()) : undefined;
  const banner = document.getElementById("lost");
  banner.hidden = !isLost;
  document.body.classList.toggle("stale", isLost);
  document.title = `${isLost ? "✗ " : ""}${document.title.replace(/^✗ /, "")}`;
  const text = isLost ? `Fanlight has not answered since ${clock(lostSince)}. The page shows the state before that and keeps trying.` : "";
  if (banner.textContent !== text) banner.textContent = text;
}

async function begin() {
  addEventListener("hashchange", () => isOpen && show());
  live.on("state", (now) => {
    state(now);
    if (now === "locked" && isOpen) locked();
  });
  await locked(false);
}

begin();
