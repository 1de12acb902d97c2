// The catalogue and its forms: every kind of value, server requests, progress, cancelling, and
// hostile servers.

import assert from "node:assert/strict";

import { narrowEnough } from "./pages.mjs";

/** Opens a tool's form; the server is `forms` unless the tool's name contains another. */
async function open({ page, goTo }, tool) {
  await goTo(`catalogue/tools/${tool.includes("__") ? tool : `forms__${tool}`}`);
  await page.getByRole("button", { name: "Run", exact: true }).waitFor();
}

const run = (page) => page.getByRole("button", { name: "Run", exact: true }).click();

/** The tool's returned text, parsed as JSON. */
async function returned(page) {
  await page.locator(".outcome .badge").waitFor();
  const shown = page.locator(".content .json code, .content pre.text").first();
  return JSON.parse(await shown.innerText());
}

const field = (page, name) => page.locator(".field", { has: page.locator(`label .mono:text-is("${name}")`) });
const group = (page, name) => page.locator("fieldset", { has: page.locator(`:scope > legend:text("${name}")`) });

export const formChecks = {
  "forms make every kind of value": async (under) => {
    const { page, accessible } = under;
    await open(under, "everything");
    await field(page, "name").locator("input").fill("Ann");
    await field(page, "size").locator("input").fill("3");
    await field(page, "ratio").locator("input").fill("1.5");
    await field(page, "tags").locator("textarea").fill("a\nb");
    await page.getByLabel("tue").check();
    const people = group(page, "people").first();
    await people.getByRole("button", { name: "Add an item" }).click();
    await people.getByLabel("first").fill("Bob");
    await people.getByRole("button", { name: "Add an item" }).click();
    await people.getByLabel("first").nth(1).fill("Eve");
    await people.getByRole("button", { name: "Remove an item 1" }).click();
    const labels = group(page, "labels").first();
    await labels.getByRole("button", { name: "Add a pair" }).click();
    await labels.getByLabel("name 1").fill("__proto__");
    await labels.getByLabel("value 1").fill("7");
    await field(page, "shape").first().locator("select").selectOption({ label: "square" });
    await field(page, "side").locator("input").fill("2");
    await field(page, "level").locator("select").selectOption({ label: "High" });
    await field(page, "day").locator("input").fill("2026-11-23");
    await field(page, "at").locator("input").fill("2026-11-23T10:30:00");
    await page.getByLabel("File for file").setInputFiles({ name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("hello") });
    await page.getByText("a.txt, 5 B").waitFor();
    await field(page, "deep").locator("select").selectOption({ label: "true" });
    await accessible();
    await run(page);
    const value = await returned(page);
    assert.deepEqual(value, JSON.parse(`{
      "name": "Ann", "size": 3, "ratio": 1.5, "tags": ["a", "b"], "days": ["tue"], "people": [{ "first": "Eve" }], "labels": { "__proto__": 7 },
      "shape": { "kind": "square", "side": 2 }, "level": "high", "day": "2026-11-23", "at": "2026-11-23T10:30:00.000Z", "file": "aGVsbG8=",
      "nested": { "inner": { "deep": true } }, "nothing": null, "none": null, "free": null
    }`));
    await page.getByLabel("send options").check();
    await field(page, "mode").locator("input").fill("slow");
    await group(page, "nothing").locator("input[type=text]").fill("3");
    await page.getByLabel("send nested").uncheck();
    await run(page);
    await page.waitForFunction(() => document.querySelector(".content .json code, .content pre.text")?.textContent.includes("slow"));
    const again = await returned(page);
    assert.deepEqual([again.options, again.extra, again.nothing, again.nested, again.either], [{ depth: 2 }, { mode: "slow" }, { level: 3 }, undefined, undefined]);
    await page.getByRole("button", { name: /^Use the arguments of/ }).first().click();
    assert.equal(await field(page, "side").locator("input").inputValue(), "2");
    assert.equal(await labels.getByLabel("name 1").inputValue(), "__proto__");
    await narrowEnough(page);
  },

  "errors are shown beside their fields": async (under) => {
    const { page, accessible } = under;
    await open(under, "everything");
    await field(page, "name").locator("input").fill("A");
    await field(page, "size").locator("input").fill("12");
    await run(page);
    const shown = async (name) => (await field(page, name).first().locator(".field-error:visible").innerText()).trim();
    assert.equal(await shown("name"), "name must have 2 characters or more");
    assert.equal(await shown("size"), "size must be 9 or less");
    assert.equal(await shown("tags"), "tags must have 1 or more");
    assert.equal(await shown("radius"), "radius is required");
    assert.equal(await page.evaluate(() => document.activeElement.closest(".field").querySelector(".mono").textContent), "name");
    assert.equal(await field(page, "name").locator("input").getAttribute("aria-invalid"), "true");
    assert.equal(await page.locator(".outcome").count(), 0, "nothing was called");
    await accessible();
  },

  "arguments can be entered as JSON": async (under) => {
    const { page } = under;
    await open(under, "everything");
    await field(page, "name").locator("input").fill("Ann");
    await page.getByRole("button", { name: "As JSON" }).click();
    const text = page.getByLabel("Arguments as JSON");
    await text.fill("[1]");
    await run(page);
    await page.getByText("Arguments must be a JSON object").waitFor();
    await text.fill('{"name": "Bob", "ratio": 1.0}');
    await run(page);
    assert.match(await page.locator(".content").innerText(), /"name": "Bob"/);
    await page.getByRole("button", { name: "As JSON" }).click();
    assert.equal(await field(page, "name").locator("input").inputValue(), "Bob");
  },

  "what destroys is confirmed": async (under) => {
    const { page, accessible } = under;
    await open(under, "remove_all");
    await run(page);
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    await accessible();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await page.locator(".outcome").count(), 0);
    await run(page);
    await dialog.getByRole("button", { name: "Run it" }).click();
    await page.locator(".outcome .badge", { hasText: "ok" }).waitFor();
    await open(under, "only_reads");
    await run(page);
    await page.locator(".outcome .badge", { hasText: "ok" }).waitFor();
  },

  "progress is shown, and a call can be cancelled": async (under) => {
    const { page, accessible } = under;
    await open(under, "count_cancelled");
    await run(page);
    const before = Number((await page.locator(".content").innerText()).match(/\d+/)[0]);
    await open(under, "count_slowly");
    await run(page);
    await page.getByText(/\d+ of 1000: step/).waitFor();
    assert.ok(await page.locator("progress").evaluate((bar) => bar.value > 0 && bar.max === 1000));
    await accessible();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("The call was cancelled.").waitFor();
    await open(under, "count_cancelled");
    await run(page);
    await page.getByText(`cancelled: ${before + 1}`, { exact: true }).waitFor();
  },

  "a server's question is a form in the page": async (under) => {
    const { page, accessible } = under;
    await open(under, "ask_form");
    await run(page);
    await page.getByText("<b>Who</b> are you?").waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.closest(".field")?.querySelector(".mono").textContent), "who");
    await accessible();
    const question = page.locator(".question");
    await question.getByLabel("often").fill("x");
    await question.getByRole("button", { name: "Send" }).click();
    await page.getByText("often must be a whole number").first().waitFor();
    await question.getByLabel("who").fill("Ann");
    await question.getByLabel("often").fill("3");
    await question.getByLabel("how").selectOption({ label: "Second" });
    await question.getByRole("button", { name: "Send" }).click();
    assert.deepEqual(await returned(page), { action: "accept", content: { who: "Ann", often: 3, how: "b" } });
    await run(page);
    await question.getByRole("button", { name: "Decline" }).click();
    await page.waitForFunction(() => document.querySelector(".content")?.textContent.includes("decline"));
    assert.deepEqual(await returned(page), { action: "decline" });
  },

  "a server's page is opened after consent alone": async (under) => {
    const { page, accessible } = under;
    await open(under, "ask_visit");
    await run(page);
    const question = page.locator(".question");
    await question.getByText("https://sign-in.example/path?x=1").waitFor();
    const link = question.getByRole("link", { name: "Open sign-in.example" });
    assert.deepEqual(await link.evaluate(({ target, rel }) => [target, rel]), ["_blank", "noopener noreferrer"]);
    await accessible();
    await question.getByRole("button", { name: "Dismiss" }).click();
    assert.deepEqual(await returned(page), { action: "cancel" });
    await field(page, "url").locator("input").fill("javascript:complain('ran')");
    await run(page);
    await page.getByText("but gives no web address").waitFor();
    assert.equal(await question.locator("a").count(), 0);
    await question.getByRole("button", { name: "Decline" }).click();
    await page.waitForFunction(() => document.querySelector(".content")?.textContent.includes("decline"));
  },

  "what the page cannot do for a server is declined clearly": async (under) => {
    const { page } = under;
    await open(under, "ask_model");
    await run(page);
    await page.getByText("which this page cannot answer").waitFor();
    assert.match(await page.locator(".result").innerText(), /sampling/);
  },

  "500 tools are one stop of the Tab key": async ({ page, goTo, accessible }) => {
    await goTo("catalogue");
    const tree = page.getByRole("tree");
    await tree.waitFor();
    assert.equal(await tree.locator('[tabindex="0"]').count(), 1);
    await page.getByLabel("Search").focus();
    await page.keyboard.press("Tab");
    const focused = () => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.querySelector(".name")?.textContent ?? document.activeElement.tagName);
    assert.match(await focused(), /^forms, 8 entries$/);
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowDown");
    assert.match(await focused(), /^hostile/);
    await page.keyboard.press("End");
    assert.equal(await focused(), "many__tool_499");
    await page.keyboard.press("ArrowLeft");
    assert.match(await focused(), /^many, 500 entries$/);
    await page.keyboard.press("Tab");
    assert.doesNotMatch(await focused(), /tool|entries/);
    await page.getByLabel("Search").fill("needle  hay");
    await page.getByText("1 of 516").waitFor();
    await page.getByLabel("Search").press("Tab");
    await page.keyboard.press("End");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "many__tool_321" }).waitFor();
    await page.waitForFunction(() => document.activeElement.textContent === "Run");
    await accessible();
  },

  "characters that turn or hide text are shown as escapes": async ({ page, goTo }) => {
    await goTo("catalogue/tools");
    const entry = page.locator(".entries a", { hasText: "invoice_" });
    await entry.waitFor();
    assert.match(await entry.innerText(), /invoice_\\u202egnp\.exe/);
    assert.equal(await page.evaluate(() => /[\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText)), false);
  },

  "hostile texts and schemas neither become markup nor stop the page": async (under) => {
    const { page, goTo, accessible } = under;
    for (const tool of ["evil_texts", "deep", "loops", "wide", "many_choices", "bad_pattern", "no_schema"]) {
      const began = Date.now();
      await open(under, `hostile__${tool}`);
      assert.equal(await page.locator("main img, main script").count(), 0, tool);
      assert.ok((await page.locator("main input, main select, main textarea").count()) < 700, `${tool} has too many fields`);
      await narrowEnough(page);
      if (tool === "bad_pattern") await field(page, "text").locator("input").fill("a".repeat(40) + "!");
      await run(page);
      await page.locator(".outcome .badge, .field-error:visible").first().waitFor();
      assert.ok(Date.now() - began < 15_000, `${tool} takes too long`);
    }
    await open(under, "hostile__evil_texts");
    await run(page);
    assert.deepEqual(await returned(page), JSON.parse('{"__proto__":"polluted"}'));
    assert.equal(await page.evaluate(() => ({}).polluted ?? Object.prototype.type), undefined);
    await accessible();
    await goTo("catalogue/tools/hostile__wide");
    await page.getByText("Input schema").click();
    await page.locator("details[open] pre").waitFor();
  },
};
