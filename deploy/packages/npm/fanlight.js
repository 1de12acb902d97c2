#!/usr/bin/env node
// Runs this platform's program, with the same arguments, streams, signals and exit status.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `${process.platform}-${process.arch}`;

// The packages with a program that runs here, the best one first. npm installs those for this machine's C library; versions of
// npm that do not know C libraries install all.
function packages() {
  if (process.platform !== "linux") return [platform];
  process.report.excludeNetwork = true;
  return process.report.getReport().header.glibcVersionRuntime ? [platform, `${platform}-musl`] : [`${platform}-musl`];
}

function find() {
  const file = process.platform === "win32" ? "fanlight.exe" : "fanlight";
  for (const name of packages()) {
    try {
      return require.resolve(`@fanlight-mcp/${name}/bin/${file}`);
    } catch {
      // The package is not installed.
    }
  }
  console.error(
    `fanlight: there is no program for ${platform} here. Either npm left out optional dependencies (install without ` +
      "--omit=optional), or this platform has no package (then: cargo install, see the README)."
  );
  process.exit(127);
}

const program = find();
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`fanlight: cannot run ${program}: ${error.message}`);
  process.exit(126);
});

// A terminal sends its signals to the program itself, and a second SIGINT would stop the program at
// once.
const terminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
  process.on(signal, () => {
    if (signal === "SIGTERM" || !terminal) child.kill(signal);
  });
}
child.on("exit", (code, signal) => {
  // The status with which a shell reports a signal.
  process.exit(signal ? 128 + constants.signals[signal] : code);
});
