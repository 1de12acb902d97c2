// Builds the app and the page of the host, starts Fanlight with two servers, and runs the checks.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import { chromium } from "playwright-core";

import { findChromium } from "../../browser/lib/chromium.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.resolve(HERE, "../../..");
const BINARY = process.env.FANLIGHT_BIN
  ?? path.join(process.env.CARGO_TARGET_DIR ?? path.join(ROOT, "target"), "debug", "fanlight");
const PATIENCE = 20_000;
const NAMES = ["maps", "charts"];

const bundle = async (file) => {
  const { outputFiles } = await build({
    entryPoints: [path.join(HERE, file)], bundle: true, format: "esm", write: false, logLevel: "error",
  });
  // This text within a script would end the page's script.
  return outputFiles[0].text.replaceAll("</script", "<\\/script");
};
const page = (body, script) => `<!DOCTYPE html><meta charset="utf-8"><body>${body}<script type="module">${script}</script></body>`;
const button = (tool) => `<button data-tool="${tool}">${tool}</button>`;

async function startFanlight(folder, origin, endpoint) {
  const app = path.join(folder, "app.html");
  const buttons = ["refresh", ...NAMES.map((name) => `count_${name}`)].map(button).join("");
  const body = `<h1>NAME_OF_THE_SERVER</h1><p id="result"></p>${buttons}<p id="answer"></p>`;
  writeFileSync(app, page(body, await bundle("app.mjs")));
  const entry = (name) => [name, { command: process.execPath, args: [path.join(HERE, "server.mjs"), name, app] }];
  const config = path.join(mkdtempSync(path.join(folder, "config-")), "mcp.json");
  // The host's page has another port, so its origin must be allowed.
  const allowedOrigins = [origin];
  writeFileSync(config, JSON.stringify({ mcpServers: Object.fromEntries(NAMES.map(entry)), allowedOrigins, endpoints: { "/mcp": endpoint } }));
  const child = spawn(BINARY, ["run", "--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  const late = setTimeout(() => child.kill("SIGKILL"), PATIENCE);
  let url;
  for await (const line of createInterface({ input: child.stdout })) {
    url ??= line.match(/^listening on (http:\/\/\S+)/)?.[1];
    const admin = line.match(/^admin on (http:\/\/\S+)/)?.[1];
    if (!url || !admin) continue;
    // Lists wait three seconds for starting servers, which is too short for Node on a busy machine.
    while ((await fetch(`${admin}/readyz`)).status !== 200) await sleep(50);
    clearTimeout(late);
    child.stdout.resume();
    return { url, stop };
  }
  throw new Error(`${BINARY} ended, or did not say within ${PATIENCE} ms where it listens`);
}

async function servePage() {
  const html = page("", await bundle("host.mjs"));
  const server = createServer((_, response) => response.setHeader("content-type", "text/html").end(html));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  return { origin, url: `${origin}/`, stop: () => server.close() };
}

/** The text of an element of an app, once it has one that is not `before`. */
async function shown(tab, frame, selector, before = "") {
  const element = tab.frameLocator(`iframe[name="${frame}"]`).locator(selector);
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const text = await element.textContent({ timeout: PATIENCE });
    if (text !== before) return text;
    assert.ok(Date.now() < deadline, `${selector} of ${frame} still says ${JSON.stringify(text)}`);
    await tab.waitForTimeout(20);
  }
}

async function press(tab, frame, tool) {
  const app = tab.frameLocator(`iframe[name="${frame}"]`);
  await app.locator("#answer").evaluate((element) => (element.textContent = ""));
  await app.locator(`button[data-tool="${tool}"]`).click({ timeout: PATIENCE });
  return shown(tab, frame, "#answer");
}

/** Opens the apps of these servers, each in a client of its own or all in one. Returns their URIs. */
function openApps(tab, fanlight, era, names, inOneClient) {
  return tab.evaluate(async ({ url, era, names, inOneClient }) => {
    const uris = [];
    let client;
    for (const name of names) {
      if (!client || !inOneClient) client = await window.host.connect(url, era);
      uris.push(await window.host.open(client, `${name}__show`, name));
    }
    return uris;
  }, { url: fanlight.url, era, names, inOneClient });
}

async function ownApps(tab, names) {
  for (const name of names) {
    assert.equal(await shown(tab, name, "h1"), name);
    assert.equal(await shown(tab, name, "#result"), `shown by ${name}`);
  }
}

const checks = {
  async "each tool shows its own app, and its button calls its own server's tool"(tab, fanlight, era) {
    // A legacy client has a session, which tells the apps of both servers apart. Modern clients
    // have none, so the apps run in turn.
    const groups = era === "legacy" ? [NAMES] : NAMES.map((name) => [name]);
    for (const names of groups) {
      const gateway = era === "legacy" ? fanlight.shared : await fanlight.fresh();
      const uris = await openApps(tab, gateway, era, names, false);
      assert.ok(uris.every((uri) => uri.startsWith("ui://")), uris.join());
      await ownApps(tab, names);
      for (const name of names) assert.equal(await press(tab, name, "refresh"), `refreshed by ${name}`);
    }
  },
  async "apps in one client call what one server alone has, and what both have is refused"(tab, fanlight, era) {
    const uris = await openApps(tab, fanlight.shared, era, NAMES, true);
    assert.equal(new Set(uris).size, NAMES.length, uris.join());
    await ownApps(tab, NAMES);
    for (const name of NAMES) assert.equal(await press(tab, name, `count_${name}`), `counted by ${name}`);
    const refused = await press(tab, NAMES[0], "refresh");
    for (const name of NAMES) assert.ok(refused.includes(`${name}__refresh`), refused);
  },
};

const leanChecks = {
  async "the list has the tools with apps and Fanlight's own, and a search finds both servers' tools"(tab, fanlight, era) {
    const { url } = fanlight.shared;
    const [listed, found] = await tab.evaluate(({ url, era }) => window.host.listAndFind(url, era, "show the board"), { url, era });
    assert.deepEqual(listed.slice(-2), ["find_tools", "call_tool"]);
    for (const name of NAMES) for (const names of [listed, found]) assert.ok(names.includes(`${name}__show`), names.join());
  },
};

const folder = mkdtempSync(path.join(tmpdir(), "fanlight-apps-"));
const running = [];
const starting = (endpoint) => async () => {
  const fanlight = await startFanlight(folder, host.origin, endpoint);
  running.push(fanlight);
  return fanlight;
};
// A lean list has the tools with apps, and so do the hosts that show them.
const KINDS = [["full", {}], ["lean", { lean: {} }]];
let [done, failed] = [0, 0];
const host = await servePage();
const browser = await chromium.launch({ executablePath: findChromium(), args: ["--no-sandbox"] });
try {
  for (const [kind, endpoint] of KINDS) {
    const start = starting(endpoint);
    await checkAll(kind, { shared: await start(), fresh: start });
  }
} finally {
  await browser.close();
  host.stop();
  await Promise.all(running.map((fanlight) => fanlight.stop()));
  rmSync(folder, { recursive: true, force: true });
}
console.log(`${done} passed, ${failed} failed`);
process.exitCode = failed === 0 && done > 0 ? 0 : 1;

async function checkAll(kind, fanlight) {
  for (const era of ["legacy", "modern"]) {
    for (const [name, check] of Object.entries({ ...checks, ...(kind === "lean" ? leanChecks : {}) })) {
      const tab = await browser.newPage();
      const problems = [];
      tab.on("pageerror", (error) => problems.push(error.message));
      try {
        await tab.goto(host.url);
        await check(tab, fanlight, era);
        assert.deepEqual(problems, []);
        done += 1;
        console.log(`ok      ${kind} ${era.padEnd(6)} ${name}`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED  ${kind} ${era.padEnd(6)} ${name}\n${error.stack}\n${problems.join("\n")}`);
      } finally {
        await tab.close();
      }
    }
  }
}
