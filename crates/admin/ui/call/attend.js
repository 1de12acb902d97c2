// One call followed by the page: its progress, the server's questions, and its answer.

import { ask, post } from "../api.js";
import { readEvents } from "../sse.js";

/** The error of a call that was cancelled or ended without an answer. */
export class NoAnswer extends Error {}

/**
 * Makes a call; returns the text of its answer. `on` has `begun({ traceId, cancel })`, `progress(params)`,
 * `question({ question, params, leftMs }, answer)` and `settled(question)`.
 */
export async function attend(body, on, signal) {
  const headers = { "content-type": "application/json", accept: "text/event-stream" };
  const response = await ask("/api/call", { method: "POST", headers, body, signal });
  let call;
  let answer;
  let isCancelled = false;
  const say = (path, more) => post(path, JSON.stringify({ call, ...more }), signal);
  const events = {
    call: (data) => {
      ({ call } = data);
      on.begun({ traceId: data.traceId, cancel: () => say("/api/call/cancel") });
    },
    progress: (data) => on.progress(data),
    question: (data) => on.question(data, (action, content) => reply(call, data.question, action, content, signal)),
    settled: (data) => on.settled(data.question),
    cancelled: () => {
      isCancelled = true;
    },
  };
  await readEvents(response, (name, data) => {
    if (name === "answer") answer = data;
    else events[name]?.(JSON.parse(data));
  });
  if (answer !== undefined) return answer;
  throw new NoAnswer(isCancelled ? "The call was cancelled. The server may have carried it out." : "The connection ended before the answer came. The server may have carried the call out.");
}

/** Answers a question. `content` is JSON text, so that numbers stay as typed. */
function reply(call, question, action, content, signal) {
  const result = content === undefined ? `{"action":"${action}"}` : `{"action":"${action}","content":${content}}`;
  return post("/api/call/answer", `{"call":${JSON.stringify(call)},"question":${question},"result":${result}}`, signal);
}
