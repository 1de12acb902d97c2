// The catalogue of each endpoint, and lists stored in `stateDir`.

import assert from "node:assert/strict";

const choice = (page) => page.getByLabel("As shown by");
const names = (page) => page.locator(".entries .name").allInnerTexts();
const count = (page, list) => page.locator(`.tabs a:has-text("${list}") .count`).innerText();

export const endpointChecks = {
  "the catalogue can be seen as each endpoint shows it": async ({ page, goTo, accessible }) => {
    await goTo("catalogue/tools");
    await page.locator(".entries .name").first().waitFor();
    const everything = await names(page);
    assert.ok(everything.some((name) => name.startsWith("workshop__")) && everything.includes("library__search_books"));
    await accessible();
    const offered = await choice(page).locator("option").allInnerTexts();
    assert.deepEqual(offered, ["no endpoint: everything", "/mcp (2 servers)", "/mcp/readers (1 server)", "/mcp/none (0 servers)"]);

    await choice(page).selectOption("/mcp/readers");
    await page.waitForFunction(() => [...document.querySelectorAll(".entries .name")].every((name) => name.textContent.startsWith("library__search_")));
    const shown = await names(page);
    assert.ok(shown.includes("library__search_books") && shown.length < everything.length, shown.join());
    assert.equal(await count(page, "Prompts"), "0");
    // The focus stays on the choice.
    assert.equal(await page.evaluate(() => document.activeElement.id), "c-endpoint");
    await accessible();
    // Other lists keep the endpoint, also after a reload of the page.
    await page.getByRole("link", { name: /^Prompts/ }).click();
    await page.getByText("/mcp/readers shows no prompts").waitFor();
    await page.reload();
    await page.getByText("/mcp/readers shows no prompts").waitFor();
    assert.equal(await choice(page).inputValue(), "/mcp/readers");
  },

  "what an endpoint shows is tried through it": async ({ page, goTo }) => {
    await goTo("catalogue/tools/library__search_books?endpoint=%2Fmcp%2Freaders");
    await page.locator(".arguments .field", { has: page.locator('label .mono:text-is("query")') }).locator("input, textarea").fill("a");
    const sent = page.waitForRequest("**/api/call");
    await page.getByRole("button", { name: "Run" }).click();
    assert.equal(JSON.parse((await sent).postData()).endpoint, "/mcp/readers");
    await page.locator(".outcome .badge.good").waitFor();
    // A tool that the endpoint hides can be neither opened nor called.
    await goTo("catalogue/tools/workshop__roll_dice?endpoint=%2Fmcp%2Freaders");
    await page.getByText("There is no workshop__roll_dice").waitFor();
    const answer = await page.evaluate(() => fetch("/api/call", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: '{"endpoint":"/mcp/readers","method":"tools/call","params":{"name":"workshop__roll_dice","arguments":{}}}',
    }).then((response) => response.json()));
    assert.ok(answer.error, JSON.stringify(answer));
  },

  "an endpoint without entries, and one that is not there, are said to be so": async ({ page, goTo, accessible }) => {
    await goTo("catalogue/tools?endpoint=%2Fmcp%2Fnone");
    await page.getByText("/mcp/none shows no tools").waitFor();
    await accessible();
    await goTo(`catalogue/tools?endpoint=${encodeURIComponent('/<img src=x onerror="alert(1)">')}`);
    await page.getByText("There is no endpoint /<img").waitFor();
    assert.equal(await page.locator("main img").count(), 0);
    await accessible();
    await choice(page).selectOption("");
    await page.locator(".entries .name").first().waitFor();
  },

  "the choice of an endpoint fits a small window": async ({ page, goTo, accessible }) => {
    await page.setViewportSize({ width: 390, height: 800 });
    await goTo("catalogue/tools?endpoint=%2Fmcp%2Freaders");
    assert.ok(!(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)));
    await accessible();
  },
};

/** Checks that lists come from `stateDir` after a restart, before any server has started. */
export async function keptLists({ page, goTo, accessible }) {
  await goTo("catalogue/tools");
  await page.locator(".problems", { hasText: "library: as of" }).waitFor();
  await page.locator(".entries .name").first().waitFor();
  await accessible();
}
