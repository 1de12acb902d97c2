// Records the gateway's messages; the browser saves them as a file.

import { ask } from "./api.js";
import { h, say } from "./dom.js";

/** The button that begins and ends a recording. Leaving the page ends it, too. */
export function recordButton(signal) {
  let reader;
  const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => (reader ? end() : begin()) }, "Record");
  const show = (isRecording) => {
    button.setAttribute("aria-pressed", String(isRecording));
    button.textContent = isRecording ? "Save recording" : "Record";
  };
  const end = () => reader?.cancel().catch(() => {});
  const begin = async () => {
    button.disabled = true;
    const pieces = [];
    try {
      const headers = { "content-type": "application/json" };
      reader = (await ask("/api/recording", { method: "POST", headers, body: "{}" })).body.getReader();
      show(true);
      button.disabled = false;
      signal.addEventListener("abort", end, { once: true });
      for (let read = await reader.read(); !read.done; read = await reader.read()) pieces.push(read.value);
    } catch (error) {
      say(error.message);
    }
    reader = undefined;
    button.disabled = false;
    show(false);
    if (pieces.length > 0) save(ended(await new Blob(pieces).text()));
  };
  return button;
}

/** The whole lines of a recording, with a last line that says why it ended. */
function ended(text) {
  const whole = text.slice(0, text.lastIndexOf("\n") + 1);
  const lines = whole.split("\n").slice(0, -1);
  const last = lines.at(-1) ?? "";
  if (/^\{"us":\d+,"end":/.test(last)) return whole;
  const us = Number(/^\{"us":(\d+)/.exec(last)?.[1] ?? 0);
  const messages = lines.filter((line) => /^\{"us":\d+,"side":/.test(line)).length;
  const isWhole = !lines.some((line) => /^\{"us":\d+,"lost":/.test(line));
  return `${whole}${JSON.stringify({ us, end: { reason: "interrupted", whole: isWhole, messages } })}\n`;
}

/** Lets the browser save a recording. */
export function save(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  h("a", { href: url, download: `recording-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.jsonl` }).click();
  URL.revokeObjectURL(url);
}
