// The configuration in force, and the button that reloads it.

import { ask, text } from "./api.js";
import { badge, fill, h, say } from "./dom.js";
import { clock } from "./format.js";
import { view } from "./json.js";
import { mayChange, onlyOperators } from "./sign-in.js";
import { table } from "./table.js";

export async function config(main, { signal }) {
  const known = await text("/api/config", signal);
  const [state, servers] = [h("div", { class: "card" }), h("div", null)];
  fill(main,
    h("h1", null, "Config"),
    state,
    h("h2", null, "Servers"),
    servers,
    h("p", { class: "lead" }, "The configuration in force, with every default. Secrets, arguments, and URLs beyond their host are ***."),
    h("div", { class: "card" }, view(known, "Configuration")));
  const change = async (path) => {
    try {
      await ask(path, { method: "POST", signal });
    } catch (error) {
      // The problems of an unusable configuration are shown.
      if (error.status !== 422) return say(error.message);
    }
    await config(main, { signal });
  };
  const { reload, mcpServers } = JSON.parse(known);
  fill(state, ...reloading(reload, () => change("/api/reload")));
  const heads = mayChange() ? ["Server", "State", "Until a restart"] : ["Server", "State"];
  fill(servers, mayChange() ? null : onlyOperators("switch and restart them, and reload"), table("Servers", heads,
    Object.entries(mcpServers).map(([name, server]) => row(name, server.enabled, change))));
}

/** A server with its buttons. */
function row(name, enabled, change) {
  const button = (action, label) => h("button", {
    type: "button", class: "small", "aria-label": `${label} ${name}`,
    onclick: () => change(`/api/servers/${encodeURIComponent(name)}/${action}`),
  }, label);
  return h("tr", null,
    h("th", { scope: "row" }, name),
    h("td", null, enabled ? "on" : "off"),
    mayChange() ? h("td", null, enabled ? [button("disable", "Disable"), " ", button("restart", "Restart")] : button("enable", "Enable")) : null);
}

function reloading(reload, again) {
  const { last, atRunTime } = reload;
  const failed = last?.result === "failed";
  const switched = [...atRunTime.disabled.map((name) => `${name} is off`), ...atRunTime.enabled.map((name) => `${name} is on`)];
  return [
    h("p", null,
      failed ? badge("bad", "not reloaded", "down") : badge("good", "in force", "ready"),
      ` Generation ${reload.generation}, since ${clock(reload.sinceMs)}. `,
      last ? `Reloaded at ${clock(last.atMs)} (${last.trigger}): ${last.result}. ` : null,
      mayChange() ? h("button", { type: "button", class: "small", onclick: again }, "Reload") : null),
    failed ? h("pre", { class: "error-text" }, last.text) : null,
    last?.needsRestart?.length ? h("p", { class: "note" }, `After a restart only: ${last.needsRestart.join(", ")}`) : null,
    last?.renamed?.names.length ? h("p", { class: "note" }, `Clients see other names: ${renamed(last.renamed)}`) : null,
    reload.warnings?.length ? h("ul", { class: "note" }, reload.warnings.map((line) => h("li", null, line))) : null,
    switched.length ? h("p", { class: "note" }, `Switched at run time, until a restart: ${switched.join(", ")}`) : null,
  ];
}

function renamed({ names, more }) {
  const shown = names.map(({ from, to }) => `${from} → ${to}`);
  return [...shown, ...(more ? [`${more} more`] : [])].join(", ");
}
