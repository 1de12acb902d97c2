// Starts the real binary with its embedded demo, and ends it.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../..");
const PATIENCE = 20_000;

/** The binary under test. */
export const BINARY = process.env.FANLIGHT_BIN
  ?? path.join(process.env.CARGO_TARGET_DIR ?? path.join(ROOT, "target"), "debug", "fanlight");

/** Fanlight on free ports: with the embedded demo, or, with a token, with one demo server from a configuration. */
export async function start(token = undefined) {
  const folder = mkdtempSync(path.join(tmpdir(), "fanlight-browser-"));
  if (token) {
    const servers = { workshop: { command: BINARY, args: ["demo-server", "modern"] } };
    writeFileSync(path.join(folder, "fanlight.yaml"), JSON.stringify({ admin: { token }, mcpServers: servers }));
  }
  const child = spawn(BINARY, ["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const { mcp, admin } = await addresses(child);
    return { mcp, admin, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function addresses(child) {
  const found = {};
  const reading = (async () => {
    for await (const line of createInterface({ input: child.stdout })) {
      found.mcp ??= line.match(/^listening on (http:\/\/\S+)/)?.[1];
      found.admin ??= line.match(/^admin on (http:\/\/\S+)/)?.[1];
      if (found.mcp && found.admin) return found;
    }
    throw new Error("fanlight exited before it logged its addresses");
  })();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`fanlight did not say where it listens within ${PATIENCE} ms`)), PATIENCE);
  });
  try {
    return await Promise.race([reading, late]);
  } finally {
    clearTimeout(timer);
    child.stdout.resume();
  }
}
