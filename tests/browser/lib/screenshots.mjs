// The pictures in docs/images/.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { open } from "./page.mjs";

const FOLDER = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../../docs/images");
const VIEWPORT = { width: 1180, height: 700 };

/** Writes each page in light and dark. */
export async function screenshots(browser, fanlight) {
  mkdirSync(FOLDER, { recursive: true });
  for (const scheme of ["light", "dark"]) {
    const { page, goTo, close } = await open(browser, fanlight, scheme, VIEWPORT);
    const shoot = (name) => page.screenshot({ path: path.join(FOLDER, `${name}-${scheme}.png`) });
    await goTo("overview");
    await page.locator(".live.following").waitFor();
    await shoot("overview");
    await goTo("traces");
    await page.locator("tbody tr").first().waitFor();
    await shoot("traces");
    await goTo("catalogue/tools/workshop__convert_units");
    await page.getByRole("heading", { name: "convert_units" }).waitFor();
    const fields = page.locator(".arguments .field");
    for (let at = 0; at < (await fields.count()); at += 1) {
      const select = fields.nth(at).locator("select");
      const input = fields.nth(at).locator("input");
      if (await select.count()) await select.selectOption({ index: at + 1 });
      else if ((await input.inputValue()) === "") await input.fill("12.5");
    }
    await page.getByRole("button", { name: "Run" }).click();
    await page.locator(".outcome .badge").waitFor();
    await shoot("catalogue");
    await page.getByRole("link", { name: "Show its trace" }).click();
    await page.locator("button.span").first().click();
    await page.mouse.move(0, 0);
    await shoot("trace");
    await close();
  }
}
