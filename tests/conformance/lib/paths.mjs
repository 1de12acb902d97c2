// Paths and programs.
import { existsSync } from 'node:fs';
import path from 'node:path';

export const ROOT = path.resolve(import.meta.dirname, '..');
export const PACKAGES = path.join(ROOT, 'node_modules');
export const REPOSITORY = path.resolve(ROOT, '../..');

const SUITE_NEEDS = 22;

/** The Node that runs the suite: this one if it is new enough, else the pinned package. */
export const NODE =
  Number(process.versions.node.split('.')[0]) >= SUITE_NEEDS
    ? process.execPath
    : path.join(PACKAGES, `node-${process.platform}-${process.arch}/bin/node`);

/** The binary under test: FANLIGHT_BIN, else a release build, else a debug build. */
export function fanlightBinary() {
  const candidates = process.env.FANLIGHT_BIN
    ? [path.resolve(process.env.FANLIGHT_BIN)]
    : ['release', 'debug'].map((profile) => path.join(REPOSITORY, 'target', profile, 'fanlight'));
  const found = candidates.find(existsSync);
  if (!found) throw new Error(`no Fanlight at ${candidates.join(' or ')}: build it (cargo build --release) or set FANLIGHT_BIN`);
  return found;
}
