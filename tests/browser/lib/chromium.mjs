// Finds Chromium, or installs it.

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const CLI = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", "node_modules", "playwright-core", "cli.js");

/** The path of a Chromium that can be started. */
export function findChromium() {
  const found = known();
  if (found) return found;
  console.log("Chromium not found: installing it");
  if (process.getuid?.() === 0) {
    const apt = (...args) => spawnSync("apt-get", args, { stdio: ["ignore", "ignore", "inherit"], timeout: 300_000 });
    apt("update", "-qq");
    apt("install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core");
  }
  if (!known()) {
    spawnSync(process.execPath, [CLI, "install", "--with-deps", "chromium"], { stdio: "inherit", timeout: 300_000 });
  }
  const installed = known();
  if (!installed) throw new Error("there is no Chromium and none can be installed; name one by CHROMIUM=/path/to/chromium");
  return installed;
}

function known() {
  const own = chromium.executablePath();
  const candidates = [process.env.CHROMIUM, own, ...NAMES.map(which)];
  return candidates.find((candidate) => candidate && existsSync(candidate));
}

function which(name) {
  try {
    return execFileSync("sh", ["-c", 'command -v "$1"', "sh", name], { encoding: "utf8" }).trim();
  } catch {
    return undefined;
  }
}
