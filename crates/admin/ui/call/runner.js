// Calls a tool, gets a prompt or reads a resource, and shows the result.

import { badge, fill, h } from "../dom.js";
import { argumentForm } from "../form/form.js";
import { duration } from "../format.js";
import { member, view } from "../json.js";
import { mayChange, onlyOperators } from "../sign-in.js";
import { attend } from "./attend.js";
import { confirmed, isDestructive } from "./confirm.js";
import { content, readable } from "./content.js";
import { history, remember } from "./history.js";
import { questionPanel, requiredVisits } from "./question.js";
import { visible } from "../visible.js";

/** The form for an entry of an endpoint, or null if it cannot be called. `given` is the JSON text of initial arguments. */
export function runner(one, kind, { endpoint, signal, given }) {
  const schema = schemaFor(one, kind);
  if (!schema || typeof one.key !== "string") return null;
  if (!mayChange()) return onlyOperators("try it");
  return new Runner(one, kind, { endpoint, signal, schema }).begin(given);
}

class Runner {
  constructor(one, kind, { endpoint, signal, schema }) {
    Object.assign(this, { one, kind, endpoint, signal, schema });
    this.fields = h("div", null);
    this.problem = h("p", { class: "error-text", role: "alert", hidden: true });
    this.button = h("button", { type: "submit", class: "primary" }, { tools: "Run", prompts: "Get" }[kind] ?? "Read");
    this.running = h("div", { class: "running", hidden: true });
    this.questions = h("div", { class: "questions" });
    this.result = h("div", { class: "result", role: "status" });
  }

  begin(given) {
    this.use(given);
    return h("div", null,
      h("form", { class: "arguments", onsubmit: (event) => this.submit(event), noValidate: true }, this.fields, this.problem, h("div", null, this.button)),
      this.running, this.questions, this.result,
      history(this.kind, this.one.key, (text) => this.use(text, true), this.signal));
  }

  /** Fills the form with these arguments. */
  use(given, isFocused = false) {
    this.form = argumentForm(this.schema, given);
    fill(this.fields, this.form.element);
    if (isFocused) (this.fields.querySelector("input, select, textarea") ?? this.button).focus();
  }

  async submit(event) {
    event.preventDefault();
    if (this.button.disabled) return;
    this.problem.hidden = true;
    const given = this.form.read();
    if (given === undefined) return;
    if (this.kind === "tools" && isDestructive(this.one.entry)) {
      const text = `Its server ${this.one.backend} says that ${this.one.key} may destroy or overwrite something.`;
      if (!await confirmed(`Run ${this.one.key}?`, text, "Run it")) return this.button.focus();
    }
    const call = { kind: this.kind, key: this.one.key, endpoint: this.endpoint, given, at: Date.now() };
    this.button.disabled = true;
    fill(this.result);
    try {
      const raw = await attend(this.body(given), this.handlers(call), this.signal);
      const answer = JSON.parse(raw);
      call.isFailed = answer.error !== undefined || answer.result?.isError === true;
      remember({ ...call, durationMs: answer.durationMs, outcome: outcome(answer), traceId: answer.traceId });
      fill(this.result, shown(raw, answer));
    } catch (error) {
      if (this.signal.aborted) return;
      if (call.traceId !== undefined) remember({ ...call, durationMs: Date.now() - call.at, outcome: "no answer", isFailed: true });
      this.problem.textContent = visible(error.message);
      this.problem.hidden = false;
    } finally {
      this.settle();
    }
  }

  /** Cleans up after the call, and returns the focus to the form if it was within the call's elements. */
  settle() {
    const hadFocus = this.running.contains(document.activeElement) || this.questions.contains(document.activeElement);
    clearInterval(this.timer);
    this.running.hidden = true;
    fill(this.questions);
    this.button.disabled = false;
    if (hadFocus) this.button.focus();
  }

  handlers(call) {
    const bar = h("progress", { "aria-label": "Progress" });
    const words = h("span", { class: "note", role: "status" }, "Waiting for the response…");
    const elapsed = h("span", { class: "number note" });
    const open = new Map();
    return {
      begun: ({ traceId, cancel }) => {
        call.traceId = traceId;
        const stop = async (event) => {
          event.target.disabled = true;
          await cancel().catch(() => {});
        };
        fill(this.running, bar, words, elapsed, h("button", { type: "button", class: "small", onclick: stop }, "Cancel"));
        this.running.hidden = false;
        this.timer = setInterval(() => {
          elapsed.textContent = duration(Math.round((Date.now() - call.at) / 1000) * 1000);
        }, 1000);
        this.signal.addEventListener("abort", () => clearInterval(this.timer));
      },
      progress: ({ progress, total, message }) => {
        if (typeof progress !== "number") return;
        if (total > 0) Object.assign(bar, { max: total, value: Math.min(progress, total) });
        words.textContent = visible([total > 0 ? `${progress} of ${total}` : `${progress}`, typeof message === "string" ? message.slice(0, 500) : null].filter(Boolean).join(": "));
      },
      question: (asked, answer) => {
        const panel = questionPanel(asked, this.one.backend, answer);
        open.set(asked.question, panel);
        this.questions.append(panel);
        if (open.size === 1) (panel.querySelector("input, select, textarea") ?? panel.querySelector("a, button")).focus();
      },
      settled: (question) => {
        const panel = open.get(question);
        const hadFocus = panel?.contains(document.activeElement);
        panel?.remove();
        open.delete(question);
        const [next] = open.values();
        if (hadFocus) (next?.querySelector("input, select, textarea, button") ?? this.running.querySelector("button"))?.focus();
      },
    };
  }

  /** The text of the request. It includes the arguments as text, so that numbers stay as typed. */
  body(given) {
    const key = JSON.stringify(this.one.key);
    const through = this.endpoint === "" ? "" : `"endpoint":${JSON.stringify(this.endpoint)},`;
    switch (this.kind) {
      case "tools": return `{${through}"method":"tools/call","params":{"name":${key},"arguments":${given}}}`;
      case "prompts": return `{${through}"method":"prompts/get","params":{"name":${key},"arguments":${given}}}`;
      case "resources": return `{${through}"method":"resources/read","params":{"uri":${key}}}`;
      default: return `{${through}"method":"resources/read","params":${given}}`;
    }
  }
}

/** The schema of an entry's arguments. */
function schemaFor({ entry }, kind) {
  if (kind === "tools") return entry.inputSchema ?? {};
  if (kind === "prompts") {
    const all = Array.isArray(entry.arguments) ? entry.arguments.filter((argument) => typeof argument?.name === "string") : [];
    const properties = Object.fromEntries(all.map(({ name, title, description }) => [name, { type: "string", title, description }]));
    return { type: "object", properties, required: all.filter((argument) => argument.required === true).map(({ name }) => name) };
  }
  if (kind === "resources") return { type: "object", properties: {} };
  if (kind !== "resourceTemplates") return null;
  const template = typeof entry.uriTemplate === "string" ? entry.uriTemplate : "";
  return { type: "object", required: ["uri"], properties: { uri: { type: "string", title: "URI", description: "The template with its variables filled in", default: template } } };
}

function outcome(answer) {
  if (answer.error) return `error ${answer.error.code}`;
  return answer.result?.isError === true ? "the tool failed" : "ok";
}

function shown(raw, answer) {
  const isFailed = answer.error !== undefined || answer.result?.isError === true;
  const text = member(raw, answer.error === undefined ? "result" : "error") ?? "null";
  return [
    h("div", { class: "row outcome" },
      badge(isFailed ? "bad" : "good", outcome(answer), isFailed ? "down" : "ready"),
      h("span", { class: "note" }, duration(answer.durationMs)),
      answer.traceId ? h("a", { href: `#/traces/${answer.traceId}`, class: "to-trace" }, "Show its trace") : null),
    unanswered(answer.requiredCapabilities),
    answer.error ? h("p", { class: "error-text" }, answer.error.message) : content(answer.result),
    requiredVisits(answer.error),
    h("details", { open: !readable(answer.result) }, h("summary", null, answer.error ? "The error, unchanged" : "The result, unchanged"), view(text, "Result")),
  ];
}

/** The server's requests that this page cannot answer. */
function unanswered(required) {
  if (!required) return null;
  const names = Object.entries(required).flatMap(([name, parts]) => {
    const inside = Object.keys(parts ?? {});
    return inside.length ? inside.map((part) => `${name}.${part}`) : [name];
  });
  return h("p", { class: "note" }, badge("busy", "declined"), " The server asked for ", h("span", { class: "mono" }, names.join(", ")),
    ", which this page cannot answer: it has no language model and no folders. Make this call from a client that can.");
}
