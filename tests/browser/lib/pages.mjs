// Every page in light and dark, in a wide and a narrow window: accessibility, width, and picture.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const TARGET = process.env.CARGO_TARGET_DIR ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../../target");
/** The folder of the pictures. */
export const FOLDER = path.join(TARGET, "screenshots");

export const SCHEMES = ["light", "dark"];
/** The widths of windows. */
export const WINDOWS = [{ width: 1440, height: 900 }, { width: 390, height: 844 }];

/** The pages by the names of their pictures; `show` waits until a page is complete. */
export const pages = {
  overview: { place: "overview", show: (page) => page.locator(".live.following").waitFor() },
  traces: { place: "traces?own=all", show: (page) => page.locator("tbody tr").first().waitFor() },
  trace: {
    place: "traces?own=all",
    show: async (page) => {
      await page.locator("tbody a").first().click();
      await page.locator("button.span").first().click();
    },
  },
  catalogue: { place: "catalogue", show: (page) => page.locator(".entries a").first().waitFor() },
  tool: { place: "catalogue/tools/library__search_books", show: (page) => page.getByRole("button", { name: "Run" }).waitFor() },
  servers: { place: "servers", show: (page) => page.locator("tbody tr", { hasText: "workshop" }).waitFor() },
  server: { place: "servers/library", show: (page) => page.locator("tbody tr", { hasText: "Tools" }).waitFor() },
  connect: { place: "connect", show: (page) => page.getByRole("heading", { level: 2 }).first().waitFor() },
  sessions: { place: "sessions", show: (page) => page.getByText("No call is suspended").waitFor() },
  approvals: { place: "approvals", show: (page) => page.getByText("No call waits for approval").waitFor() },
  limits: { place: "limits", show: (page) => page.getByText("There are no rate limits").waitFor() },
  pins: { place: "pins", show: (page) => page.getByText("Nothing is pinned").waitFor() },
  audit: { place: "audit", show: (page) => page.getByRole("heading", { name: "Audit" }).waitFor() },
  connections: { place: "connections", show: (page) => page.getByText("No user is connected").waitFor() },
  config: { place: "config", show: (page) => page.locator("pre").first().waitFor() },
};

/** Opens one page, checks it, and takes its picture. */
export async function checkPage({ page, goTo, accessible }, name, scheme, { place, show }) {
  await goTo(place);
  await show(page);
  await page.mouse.move(0, 0);
  const width = page.viewportSize().width;
  mkdirSync(FOLDER, { recursive: true });
  await page.screenshot({ path: path.join(FOLDER, `${name}-${width}-${scheme}.png`), fullPage: true });
  await narrowEnough(page);
  await accessible();
}

/** Fails if the page can be scrolled sideways; names the elements that are too wide. */
export async function narrowEnough(page) {
  const wide = await page.evaluate(() => {
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    const isClipped = (element) => element.parentElement && (getComputedStyle(element.parentElement).overflowX !== "visible" || isClipped(element.parentElement));
    return [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !isClipped(one))
      .map((one) => one.outerHTML.slice(0, 120)).slice(0, 5);
  });
  assert.deepEqual(wide, [], "the page is wider than its window");
}
