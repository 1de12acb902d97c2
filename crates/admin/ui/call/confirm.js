// A confirmation before an action that cannot be undone.

import { h } from "../dom.js";

let last = 0;

/** Whether a tool claims to be destructive. It is a hint of its server, not a promise. */
export function isDestructive({ annotations } = {}) {
  return annotations?.destructiveHint === true && annotations?.readOnlyHint !== true;
}

/** Asks for confirmation; true if the user agrees. */
export function confirmed(title, text, yes) {
  return new Promise((resolve) => {
    last += 1;
    const dialog = h("dialog", { class: "card", "aria-labelledby": `confirm-${last}` },
      h("h2", { id: `confirm-${last}` }, title),
      h("p", null, text),
      h("form", { method: "dialog", class: "row" },
        h("button", { value: "no", autofocus: true }, "Do not"),
        h("button", { value: "yes", class: "danger" }, yes)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
