// Starts the real binary with its embedded demo, and ends it.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../..");
const PATIENCE = 20_000;

/** The binary under test. */
export const BINARY = process.env.FANLIGHT_BIN
  ?? path.join(process.env.CARGO_TARGET_DIR ?? path.join(ROOT, "target"), "debug", "fanlight");

/** A demo server as an entry of `mcpServers`. */
export const demoServer = (era) => ({ command: BINARY, args: ["demo-server", era] });

/** A server with this set of tools (servers/sets.mjs) as an entry of `mcpServers`. */
export const testServer = (set) => ({ command: process.execPath, args: [path.join(path.dirname(fileURLToPath(import.meta.url)), "servers", "tools.mjs"), set] });

/** An address that is free at the moment. */
export async function freeAddress() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `127.0.0.1:${server.address().port}`;
  await new Promise((resolve) => server.close(resolve));
  return address;
}

/** Fanlight on free ports, with the embedded demo or with this configuration. */
export async function start(config = undefined, admin = "127.0.0.1:0") {
  const folder = mkdtempSync(path.join(tmpdir(), "fanlight-browser-"));
  if (config) writeFileSync(path.join(folder, "fanlight.yaml"), JSON.stringify(config));
  const run = async () => {
    const child = spawn(BINARY, ["run", ...(config ? ["--config", "fanlight.yaml"] : []), "--listen", "127.0.0.1:0", "--admin", admin], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    const ended = new Promise((resolve) => child.once("exit", resolve));
    const end = async () => {
      child.kill("SIGTERM");
      await ended;
    };
    try {
      return { ...await addresses(child), end };
    } catch (error) {
      await end();
      throw error;
    }
  };
  const remove = () => rmSync(folder, { recursive: true, force: true });
  try {
    let { end, ...found } = await run();
    const fanlight = {
      ...found,
      /** Ends Fanlight and starts it again in the same folder. */
      restart: async () => {
        await end();
        ({ end, ...found } = await run());
        Object.assign(fanlight, found);
      },
      /** Ends Fanlight; a second call does nothing. */
      stop: async () => {
        await end();
        remove();
      },
    };
    return fanlight;
  } catch (error) {
    remove();
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
