// The operator who uses the page: signing in, signing out, and the limits of the role.

import { get, post } from "./api.js";
import { fill, h, say } from "./dom.js";

/**
 * The key of the view that was open when the sign-in began, to return to it afterwards. The view is no secret: it is
 * the part of the address after the #.
 */
export const PLACE = "fanlight-place";

let known = { identity: null, signIn: { token: false, issuers: [] } };

/** Asks the API for the operator who uses the page; null if nobody is signed in. */
export async function whoami() {
  known = await get("/api/session");
  header();
  return known.identity;
}

/** Whether the operator may change anything. */
export const mayChange = () => known.identity?.role === "operator";

/** Whether the operator may answer calls that wait for approval. */
export const mayApprove = () => ["operator", "approver"].includes(known.identity?.role);

/** A note in place of a button that the role does not allow. */
export const onlyOperators = (what) => h("p", { class: "note" }, `Your role is ${known.identity?.role ?? "unknown"}: only an operator may ${what}.`);

function header() {
  const who = document.getElementById("who");
  const { identity } = known;
  // If nobody has to sign in, there is nothing to show.
  who.hidden = identity === null || identity.source === "none";
  if (who.hidden) return;
  fill(who,
    h("span", { class: "name", title: `identified by: ${identity.source}` }, identity.name), h("span", { class: "chip" }, identity.role),
    identity.session ? h("button", { type: "button", class: "small", onclick: signOut }, "Sign out") : null);
}

async function signOut() {
  try {
    known = JSON.parse(await post("/api/session/end", "{}"));
    // This removes all data of the operator from the page.
    location.reload();
  } catch (error) {
    say(error.message);
  }
}

/** Shows the ways to sign in; calls `done` after one has worked. */
export function signIn(main, hasEnded, done) {
  known.identity = null;
  header();
  const { token, issuers } = known.signIn;
  const problem = h("p", { class: "error-text", role: "alert" });
  const attempt = (run) => async (event) => {
    event.preventDefault();
    const button = event.submitter ?? event.target;
    problem.textContent = "";
    button.disabled = true;
    try {
      await run();
    } catch (error) {
      problem.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  };
  const field = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, "aria-describedby": "token-help" });
  const withToken = attempt(async () => {
    const given = field.value;
    field.value = "";
    field.focus();
    known = JSON.parse(await post("/api/session", JSON.stringify({ token: given })));
    header();
    await done();
  });
  const atIssuer = (issuer) => attempt(async () => {
    sessionStorage.setItem(PLACE, location.hash);
    location.assign(JSON.parse(await post("/api/session/issuer", JSON.stringify({ issuer }))).location);
  });
  fill(main, h("div", { class: "login card" },
    h("h1", null, "Sign in"),
    hasEnded ? h("p", { class: "note" }, "Your session has ended.") : null,
    ...issuers.map((issuer) => h("div", { class: "way" },
      h("button", { type: "button", class: "primary", onclick: atIssuer(issuer) },
        issuers.length === 1 ? "Sign in at your organization" : `Sign in at ${new URL(issuer).host}`),
      h("p", { class: "note" }, "You are sent to ", h("span", { class: "mono" }, issuer), " and back."))),
    token ? h("form", { class: "way", onsubmit: withToken },
      h("label", { for: "token" }, "Key or token"),
      field,
      h("p", { id: "token-help", class: "note" }, "A key or access token for this gateway to which admin.roles gives a role, or the value of admin.token in the configuration. The page does not keep it."),
      h("button", { type: "submit", class: issuers.length ? "" : "primary" }, issuers.length ? "Sign in with it" : "Sign in")) : null,
    token || issuers.length ? null : h("p", null, "No way to sign in is configured: set admin.roles or admin.token."),
    problem));
  (token && !issuers.length ? field : main.querySelector("button"))?.focus();
}
