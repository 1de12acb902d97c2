// Keeping the content of calls for a time.

import { get, post } from "./api.js";
import { fill, h, say } from "./dom.js";
import { clock } from "./format.js";

const TIME = "10m";

/** A section that keeps content of chosen calls for ten minutes, and says for which it is kept. Only for operators. */
export async function keepContent(servers, signal) {
  const [content, { endpoints }] = await Promise.all([get("/api/content", {}, signal), get("/api/endpoints", {}, signal)]);
  const select = h("select", { id: "keep-of" }, h("option", { value: "{}" }, "all calls"),
    servers.map((server) => h("option", { value: JSON.stringify({ server }) }, `calls to ${server}`)),
    endpoints.map(({ path }) => h("option", { value: JSON.stringify({ endpoint: path }) }, `calls through ${path}`)));
  const open = h("ul", { class: "kept" });
  const show = ({ windows }) => fill(open, windows.map(({ server, endpoint, untilMs }) => h("li", { class: "row" },
    `Content of ${server ?? endpoint ?? "all calls"} is kept until ${clock(untilMs)}.`,
    h("button", { type: "button", class: "small", onclick: () => ask({ ...(server && { server }), ...(endpoint && { endpoint }) }, "0s") }, "Stop"))));
  const ask = async (of, time) => {
    try {
      await post("/api/content", JSON.stringify({ for: time, ...of }));
      show(await get("/api/content", {}, signal));
    } catch (error) {
      say(error.message);
    }
  };
  show(content);
  if (content.level === "on") return h("p", { class: "note" }, "Traces keep what was sent and answered, except where content of a server or endpoint says less.");
  return h("details", { open: content.windows.length > 0 }, h("summary", null, "Keep what is sent and answered"),
    h("div", { class: "row" }, h("label", { for: "keep-of" }, "Of"), select,
      h("button", { type: "button", onclick: () => ask(JSON.parse(select.value), TIME) }, "Keep content for 10 minutes")),
    h("p", { class: "note" }, "It is kept in memory, without values named like secrets, and the audit log says who asked for it."),
    open);
}
