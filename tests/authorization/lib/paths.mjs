// Paths and programs.
import { existsSync } from 'node:fs';
import path from 'node:path';

export const ROOT = path.resolve(import.meta.dirname, '..');
export const INTEROP = path.resolve(ROOT, '../interop');
export const PYTHON = path.join(INTEROP, '.venv/bin/python');
const REPOSITORY = path.resolve(ROOT, '../..');
export const GUIDE = path.join(REPOSITORY, 'docs/guide-team.md');

/** The binary under test: FANLIGHT_BIN, else a release build, else a debug build. */
export function fanlightBinary() {
  const target = process.env.CARGO_TARGET_DIR ?? path.join(REPOSITORY, 'target');
  const candidates = process.env.FANLIGHT_BIN
    ? [path.resolve(process.env.FANLIGHT_BIN)]
    : ['release', 'debug'].map((profile) => path.join(target, profile, 'fanlight'));
  const found = candidates.find(existsSync);
  if (!found) throw new Error(`no Fanlight at ${candidates.join(' or ')}: build it (cargo build) or set FANLIGHT_BIN`);
  return found;
}
