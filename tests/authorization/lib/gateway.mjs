// The Fanlight under test: its configuration, its process, and the URLs of its endpoint.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { answersOk, freePort, start, tellOfEnd, waitUntilReady } from '../../interop/lib/processes.mjs';
import { fanlightBinary } from './paths.mjs';
import { SCOPES } from './setting.mjs';

const READY_TIMEOUT_MS = 20_000;
const WELL_KNOWN = '/.well-known/oauth-protected-resource';

/** The URLs of the endpoint `/mcp` under `origin`. */
export const resourceAt = (origin) => ({
  origin,
  url: `${origin}/mcp`,
  metadataUrl: `${origin}${WELL_KNOWN}/mcp`,
  rootMetadataUrl: `${origin}${WELL_KNOWN}`,
});

/** Starts Fanlight in front of the backend, with both issuers and further members of `auth`. */
export async function startFanlight(context, { name, port, publicUrl, auth = {} }) {
  const { work, backend, jwt, opaque } = context;
  const admin = `127.0.0.1:${await freePort()}`;
  const { client_id: clientId, client_secret: clientSecret } = opaque.resourceClient;
  const oauth = [{ issuer: jwt.issuer }, { issuer: opaque.issuer, introspection: { clientId, clientSecret } }];
  const scopes = { read: SCOPES.read, call: SCOPES.call, tools: { refund: [SCOPES.refund] } };
  const configuration = {
    listen: `127.0.0.1:${port}`,
    publicUrl,
    admin: { listen: admin },
    auth: { oauth, scopes, ...auth },
    mcpServers: { till: { type: 'http', url: backend.url } },
  };
  const folder = path.join(work, name);
  mkdirSync(folder);
  const file = path.join(folder, 'fanlight.json');
  writeFileSync(file, JSON.stringify(configuration, null, 2));
  const logFile = path.join(work, 'logs', `${name}.log`);
  const env = { ...process.env, RUST_LOG: 'debug' };
  const child = await start([fanlightBinary(), 'run', '--config', file], { logFile, env });
  await waitUntilReady(child, 'fanlight', () => answersOk(`http://${admin}/readyz`), READY_TIMEOUT_MS);
  tellOfEnd(child, 'fanlight');
  return { process: child, admin, logFile };
}
