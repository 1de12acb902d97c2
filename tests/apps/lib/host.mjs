// The host, a page: shows the app of a tool by the SDK's AppBridge. `window.host` is what the test calls.

import { AppBridge, PostMessageTransport, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const INFO = { name: "host", version: "1.0.0" };
const MODERN = "2026-07-28";
const UI = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };

async function connect(url, era) {
  const mode = era === "modern" ? { pin: MODERN } : "legacy";
  const client = new Client(INFO, { capabilities: { extensions: UI }, versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

/** Calls a tool and shows its app in an iframe called `id`. Returns the app's URI. */
async function open(client, name, id) {
  const { tools } = await client.listTools();
  const tool = tools.find((tool) => tool.name === name);
  const uri = getToolUiResourceUri(tool);
  const { contents } = await client.readResource({ uri });
  if (contents[0].uri !== uri) throw new Error(`${contents[0].uri} was read for ${uri}`);
  const frame = document.createElement("iframe");
  frame.name = id;
  frame.sandbox = "allow-scripts";
  document.body.append(frame);
  const bridge = new AppBridge(client, INFO, { serverTools: {}, serverResources: {}, logging: {} });
  const ready = new Promise((resolve) => (bridge.oninitialized = resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = contents[0].text;
  await ready;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(await client.callTool({ name, arguments: {} }));
  return uri;
}

/** The names of the tools that are listed, and of those that a search finds. */
async function listAndFind(url, era, query) {
  const client = await connect(url, era);
  const { tools } = await client.listTools();
  const { structuredContent } = await client.callTool({ name: "find_tools", arguments: { query } });
  return [tools, structuredContent.tools].map((some) => some.map(({ name }) => name));
}

window.host = { connect, open, listAndFind };
