// A stdio server with one app: `server.mjs NAME PATH_OF_THE_APP`. Servers of all names share the
// app's URI.

import { readFileSync } from "node:fs";

import { RESOURCE_MIME_TYPE, getUiCapability, registerAppResource, registerAppTool } from "@modelcontextprotocol/ext-apps/server";
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const [name, app] = process.argv.slice(2);
const URI = "ui://board/main.html";
const html = readFileSync(app, "utf8").replace("NAME_OF_THE_SERVER", name);
const says = (text) => async () => ({ content: [{ type: "text", text }] });

serveStdio(() => {
  const server = new McpServer({ name, version: "1.0.0" });
  const ui = { resourceUri: URI };
  registerAppTool(server, "show", { description: "Shows the board", _meta: { ui } }, says(`shown by ${name}`));
  const forApps = { _meta: { ui: { ...ui, visibility: ["app"] } } };
  registerAppTool(server, "refresh", { description: "Refreshes the board", ...forApps }, says(`refreshed by ${name}`));
  registerAppTool(server, `count_${name}`, { description: "Counts", ...forApps }, says(`counted by ${name}`));
  registerAppResource(server, "board", URI, { description: "The board" }, async () => ({
    contents: [{ uri: URI, mimeType: RESOURCE_MIME_TYPE, text: html }],
  }));
  return server;
});
