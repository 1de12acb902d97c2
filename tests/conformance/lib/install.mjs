// Installs the pinned packages; a stamp with the lock's hash makes a second run skip the work.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { run } from '../../interop/lib/processes.mjs';
import { PACKAGES, ROOT } from './paths.mjs';

const INSTALL_TIMEOUT_MS = 5 * 60_000;

export async function install() {
  const stamp = path.join(PACKAGES, '.conformance-lock');
  const hash = createHash('sha256').update(readFileSync(path.join(ROOT, 'package-lock.json'))).digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return;
  console.log('installing package-lock.json');
  rmSync(PACKAGES, { recursive: true, force: true });
  const npm = ['npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--no-update-notifier'];
  await run(npm, { cwd: ROOT, timeoutMs: INSTALL_TIMEOUT_MS });
  writeFileSync(stamp, hash);
}
