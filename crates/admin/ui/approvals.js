// Calls that wait for approval, with the arguments that will run.

import { act } from "./act.js";
import { badge, empty, fill, h } from "./dom.js";
import { duration } from "./format.js";
import { watch } from "./live.js";
import { mayApprove } from "./sign-in.js";

const KINDS = { open: "calm", approved: "good", refused: "bad" };

export async function approvals(main, { signal }) {
  const content = h("div", { class: "approvals" });
  fill(main, h("h1", null, "Approvals"),
    h("p", { class: "lead" }, "Calls that need an approval. It lets one call run once, with these arguments."),
    content);
  const stable = ({ approvals: all }) => all.map(({ leftMs, ...rest }) => rest);
  await watch("/api/approvals", signal, ({ approvals: all }, refresh) => {
    fill(content, all.length ? all.map((one) => card(one, refresh)) : empty("No call waits for approval", "A call appears here when a rule requires an approval."));
  }, stable);
}

/** A card for one call; `refresh` reloads the list after an answer. */
function card(one, refresh) {
  const fact = (name, value, kind) => h("div", { class: "fact" }, h("span", { class: "note" }, name), h("span", { class: kind ?? "words" }, value));
  return h("section", { class: "card", "aria-label": `Call of ${one.server}/${one.tool} by ${one.client}` },
    h("h2", null, h("span", { class: "mono" }, `${one.server}/${one.tool}`), " ", badge(KINDS[one.status] ?? "calm", one.status)),
    h("p", { class: "strong" }, one.question),
    h("div", { class: "facts" },
      fact("Client", one.client), fact("Principal", one.principal), fact("Endpoint", one.endpoint, "mono"),
      one.decidedBy ? fact("Answered by", one.decidedBy) : null,
      fact("State", state(one)),
      fact("Id", one.id, "mono")),
    h("h3", null, "Arguments"),
    h("pre", { class: "payload", tabIndex: 0, "aria-label": "Arguments" }, one.arguments ?? "none"),
    one.more ? h("h3", null, "Other parameters") : null,
    one.more ? h("pre", { class: "payload", tabIndex: 0, "aria-label": "Other parameters" }, one.more) : null,
    one.status === "open" ? buttons(one, refresh) : null);
}

function state(one) {
  if (one.status === "open") return `${one.waiting ? "the call waits" : "the client has to send the call again"}; answer within ${duration(one.leftMs)}`;
  return `the ${one.status === "approved" ? "approval" : "refusal"} is for the same call, within ${duration(one.leftMs)}`;
}

function buttons(one, refresh) {
  if (!mayApprove()) return h("p", { class: "note" }, "Only an approver or operator can answer.");
  const answer = (word, done) => (event) => {
    const both = event.target.parentNode.querySelectorAll("button");
    return act(both, `/api/approvals/${encodeURIComponent(one.id)}/${word}`, done, refresh);
  };
  return h("p", { class: "answers" },
    h("button", { type: "button", onclick: answer("approve", "Approved") }, "Approve once"),
    h("button", { type: "button", onclick: answer("refuse", "Refused") }, "Refuse"),
    one.anotherPerson ? h("span", { class: "note" }, " Someone other than the caller has to approve.") : null);
}
