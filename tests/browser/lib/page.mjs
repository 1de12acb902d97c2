// One page under observation: console errors, policy violations and requests to other hosts.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(import.meta.url);
const AXE = require("axe-core").source;

/** The timeout of every wait. */
const PATIENCE = 15_000;
/** Expected console errors: the browser logs every status of 400 and above, and a gateway that has ended. */
const STATUS = /^Failed to load resource: (the server responded with a status of (400|401|403|404)|net::ERR_(CONNECTION_REFUSED|CONNECTION_RESET|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|SOCKET_NOT_CONNECTED))/;

/** Answers with a folder's files and the listener's headers, so that changes show without compiling. */
function fromFolder(folder) {
  return async (route) => {
    const file = path.join(folder, new URL(route.request().url()).pathname.replace("/ui/", ""));
    if (!existsSync(file)) return route.continue();
    const kinds = { ".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml" };
    const index = await route.fetch({ url: new URL("/ui/index.html", route.request().url()).href });
    await route.fulfill({ headers: { ...index.headers(), "content-type": kinds[path.extname(file)] }, body: readFileSync(file) });
  };
}

/** Opens a fresh page of `fanlight` in light or dark. */
export async function open(browser, fanlight, scheme, viewport = { width: 1280, height: 800 }) {
  const context = await browser.newContext({ colorScheme: scheme, viewport, reducedMotion: "reduce", locale: "en-GB", timezoneId: "UTC" });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: fanlight.admin });
  const page = await context.newPage();
  if (process.env.FANLIGHT_UI) await page.route(/\/ui\/.+\.(js|css|html|svg)$/, fromFolder(process.env.FANLIGHT_UI));
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
    if (![fanlight.admin, fanlight.issuer].includes(origin) && !["data:", "about:"].includes(protocol)) complaints.push(`request to elsewhere: ${request.url()}`);
  });
  await page.exposeFunction("complain", (text) => complaints.push(text));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => {
      globalThis.complain(`policy: ${event.violatedDirective} forbids ${event.blockedURI}`);
    });
  });
  // A blank page in between, so that no element of the previous page can match.
  const goTo = async (place) => {
    await page.goto("about:blank");
    await page.goto(`${fanlight.admin}/ui#/${place}`);
    await page.locator("main h1").waitFor();
  };
  return {
    page,
    goTo,
    /** Fails if the current page violates a rule of accessibility. */
    accessible: async () => {
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa"] }));
      const said = violations.map(({ id, help, nodes }) => `${id}: ${help}\n  ${nodes.map((node) => `${node.html}\n    ${node.failureSummary}`).join("\n  ")}`);
      assert.deepEqual(said, [], said.join("\n"));
    },
    /** Fails if the browser has reported a problem. */
    conclude: async () => assert.deepEqual(complaints, []),
    close: () => context.close(),
  };
}
