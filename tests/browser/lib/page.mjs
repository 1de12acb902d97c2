// One page under watch: what the browser complains of, and where it asks for something.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const AXE = require("axe-core").source;

/** The longest anything may take. */
const PATIENCE = 15_000;
/** What is expected of the browser's own words: it says so for every status of 400 and above. */
const STATUS = /^Failed to load resource: the server responded with a status of (401|404)/;

/** A fresh page of `fanlight` in light or dark. */
export async function open(browser, fanlight, scheme, viewport = { width: 1280, height: 800 }) {
  const context = await browser.newContext({ colorScheme: scheme, viewport, reducedMotion: "reduce", locale: "en-GB", timezoneId: "UTC" });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: fanlight.admin });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !STATUS.test(message.text())) complaints.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`script: ${error.stack}`));
  page.on("dialog", async (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (origin !== fanlight.admin && !["data:", "about:"].includes(protocol)) complaints.push(`request to elsewhere: ${request.url()}`);
  });
  await page.exposeFunction("complain", (text) => complaints.push(text));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => {
      globalThis.complain(`policy: ${event.violatedDirective} forbids ${event.blockedURI}`);
    });
  });
  // By way of a blank page, so that what is waited for is not of the page before.
  const goTo = async (place) => {
    await page.goto("about:blank");
    await page.goto(`${fanlight.admin}/ui#/${place}`);
    await page.locator("main h1").waitFor();
  };
  return {
    page,
    goTo,
    /** Fails if a rule of accessibility is broken by what is shown now. */
    accessible: async () => {
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa"] }));
      const said = violations.map(({ id, help, nodes }) => `${id}: ${help}\n  ${nodes.map((node) => `${node.html}\n    ${node.failureSummary}`).join("\n  ")}`);
      assert.deepEqual(said, [], said.join("\n"));
    },
    /** Fails if the browser complained of anything. */
    conclude: async () => assert.deepEqual(complaints, []),
    close: () => context.close(),
  };
}
