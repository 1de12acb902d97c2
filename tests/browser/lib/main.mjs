// Runs every check in light and dark; ends with status 1 if one fails.

import { chromium } from "playwright-core";

import { findChromium } from "./chromium.mjs";
import { start } from "./fanlight.mjs";
import { open } from "./page.mjs";
import { checks, login } from "./checks.mjs";
import { screenshots } from "./screenshots.mjs";

const TOKEN = "a-token-of-the-browser-test";

const browser = await chromium.launch({ executablePath: findChromium(), args: ["--no-sandbox"] });
let failed = 0;
let done = 0;

/** Runs one check on a fresh page. */
async function check(name, scheme, fanlight, run) {
  const page = await open(browser, fanlight, scheme);
  try {
    await run(page, fanlight);
    await page.conclude();
    done += 1;
    console.log(`ok      ${scheme.padEnd(5)} ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${scheme.padEnd(5)} ${name}\n${error.stack}\n`);
  } finally {
    await page.close();
  }
}

try {
  const demo = await start();
  try {
    for (const scheme of ["light", "dark"]) {
      for (const [name, run] of Object.entries(checks)) await check(name, scheme, demo, run);
    }
    if (process.argv.includes("--screenshots")) await screenshots(browser, demo);
  } finally {
    await demo.stop();
  }
  const locked = await start(TOKEN);
  try {
    await check("the token is requested and kept", "light", locked, (page) => login(page, TOKEN));
  } finally {
    await locked.stop();
  }
} finally {
  await browser.close();
}
console.log(`${done} passed, ${failed} failed`);
process.exitCode = failed === 0 && done > 0 ? 0 : 1;
