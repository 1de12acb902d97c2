// A stdio MCP server that returns what JSON.parse has read of a call.
import { createInterface } from "node:readline";

const schema = { type: "object", properties: { disk: { type: "string" } } };
const answers = {
  initialize: (params) => ({
    protocolVersion: params.protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "reader", version: "1" },
  }),
  "tools/list": () => ({ tools: ["look", "shut"].map((name) => ({ name, inputSchema: schema })) }),
  "tools/call": (params) => {
    const seen = { name: params.name ?? null, disk: params.arguments?.disk ?? null };
    return { content: [{ type: "text", text: JSON.stringify(seen) }] };
  },
};
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const result = answers[method]?.(params ?? {}) ?? {};
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, result })}\n`);
}
