import { chromium } from "playwright-core";
const base = process.argv[2], out = process.argv[3];
const b = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const scheme of ["light", "dark"]) {
  const ctx = await b.newContext({ colorScheme: scheme, viewport: { width: 1280, height: 800 } });
  const page = await ctx.newPage();
  page.on("console", (m) => console.log("console", m.type(), m.text()));
  page.on("pageerror", (e) => console.log("pageerror", e.message));
  const go = async (h) => { await page.goto(`${base}/ui#/${h}`); await page.waitForTimeout(900); };
  await go("overview"); await page.screenshot({ path: `${out}/overview-${scheme}.png` });
  await go("catalogue"); await page.screenshot({ path: `${out}/cat0-${scheme}.png` });
  const first = page.locator(".entries a").first(); await first.click(); await page.waitForTimeout(600);
  await page.screenshot({ path: `${out}/cat1-${scheme}.png` });
  const n = await page.locator(".entries a").allTextContents(); console.log(n.join(" | "));
  for (const i of [0, 1, 2, 3]) { if (i < n.length) { await page.locator(".entries a").nth(i).click(); await page.waitForTimeout(500); const btn = page.locator(".arguments button.primary"); await btn.click(); await page.waitForTimeout(700);} }
  await page.screenshot({ path: `${out}/cat2-${scheme}.png`, fullPage: true });
  await go("traces"); await page.screenshot({ path: `${out}/traces-${scheme}.png` });
  await page.locator("tbody a").first().click(); await page.waitForTimeout(700);
  await page.locator("button.span").first().click(); await page.waitForTimeout(200);
  await page.screenshot({ path: `${out}/trace-${scheme}.png` });
  await go("sessions"); await page.screenshot({ path: `${out}/sessions-${scheme}.png` });
  await go("config"); await page.screenshot({ path: `${out}/config-${scheme}.png` });
}
await b.close();
