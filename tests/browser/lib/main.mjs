// Runs every check in light and dark; ends with status 1 if one fails.

import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { chromium } from "playwright-core";

import { findChromium } from "./chromium.mjs";
import { demoServer, freeAddress, start, testServer } from "./fanlight.mjs";
import { open } from "./page.mjs";
import { approvalChecks } from "./approvals.mjs";
import { checks, ended, signIn, viewer } from "./checks.mjs";
import { signInAtIssuer, startIssuer } from "./issuer.mjs";
import { endpointChecks, keptLists } from "./endpoints.mjs";
import { formChecks } from "./forms.mjs";
import { WINDOWS, checkPage, pages } from "./pages.mjs";
import { serverChecks, viewerOfServers } from "./servers.mjs";
import { traceChecks } from "./traces.mjs";
import { TROUBLE_WINDOWS, deadGateway, troubleChecks, troubled } from "./trouble.mjs";

const TOKEN = "a-token-of-the-browser-test";
// A key, and its digest.
const VIEWER = "fanlight_1111111111111111111111111111111111111111111146EDT";
const DIGEST = "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2";

const browser = await chromium.launch({ executablePath: findChromium(), args: ["--no-sandbox"] });
let failed = 0;
let done = 0;

/** With `--only <text>`, only checks whose name contains the text. */
const only = process.argv.includes("--only") ? process.argv[process.argv.indexOf("--only") + 1] ?? "" : "";

/** Runs one check on a fresh page. */
async function check(name, scheme, fanlight, run, viewport = undefined) {
  if (!name.includes(only)) return;
  const page = await open(browser, fanlight, scheme, viewport);
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
      for (const viewport of WINDOWS) {
        for (const [name, which] of Object.entries(pages)) {
          await check(`the page ${name} at ${viewport.width}`, scheme, demo, (page) => checkPage(page, name, scheme, which), viewport);
        }
      }
    }
  } finally {
    await demo.stop();
  }
  const endpoints = {
    "/mcp": {},
    "/mcp/readers": { servers: ["library"], tools: { allow: ["library__search_*"] }, prompts: { deny: ["*"] } },
    "/mcp/none": { servers: [] },
  };
  const mcpServers = { library: demoServer("legacy"), workshop: demoServer("modern") };
  const several = await start({ endpoints, mcpServers, stateDir: "state" });
  try {
    for (const scheme of ["light", "dark"]) {
      for (const [name, run] of Object.entries(endpointChecks)) await check(name, scheme, several, run);
    }
    await several.restart();
    await check("lists from the folder of the state say when they were read", "light", several, keptLists);
  } finally {
    await several.stop();
  }
  const servers = { forms: testServer("forms"), hostile: testServer("hostile"), many: testServer("many") };
  const tricky = await start({ mcpServers: servers });
  try {
    for (const [at, scheme] of ["light", "dark"].entries()) {
      const viewport = WINDOWS[at];
      for (const [name, run] of Object.entries({ ...formChecks, ...serverChecks })) await check(`${name} at ${viewport.width}`, scheme, tricky, run, viewport);
    }
  } finally {
    await tricky.stop();
  }
  for (const [at, scheme] of ["light", "dark"].entries()) {
    const library = { ...demoServer("legacy"), approval: { tools: ["search_books"] } };
    const asking = await start({ mcpServers: { library } });
    try {
      for (const [name, run] of Object.entries(approvalChecks)) await check(name, scheme, asking, run, WINDOWS[at]);
    } finally {
      await asking.stop();
    }
  }
  const traced = await start({
    telemetry: { content: "off" },
    mcpServers: { traced: { ...testServer("traced"), prefix: "", content: true }, quiet: testServer("traced") },
  });
  try {
    for (const [at, scheme] of ["light", "dark"].entries()) {
      const viewport = WINDOWS[at];
      for (const [name, run] of Object.entries(traceChecks)) await check(`${name} at ${viewport.width}`, scheme, traced, run, viewport);
    }
  } finally {
    await traced.stop();
  }
  for (const scheme of ["light", "dark"]) {
    const sick = await start(troubled());
    try {
      for (const viewport of TROUBLE_WINDOWS) {
        for (const [name, run] of Object.entries(troubleChecks)) await check(`${name} at ${viewport.width}`, scheme, sick, (page) => run(page, scheme), viewport);
      }
      await check("a gateway that has ended is unmistakable", scheme, sick, (page) => deadGateway(page, sick, scheme), TROUBLE_WINDOWS[0]);
    } finally {
      await sick.stop();
    }
  }
  const keys = join(mkdtempSync(join(tmpdir(), "fanlight-keys-")), "keys.yaml");
  writeFileSync(keys, `keys:\n- {name: viewer, sha256: "${DIGEST}"}\n`);
  const locked = await start({ auth: { keys: { file: keys } }, admin: { token: TOKEN, roles: { viewer: "user:key#viewer" } }, mcpServers: { workshop: demoServer("modern") } });
  try {
    for (const scheme of ["light", "dark"]) {
      await check("operators sign in with a token, and out", scheme, locked, (page) => signIn(page, TOKEN));
      await check("viewers have no button that they may not use", scheme, locked, (page) => viewer(page, VIEWER));
      await check("viewers cannot change servers", scheme, locked, (page) => viewerOfServers(page, VIEWER));
      await check("a session that ends asks for a new sign-in", scheme, locked, (page) => ended(page, TOKEN));
    }
  } finally {
    await locked.stop();
  }
  const address = await freeAddress();
  const issuer = await startIssuer(`http://${address}/sign-in/callback`);
  const admin = {
    publicUrl: `http://${address}`,
    roles: { operator: "group:platform" },
  };
  const client = { clientId: issuer.client.id, clientSecret: issuer.client.secret };
  const auth = { oauth: [{ issuer: issuer.url, audience: "fanlight", signIn: client }] };
  const signedIn = await start({ auth, admin, mcpServers: { workshop: demoServer("modern") } }, address);
  try {
    signedIn.issuer = issuer.url;
    for (const scheme of ["light", "dark"]) {
      await check("operators sign in at an issuer on another site", scheme, signedIn, signInAtIssuer);
    }
  } finally {
    await signedIn.stop();
    issuer.stop();
  }
} finally {
  await browser.close();
}
console.log(`${done} passed, ${failed} failed`);
process.exitCode = failed === 0 && done > 0 ? 0 : 1;
