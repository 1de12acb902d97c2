// Installs the pinned packages, and the Python SDK as tests/interop does. Prints the Node for the
// authorization server: this one if it is new enough, otherwise the one from the packages.
import path from 'node:path';
import { installPackages, installPython } from '../../interop/lib/install.mjs';
import { INTEROP, ROOT } from './paths.mjs';

const SERVER_NEEDS = 22;

console.log = console.error; // the path is all of the output
await installPackages(ROOT);
await installPython(INTEROP);
const isNewEnough = Number(process.versions.node.split('.')[0]) >= SERVER_NEEDS;
const packaged = path.join(ROOT, `node_modules/node-${process.platform}-${process.arch}/bin/node`);
process.stdout.write(isNewEnough ? process.execPath : packaged);
