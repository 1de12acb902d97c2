// Installs the pinned servers and SDKs: `node_modules` from package-lock.json, `.venv` from requirements.txt.
// A stamp with the lock's hash makes a second run skip the work.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { run } from './processes.mjs';

const INSTALL_TIMEOUT_MS = 5 * 60_000;

export async function install(root) {
  await installPackages(root);
  await installPython(root);
}

export const installPackages = (root) =>
  onceForEach(path.join(root, 'package-lock.json'), path.join(root, 'node_modules'), () =>
    run(['npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--no-update-notifier'], inFolder(root)));

export const installPython = (root) =>
  onceForEach(path.join(root, 'requirements.txt'), path.join(root, '.venv'), async (venv) => {
    await run([process.env.PYTHON ?? 'python3', '-m', 'venv', venv], inFolder(root));
    const pip = [path.join(venv, 'bin', 'python'), '-m', 'pip', '--disable-pip-version-check', '--no-input'];
    await run([...pip, 'install', '--quiet', '--no-deps', '-r', 'requirements.txt'], inFolder(root));
  });

const inFolder = (cwd) => ({ cwd, timeoutMs: INSTALL_TIMEOUT_MS });

async function onceForEach(lockFile, folder, installInto) {
  const stamp = path.join(folder, '.interop-lock');
  const hash = createHash('sha256').update(readFileSync(lockFile)).digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return;
  console.log(`installing ${path.basename(lockFile)}`);
  rmSync(folder, { recursive: true, force: true });
  await installInto(folder);
  writeFileSync(stamp, hash);
}
