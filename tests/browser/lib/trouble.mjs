// The operators' view of problems: 23 servers, two of them dead, and a gateway that ends.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import path from "node:path";

import { demoServer } from "./fanlight.mjs";
import { FOLDER, narrowEnough } from "./pages.mjs";

/** Window sizes of a desktop and a phone. */
export const TROUBLE_WINDOWS = [{ width: 1280, height: 800 }, { width: 400, height: 800 }];
const SERVERS = 23;
const SCREENS = 3;

/** A configuration in which two of many servers are down, neither of them the first. */
export function troubled() {
  const names = Array.from({ length: SERVERS }, (_, at) => `server-${String(at + 1).padStart(2, "0")}`);
  const dead = { "server-21": { url: "http://127.0.0.1:1/mcp" }, "server-22": { command: "no-such-program", start: "eager" } };
  const mcpServers = Object.fromEntries(names.map((name) => [name, dead[name] ?? { ...demoServer("modern"), start: "lazy" }]));
  mcpServers["server-01"] = demoServer("modern");
  return { mcpServers };
}

async function shoot(page, name, scheme) {
  mkdirSync(FOLDER, { recursive: true });
  await page.screenshot({ path: path.join(FOLDER, `${name}-${page.viewportSize().width}-${scheme}.png`), fullPage: true });
}

export const troubleChecks = {
  "trouble stands first, and the overview fits three screens": async ({ page, goTo, accessible }, scheme) => {
    await goTo("catalogue/tools/server-01__convert_units");
    await page.getByRole("button", { name: "Run" }).waitFor();
    await goTo("overview");
    const trouble = page.locator("main > div").first().getByRole("region", { name: "Trouble" }).or(page.locator("main .trouble"));
    await trouble.locator("li").nth(1).waitFor();
    const text = await trouble.first().innerText();
    for (const part of ["21 of 23 servers usable", "server-21", "server-22"]) assert.ok(text.includes(part), text);
    assert.ok(await trouble.first().evaluate((element) => element.getBoundingClientRect().bottom <= innerHeight), "trouble is not on the first screen");
    await page.getByRole("table", { name: "Servers" }).locator("tbody tr").nth(SERVERS - 1).waitFor();
    await shoot(page, "trouble", scheme);
    const { height, width } = page.viewportSize();
    const tall = await page.evaluate(() => document.documentElement.scrollHeight);
    assert.ok(tall <= SCREENS * height, `${tall} pixels are more than ${SCREENS} screens of ${height} at ${width}`);
    await narrowEnough(page);
    await accessible();
  },

  "tables sort by every column": async ({ page, goTo }) => {
    await goTo("overview");
    const table = page.getByRole("table", { name: "Servers" });
    const first = () => table.locator("tbody th").first().innerText();
    await table.locator("tbody tr").nth(SERVERS - 1).waitFor();
    // The default order has the worst servers first.
    assert.match(await first(), /server-2[12]/);
    if (page.viewportSize().width > 760) {
      const heads = table.locator("thead button");
      assert.equal(await heads.count(), await table.locator("thead th").count());
      await heads.first().click();
      assert.equal(await first(), "server-01");
      await heads.first().click();
      assert.equal(await first(), "server-23");
      assert.equal(await table.locator("thead th").first().getAttribute("aria-sort"), "descending");
    } else {
      await page.getByLabel("Sort Servers by").selectOption("Server");
      assert.equal(await first(), "server-01");
      await page.getByRole("region", { name: "Servers" }).getByRole("button", { name: "Reverse" }).click();
      assert.equal(await first(), "server-23");
    }
  },

  "times carry their dates": async ({ page, goTo }) => {
    await goTo("servers/server-22");
    const row = page.getByRole("table", { name: "Changes of its state" }).locator("tbody tr").first();
    assert.match(await row.innerText(), /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/);
  },

  "a copy button does not cover the text": async ({ page, goTo }) => {
    await goTo("servers/server-01");
    await page.getByText("Its description").click();
    const [button, text] = await Promise.all([".json .tools", ".json pre"].map((part) => page.locator(part).first().boundingBox()));
    assert.ok(button.y + button.height <= text.y + 1, `${JSON.stringify(button)} over ${JSON.stringify(text)}`);
  },
};

/** Checks the open page while the gateway ends. */
export async function deadGateway({ page, goTo, accessible }, fanlight, scheme) {
  await goTo("overview");
  await page.locator(".live.following").waitFor();
  await fanlight.stop();
  const lost = page.getByRole("alert");
  await lost.waitFor();
  assert.match(await lost.innerText(), /has not answered since \d{4}-/);
  assert.match(await page.title(), /^✗ /);
  await page.locator(".live", { hasText: "Not responding" }).waitFor();
  await shoot(page, "dead", scheme);
  await accessible();
}
