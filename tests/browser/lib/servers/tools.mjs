// A legacy stdio server for tests: `node tools.mjs <set>`. Sets: `forms` (every value of a form,
// and server requests), `traced` (everything that a trace can show), `many` (500 tools), `hostile`
// (an attacker's names, texts and schemas).

import { createInterface } from "node:readline";

import { Whole, sets } from "./sets.mjs";

const { tools, call } = sets[process.argv[2]]();
const waiting = new Map();
const running = new Map();
let last = 0;

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

/** The actions of a call besides answering. */
function client(id, params) {
  return {
    ask: (method, asked) => new Promise((resolve) => {
      last += 1;
      waiting.set(`q${last}`, resolve);
      send({ id: `q${last}`, method, params: asked });
    }),
    progress: (more) => {
      const progressToken = params._meta?.progressToken;
      if (progressToken !== undefined) send({ method: "notifications/progress", params: { progressToken, ...more } });
    },
    cancelled: new Promise((resolve) => running.set(id, resolve)),
  };
}

async function answer({ id, method, params }) {
  const text = (value) => ({ content: [{ type: "text", text: typeof value === "string" ? value : JSON.stringify(value) }] });
  const result = (value) => (value instanceof Whole ? value.result : text(value));
  switch (method) {
    case "initialize":
      return send({ id, result: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "tools", version: "1" }, instructions: "Be kind." } });
    case "tools/list": return send({ id, result: { tools } });
    case "ping": return send({ id, result: {} });
    case "tools/call": {
      const value = await call(params.name, params.arguments ?? {}, client(id, params));
      running.delete(id);
      if (value !== undefined) send({ id, result: result(value) });
      return;
    }
    default:
      if (id !== undefined) send({ id, error: { code: -32601, message: "no such method" } });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.method === "notifications/cancelled") running.get(message.params.requestId)?.();
  else if (message.method) answer(message);
  else waiting.get(message.id)?.(message.result ?? message.error);
}
