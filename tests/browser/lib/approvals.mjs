// Calls that wait for approval: the approver's view, and the effect of an answer.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import path from "node:path";

import { FOLDER, narrowEnough } from "./pages.mjs";

const REVISION = "2026-07-28";

/** Calls a tool of the workshop as a modern client; resolves to the answering message. */
async function call(mcp, given) {
  const meta = { "io.modelcontextprotocol/protocolVersion": REVISION, "io.modelcontextprotocol/clientCapabilities": {} };
  const params = { name: "search_books", arguments: given, _meta: meta };
  const headers = {
    "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": REVISION,
    "mcp-method": "tools/call", "mcp-name": "search_books",
  };
  const answer = await fetch(mcp, { method: "POST", headers, body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }) });
  const text = await answer.text();
  const data = text.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).filter((line) => line.includes('"id":1'));
  return JSON.parse(data.at(-1) ?? text);
}

/** The checks, for a gateway whose only server needs approval for `search_books`. */
export const approvalChecks = {
  "a call waits for an approver, and is answered on the page": async ({ page, goTo, accessible }, { mcp }) => {
    await goTo("approvals");
    await page.getByText("No call waits for approval").waitFor();
    for (const [button, isRun] of [["Approve once", true], ["Refuse", false]]) {
      const query = `a <b>book</b> of ${button}, \u202Ebackwards`;
      const answered = call(mcp, { query });
      const card = page.locator("section.card", { hasText: `of ${button}` });
      await card.waitFor();
      const shown = await card.locator("pre").innerText();
      assert.ok(shown.includes(`a <b>book</b> of ${button}`) && !shown.includes("\u202E"), shown);
      mkdirSync(FOLDER, { recursive: true });
      await page.screenshot({ path: path.join(FOLDER, `approval-${page.viewportSize().width}.png`), fullPage: true });
      await accessible();
      await narrowEnough(page);
      await card.getByRole("button", { name: button }).click();
      const answer = await answered;
      assert.equal("result" in answer, isRun, JSON.stringify(answer));
      if (!isRun) assert.equal(answer.error.data.status, "refused");
    }
    await page.locator("section.card", { hasText: "refused" }).waitFor();
  },
};
