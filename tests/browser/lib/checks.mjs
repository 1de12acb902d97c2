// The checks: interactions of a user with the page. Each check gets a fresh page, in light and in dark.

import assert from "node:assert/strict";

const HOSTILE = '<img src=x onerror="alert(1)">';
const SPAN = "button.span";

/** Opens a tool and runs it with these arguments; returns when its result is shown. */
async function run({ page, goTo }, tool, values) {
  await goTo(`catalogue/tools/${tool}`);
  await page.getByRole("heading", { name: tool }).waitFor();
  for (const [name, value] of Object.entries(values)) {
    const field = page.locator(".arguments .field", { has: page.locator(`label .mono:text-is("${name}")`) });
    const select = field.locator("select");
    if (await select.count()) await select.selectOption({ label: String(value) });
    else await field.locator("input, textarea").fill(String(value));
  }
  await page.getByRole("button", { name: "Run" }).click();
  await page.locator(".outcome .badge").waitFor();
}

/** Opens a session of a legacy client at the MCP endpoint; returns its id. */
async function legacySession(mcp) {
  const clientInfo = { name: HOSTILE, version: "1" };
  const response = await fetch(mcp, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo } }),
  });
  assert.equal(response.status, 200);
  await response.text();
  return response.headers.get("mcp-session-id");
}

/** Checks that no text of a peer has become markup. */
async function staysText(page) {
  assert.equal(await page.locator("main img:not(.picture)").count(), 0);
}

export const checks = {
  "the overview shows both backends, live": async ({ page, goTo, accessible }) => {
    await goTo("overview");
    for (const name of ["library", "workshop"]) {
      const row = page.locator("tbody tr", { has: page.getByRole("link", { name }) });
      await row.locator(".badge", { hasText: "ready" }).waitFor();
    }
    await page.locator(".live.following").waitFor();
    await accessible();
  },

  "pages that this gateway has nothing for are not in the navigation": async ({ page, goTo }) => {
    await goTo("pins");
    const titles = ["Overview", "Traces", "Catalogue", "Servers", "Sessions", "Pins", "Audit", "Connect", "Config"];
    assert.deepEqual(await page.locator("#pages a").allInnerTexts(), titles);
  },

  "a tool runs from its form and is found with its waterfall": async (under) => {
    const { page, accessible } = under;
    await run(under, "library__search_books", { query: "a", limit: 2 });
    assert.equal(await page.locator(".outcome .badge").innerText(), "ok");
    await page.getByText("The result, unchanged").click();
    assert.match(await page.locator(".result details .json code").innerText(), /"content": \[/);
    await accessible();
    await page.getByRole("link", { name: "Show its trace" }).click();
    await page.locator(SPAN).first().waitFor();
    // The CLIENT span of the request to the server is below the SERVER span of the page's request.
    await page.locator(SPAN, { hasText: "CLIENT" }).filter({ hasText: "library" }).first().waitFor();
    const spans = await page.locator(SPAN).allInnerTexts();
    assert.match(spans[0], /SERVER[\s\S]*tools\/call library__search_books/);
    assert.ok(spans.some((text) => /CLIENT[\s\S]*tools\/call search_books/.test(text)), spans.join("\n"));
    const first = page.locator(SPAN).first();
    await first.click();
    await page.locator(".details:visible", { hasText: "gen_ai.tool.name" }).waitFor();
    await accessible();
    await page.getByRole("button", { name: "Copy traceparent" }).first().click();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(copied, /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/);
    assert.ok(page.url().includes(copied.slice(3, 35)));
  },

  "traces come live and can be filtered": async (under) => {
    const { page, goTo, accessible } = under;
    await run(under, "workshop__fail", { reason: HOSTILE });
    assert.match(await page.locator(".outcome .badge").innerText(), /failed/);
    await staysText(page);
    await goTo("traces");
    await page.locator("tbody tr", { hasText: "workshop__fail" }).first().waitFor();
    await accessible();
    await page.getByLabel("Outcome").selectOption("true");
    await page.waitForFunction(() => [...document.querySelectorAll("tbody tr")].every((row) => row.classList.contains("failed")));
    await page.getByLabel("Outcome").selectOption("");
    await page.getByLabel("Text, id or attribute").fill("no trace has this");
    await page.getByText("No matching trace").waitFor();
    assert.match(page.url(), /text=no\+trace/);
    await page.getByLabel("Text, id or attribute").fill("");
    await page.getByLabel("Server", { exact: true }).selectOption("workshop");
    await page.locator("tbody tr").first().waitFor();
    assert.equal(await page.locator("tbody tr", { hasText: "library" }).count(), 0);
    await goTo("traces");
    await page.locator("tbody tr").first().waitFor();
    const before = await page.locator("tbody tr").count();
    const called = await page.evaluate(() => fetch("/api/call", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: '{"method":"tools/call","params":{"name":"library__search_books","arguments":{"query":"live"}}}',
    }).then((response) => response.json()));
    await page.locator(`tbody a[href="#/traces/${called.traceId}"]`).waitFor();
    assert.ok((await page.locator("tbody tr").count()) > Math.min(before, 499));
  },

  "every list of the catalogue opens, and its entries can be tried": async ({ page, goTo, accessible }) => {
    for (const [list, button] of [["resources", "Read"], ["resourceTemplates", "Read"], ["prompts", "Get"]]) {
      await goTo(`catalogue/${list}`);
      await page.locator(".entries a").first().click();
      await page.getByRole("button", { name: button, exact: true }).click();
      await page.locator(".outcome .badge, .arguments [role=alert]:not([hidden])").first().waitFor();
      await accessible();
    }
    await goTo("catalogue/tools");
    await page.getByLabel("Search").fill("dice");
    await page.waitForFunction(() => document.querySelectorAll(".entries a").length === 1);
  },

  "texts of peers are not interpreted as markup": async (under) => {
    const { page, goTo } = under;
    await run(under, "library__search_books", { query: HOSTILE });
    await staysText(page);
    await goTo(`traces?text=${encodeURIComponent(`${HOSTILE} in no trace`)}`);
    await page.getByText("No matching trace").waitFor();
    await staysText(page);
    await goTo(`catalogue/tools/${encodeURIComponent(HOSTILE)}`);
    await page.getByText("There is no").waitFor();
    await staysText(page);
  },

  "sessions are shown by digest only": async ({ page, goTo, accessible }, { mcp }) => {
    const id = await legacySession(mcp);
    await goTo("sessions");
    await page.locator("tbody tr", { hasText: HOSTILE }).first().waitFor();
    await staysText(page);
    const text = await page.locator("main").innerText();
    await goTo(`traces?client=${encodeURIComponent(HOSTILE)}`);
    await page.locator("tbody tr", { hasText: "initialize" }).first().waitFor();
    await staysText(page);
    await goTo("sessions");
    assert.ok(!text.includes(id) && !text.includes(id.slice(0, 8)), "the id of a session is shown");
    await accessible();
    await fetch(mcp, { method: "DELETE", headers: { "mcp-session-id": id, "mcp-protocol-version": "2025-11-25" } });
  },

  "the configuration is shown without arguments": async ({ page, goTo, accessible }) => {
    await goTo("config");
    const text = await page.locator("pre").innerText();
    assert.match(text, /"mcpServers"/);
    assert.match(text, /"args": \[\s*"\*\*\*"/);
    assert.ok(!text.includes("demo-server"));
    await accessible();
  },

  "everything can be reached by keyboard": async ({ page, goTo }) => {
    await goTo("overview");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
    const focusOn = async (text) => {
      for (let presses = 0; presses < 60; presses += 1) {
        const now = await page.evaluate(() => document.activeElement.textContent.trim());
        if (now.startsWith(text)) return;
        await page.keyboard.press("Tab");
      }
      assert.fail(`${text} cannot be reached`);
    };
    await focusOn("Catalogue");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(outline, "none");
    await page.keyboard.press("Enter");
    await page.locator(".entries a").first().waitFor();
    // The Tab key stops once for all entries.
    await focusOn("library");
    for (let presses = 0; presses < 20; presses += 1) {
      if (await page.evaluate(() => document.activeElement.textContent.startsWith("workshop__roll_dice"))) break;
      await page.keyboard.press("ArrowDown");
    }
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "workshop__roll_dice" }).waitFor();
    await focusOn("Run");
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "Show its trace" }).waitFor();
    await focusOn("Show its trace");
    await page.keyboard.press("Enter");
    await page.locator(SPAN).first().waitFor();
    await focusOn("SERVER");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-expanded")), "true");
  },

  "a small window shows the whole page": async ({ page, goTo, accessible }) => {
    await page.setViewportSize({ width: 390, height: 800 });
    for (const place of ["overview", "traces", "catalogue/tools/workshop__roll_dice", "sessions", "config"]) {
      await goTo(place);
      const tooWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
      assert.ok(!tooWide, `${place} is wider than the window`);
    }
    await accessible();
  },

  "a missing trace is reported": async ({ page, goTo }) => {
    await goTo("traces/4bf92f3577b34da6a3ce929d0e0e4736");
    await page.getByText("This trace has been evicted").waitFor();
  },
};

/** Checks the page of a listener with tokens; this token has the role `operator`. */
export async function signIn({ page, goTo, accessible }, token) {
  await goTo("overview");
  await accessible();
  const field = page.getByLabel("Token");
  await field.fill("not-the-token-at-all");
  await page.keyboard.press("Enter");
  await page.getByText("credentials of this kind are not accepted").waitFor();
  await field.fill(token);
  await page.keyboard.press("Enter");
  await page.locator("tbody tr", { hasText: "workshop" }).waitFor();
  await page.locator(".live.following").waitFor();
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  await page.reload();
  await page.locator("tbody tr", { hasText: "workshop" }).waitFor();
  assert.equal(await page.locator(".who").innerText().then((text) => text.replace(/\s+/g, " ")), "admin.token operator Sign out");
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
  assert.ok(!kept.includes(token), kept);
  assert.equal(await page.evaluate(() => document.cookie), "", "a script reads the cookie");
  const cookies = await page.context().cookies();
  assert.deepEqual(cookies.map(({ httpOnly, sameSite, path }) => [httpOnly, sameSite, path]), [[true, "Strict", "/"]]);
  assert.ok(!cookies[0].value.includes(token));
  await accessible();
  await goTo("config");
  await page.getByRole("button", { name: "Restart workshop" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  assert.equal(await page.locator("main").getByText("mcpServers").count(), 0, "data stays after signing out");
  assert.deepEqual(await page.context().cookies(), []);
}

/** Checks that a viewer sees everything, and only buttons that it may use. */
export async function viewer({ page, goTo, accessible }, token) {
  await goTo("config");
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByText("only an operator may switch and restart them").waitFor();
  assert.equal(await page.getByRole("button", { name: /Disable|Restart|Enable|Reload/ }).count(), 0);
  await accessible();
  await goTo("catalogue/tools/roll_dice");
  await page.getByText("only an operator may try it").waitFor();
  assert.equal(await page.getByRole("button", { name: "Run" }).count(), 0);
  for (const place of ["overview", "traces", "sessions"]) {
    await goTo(place);
    await page.locator(".live.following").waitFor();
  }
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: 800 });
    const tooWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    assert.ok(!tooWide, `the page is wider than ${width}`);
  }
  await accessible();
  const refused = await page.evaluate(() => fetch("/api/reload", { method: "POST" }).then(async (response) => [response.status, await response.text()]));
  assert.equal(refused[0], 403);
  assert.match(refused[1], /needs the role operator, but yours is viewer/);
}

/** Checks that the end of a session brings the sign-in back on an open page. */
export async function ended({ page, goTo, accessible }, token) {
  await goTo("traces");
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.locator(".live.following").waitFor();
  await page.evaluate(() => fetch("/api/session/end", { method: "POST" }));
  await page.getByText("Your session has ended.").waitFor();
  await accessible();
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.locator(".live.following").waitFor();
  assert.match(page.url(), /#\/traces$/);
}
