// Traces for debugging: running calls, filters, contents, replay, comparison, logs and servers'
// spans.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

const REVISION = "2026-07-28";

/** Calls a tool as a client with this name; returns the whole answer. */
async function call({ mcp }, tool, given, name = "a-client") {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": { name, version: "7" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const answer = await fetch(mcp, {
    method: "POST",
    headers: {
      "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": REVISION,
      "mcp-method": "tools/call", "mcp-name": tool,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: tool, arguments: given, _meta } }),
  });
  return answer.text();
}

const rows = (page, text) => page.getByRole("region", { name: "Traces" }).locator("tbody tr", { hasText: text });

/** Opens the newest trace of this tool. */
async function open({ page, goTo }, tool) {
  await goTo(`traces?tool=${tool}`);
  await rows(page, `tools/call ${tool}`).first().getByRole("link").click();
  await page.getByRole("heading", { level: 1, name: `tools/call ${tool}` }).waitFor();
}

const clipboard = (page) => page.evaluate(() => navigator.clipboard.readText());

export const traceChecks = {
  "a running call of a client is listed, and cancelled": async ({ page, goTo, accessible }, fanlight) => {
    const answer = call(fanlight, "wait", {}, "patient");
    await goTo("traces");
    const row = page.getByRole("table", { name: "Running requests" }).locator("tbody tr", { hasText: "patient 7" });
    await row.getByText("tools/call wait").waitFor();
    await accessible();
    await row.getByRole("button", { name: "Cancel tools/call wait" }).click();
    assert.match(await answer, /"code":-31006/);
    await page.locator("section.running-calls[hidden]").waitFor({ state: "attached" });
    await rows(page, "cancelled").first().waitFor();
    assert.ok(!(await page.locator("main").innerHTML()).includes("[object"), "an element in place of its text");
  },

  "traces are filtered by client, method, duration and outcome": async ({ page, goTo, accessible }, fanlight) => {
    await call(fanlight, "echo", { word: "x" }, "first-client");
    await call(fanlight, "fail", { word: "y" }, "second-client");
    await goTo("traces");
    await page.getByText("More filters and order").click();
    await page.getByLabel("Client").fill("second-client");
    await page.waitForFunction(() => [...document.querySelectorAll("table.rows tbody tr")].every((row) => row.textContent.includes("second-client")));
    await rows(page, "no such word: y <img src=x>").first().waitFor();
    assert.equal(await rows(page, "more").count(), 0, "the first line alone");
    await accessible();
    assert.match(page.url(), /client=second-client/);
    await page.reload();
    assert.equal(await page.getByLabel("Client").inputValue(), "second-client");
    await page.getByLabel("Slower than (ms)").fill("3600000");
    await page.getByText("No matching trace").waitFor();
    await goTo("traces?outcome=tool_error&method=tools%2Fcall&sort=slowest");
    await rows(page, "tools/call fail").first().waitFor();
    assert.equal(await rows(page, "tools/call echo").count(), 0);
  },

  "durations, outcomes and the waterfall are within the window": async (under, fanlight) => {
    const { page, goTo } = under;
    await call(fanlight, "fail", { word: `${"a long message ".repeat(20)}${"x".repeat(200)}` });
    const cut = (kind) => page.locator(kind).evaluate((one) => one.scrollWidth > one.clientWidth);
    await goTo("traces");
    await rows(page, "a long message").first().waitFor();
    assert.ok(!await cut(".scroll:has(> .rows)"), "a part of the table is cut off");
    assert.match(await rows(page, "a long message").first().innerText(), /\d m?s\s.*tool_error/s);
    await open(under, "fail");
    assert.ok(!await cut(".waterfall"), "a part of the waterfall is cut off");
  },

  "what was sent and answered is shown, and sent again": async (under, fanlight) => {
    const { page, accessible } = under;
    await call(fanlight, "echo", { word: "it's 'quoted' $HOME", token: "s3cret-of-a-client" });
    await open(under, "echo");
    const sent = page.getByRole("region", { name: "Arguments: the client and traced" });
    await sent.getByText("$HOME").waitFor();
    await page.getByText("with [redacted] in place of secrets").waitFor();
    assert.ok(!(await page.locator("main").innerText()).includes("s3cret"));
    await accessible();
    await page.getByRole("button", { name: "Raw" }).first().click();
    assert.equal(await sent.innerText(), `{"word":"it's 'quoted' $HOME","token":"[redacted]"}`);
    await page.getByRole("button", { name: "Copy as curl" }).click();
    const { stdout } = await promisify(execFile)("sh", ["-c", await clipboard(page)]);
    assert.match(stdout, /it's 'quoted' \$HOME/);
    await page.getByRole("button", { name: "Copy as recording" }).click();
    await page.getByText("Copied").waitFor();
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "Export this trace" }).click();
    const file = await (await download).path();
    for (const recording of [await readFile(file, "utf8"), await page.waitForFunction(async () => {
      const text = await navigator.clipboard.readText();
      return text.startsWith('{"recording":1') && text;
    }).then((found) => found.jsonValue())]) {
      const lines = recording.trim().split("\n").map((line) => JSON.parse(line));
      assert.deepEqual(lines.at(-1).end, { reason: "trace", whole: true, messages: 4 });
      assert.match(lines[1].text, /it's 'quoted' \$HOME","token":"\[masked\]"/);
    }
    await page.getByRole("button", { name: "Copy as command" }).click();
    assert.equal(await clipboard(page), `fanlight call echo '{"word":"it'\\''s '\\''quoted'\\'' $HOME","token":"[redacted]"}'`);
    for (const words of [["--url=http://a.example", "{}"], ["=ls", "-1"], ["it's\x03reboot\x7f\\", '{\n\t"a": "\\\\"}']]) {
      const [name, given] = words;
      const command = await page.evaluate(async (made) => (await import("/ui/payload.js")).asCommand(made), { name, arguments: given, endpoint: "/e" });
      const script = `fanlight() { printf '%s\\0' "$@"; }\n${command}`;
      const { stdout: read } = await promisify(execFile)("sh", ["-c", script]);
      const guard = words.some((word) => word.startsWith("-")) ? ["--"] : [];
      assert.deepEqual(read.split("\0").slice(0, -1), ["call", "--endpoint", "/e", ...guard, ...words]);
    }
    await page.getByRole("link", { name: "Replay in the form" }).click();
    await page.getByRole("heading", { name: "echo", exact: true }).waitFor();
    await page.waitForFunction(() => [...document.querySelectorAll(".arguments input, .arguments textarea")].some((field) => field.value === "it's 'quoted' $HOME"));
  },

  "a recording is saved with all calls until its end": async (under, fanlight) => {
    const { page, goTo } = under;
    await goTo("traces");
    await page.getByRole("button", { name: "Record", exact: true }).click();
    const save = page.getByRole("button", { name: "Save recording" });
    await save.waitFor();
    await call(fanlight, "echo", { word: "recorded" });
    const download = page.waitForEvent("download");
    await save.click();
    const text = await readFile(await (await download).path(), "utf8");
    const lines = text.trim().split("\n").map((line) => JSON.parse(line));
    assert.equal(lines[0].recording, 1);
    assert.ok(lines.some((line) => line.side === "client" && line.text.includes("recorded")), text);
    assert.deepEqual(lines.at(-1).end, { reason: "interrupted", whole: true, messages: lines.length - 2 });
    await page.getByRole("button", { name: "Record", exact: true }).waitFor();
  },

  "content is kept for a time that an operator asks for": async (under, fanlight) => {
    const { page, goTo, accessible } = under;
    await call(fanlight, "quiet__echo", { word: "unseen" });
    await open(under, "quiet__echo");
    await page.getByText("Arguments and results of this call are not kept").waitFor();
    await goTo("traces");
    await page.getByText("Keep what is sent and answered").click();
    await page.getByLabel("Of", { exact: true }).selectOption({ label: "calls to quiet" });
    await page.getByRole("button", { name: "Keep content for 10 minutes" }).click();
    const kept = page.getByText(/Content of quiet is kept until/);
    await kept.waitFor();
    await accessible();
    await call(fanlight, "quiet__echo", { word: "seen" });
    await open(under, "quiet__echo");
    await page.getByRole("region", { name: "Arguments: the client and quiet" }).getByText("seen").waitFor();
    await goTo("traces");
    await page.getByRole("button", { name: "Stop" }).click();
    await kept.waitFor({ state: "detached" });
  },

  "Fanlight's own requests are apart, and a failure has a side": async ({ page, goTo, accessible }, fanlight) => {
    await call(fanlight, "fail", { word: "z" });
    await goTo("traces");
    await rows(page, "tools/call fail").filter({ hasText: "server" }).first().waitFor();
    assert.equal(await rows(page, "connect").count(), 0);
    await goTo("traces?own=true");
    await rows(page, "connect").first().waitFor();
    assert.equal(await rows(page, "tools/call").count(), 0);
    await accessible();
  },

  "two traces of a request are compared": async (under, fanlight) => {
    const { page, accessible } = under;
    await call(fanlight, "echo", { word: "one" });
    await call(fanlight, "echo", { word: "two" });
    await open(under, "echo");
    await page.getByText("Compare with another trace").click();
    const other = page.getByLabel("Trace of the same request");
    await other.locator("option:nth-child(2)").waitFor({ state: "attached" });
    await other.selectOption({ index: 1 });
    const spans = page.getByRole("table", { name: "Spans of both traces" });
    await spans.locator("tbody tr").nth(1).waitFor();
    await page.getByRole("table", { name: "Different attributes" }).locator("tr", { hasText: "arguments" }).first().waitFor();
    await accessible();
  },

  "a trace has the lines and the spans of its servers, as texts": async (under, fanlight) => {
    const { page, accessible } = under;
    await call(fanlight, "own_spans", {});
    await open(under, "own_spans");
    await page.locator("button.span", { hasText: "read <img src=x>" }).filter({ hasText: "by traced" }).click();
    await page.getByText("Reported by traced itself").waitFor();
    assert.equal(await page.locator("button.span", { hasText: "by traced" }).count(), 2, "a span below the other; none of those that cannot be drawn");
    await page.getByText("Log of traced in that time").click();
    await page.getByRole("region", { name: "Lines of traced" }).getByText("called: own_spans").waitFor();
    assert.equal(await page.locator("main img:not(.picture)").count(), 0);
    await accessible();
  },
};
