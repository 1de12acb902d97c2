// The pages of servers, and the entries for client configurations.

import assert from "node:assert/strict";

/** The cell with the id of the process of a server. */
const ID = 'td[data-head="Process id"]';

export const serverChecks = {
  "a server has a page with its state, description, lists, history and buttons": async ({ page, goTo, accessible }) => {
    await goTo("servers");
    await page.locator("main").getByRole("link", { name: "forms" }).click();
    await page.getByRole("heading", { level: 1, name: "forms" }).waitFor();
    await page.getByText("It answers.").waitFor();
    await page.getByText("Be kind.", { exact: true }).waitFor();
    await page.locator(".chip:text-is('tools')").waitFor();
    const lists = page.getByRole("table", { name: "Lists of forms" });
    assert.match(await lists.locator("tr", { hasText: "Tools" }).innerText(), /Tools\s+(Entries\s+)?8\s/);
    // There is one process for each client that has used the server.
    const process = page.getByRole("table", { name: "Running processes" }).locator("tbody tr").first();
    assert.match(await process.innerText(), /\d+\s+\d+\s+\d{4}-\d\d-\d\d/);
    const before = await page.locator(ID).first().innerText();
    await page.getByRole("table", { name: "Changes of its state" }).locator("tbody tr").first().waitFor();
    await accessible();
    await page.getByRole("button", { name: "Disable" }).click();
    await page.getByText("It is switched off").waitFor();
    await page.getByRole("button", { name: "Enable" }).click();
    await page.getByRole("button", { name: "Restart" }).click();
    await page.getByText("forms: restart").waitFor();
    await page.waitForFunction(([row, other]) => {
      const now = document.querySelector(row)?.textContent;
      return now !== undefined && now !== other;
    }, [ID, before]);
    await page.getByText("It answers.").waitFor();
    await goTo(`servers/${encodeURIComponent("<img src=x>")}`);
    await page.getByText("No server has this name").waitFor();
    assert.equal(await page.locator("main img").count(), 0);
  },

  "each client has its entry, which can be copied": async ({ page, goTo, accessible }, { mcp }) => {
    await goTo("connect");
    await page.getByRole("link", { name: "Cursor" }).click();
    await page.getByRole("heading", { level: 2, name: "Cursor" }).waitFor();
    await page.getByRole("button", { name: "Copy", exact: true }).last().click();
    await page.locator(".said", { hasText: "Copied" }).waitFor();
    const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    assert.equal(copied.mcpServers.fanlight.url, mcp);
    await accessible();
    await goTo("connect/none");
    await page.getByText("There is no such client").waitFor();
  },
};

/** Checks that a viewer can read the pages of servers and clients, without buttons to change them. */
export async function viewerOfServers({ page, goTo, accessible }, token) {
  await goTo("servers/workshop");
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByText("only an operator may restart and switch it").waitFor();
  assert.equal(await page.getByRole("button", { name: /Disable|Restart|Enable/ }).count(), 0);
  await accessible();
  await goTo("connect");
  await page.getByRole("heading", { level: 2 }).waitFor();
  for (const path of ["call", "call/answer", "call/cancel", "servers/workshop/restart"]) {
    const status = await page.evaluate((to) => fetch(`/api/${to}`, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" }).then((one) => one.status), path);
    assert.equal(status, 403, path);
  }
}
