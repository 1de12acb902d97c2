// Records the gateway's messages; the browser saves them as a file.

import { ask, post } from "./api.js";
import { h, say } from "./dom.js";

/** The button that begins and ends a recording. Leaving the page ends it, too. */
export function recordButton(signal) {
  let reader;
  const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => (reader ? end() : begin()) }, "Record");
  const show = (isRecording) => {
    button.setAttribute("aria-pressed", String(isRecording));
    button.textContent = isRecording ? "Save recording" : "Record";
  };
  const end = () => reader && post("/api/recording/end", "{}").catch((error) => say(error.message));
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
    if (pieces.length > 0) save(await new Blob(pieces).text());
  };
  return button;
}

/** Lets the browser save a recording. */
export function save(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  h("a", { href: url, download: `recording-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.jsonl` }).click();
  URL.revokeObjectURL(url);
}
