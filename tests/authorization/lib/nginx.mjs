// nginx in front of Fanlight, as packaged by Debian. It terminates TLS, so that Fanlight sees plain
// HTTP under another name. On another port it authenticates users itself and names them in a
// header.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { freePort, isListening, start, tellOfEnd, waitUntilReady } from '../../interop/lib/processes.mjs';
import { certify } from './certificate.mjs';
import { resourceAt, startFanlight } from './gateway.mjs';
import { blocksOf } from './guide.mjs';
import { call, INITIALIZE, LIST, messageIn, send } from './http.mjs';
import { checkClients } from './legs.mjs';
import { checkTraffic, differences, signInAll } from './traffic.mjs';

const PROGRAM = ['/usr/sbin/nginx', '/usr/bin/nginx'].find(existsSync);
const START_TIMEOUT_MS = 10_000;
/** The source address of nginx on the port where it authenticates users. */
const PROXY_ADDRESS = '127.0.0.2';

export async function checkBehindNginx(checks, context, clients) {
  if (!PROGRAM) return void console.log('NOT CHECKED: behind nginx, which is not installed (Debian: nginx-light)');
  const { ports } = context;
  const proxy = { header: 'X-Forwarded-User', groups: 'X-Forwarded-Groups', from: [PROXY_ADDRESS] };
  const origin = `https://localhost:${ports.tls}`;
  await startFanlight(context, { name: 'proxied', port: ports.proxied, publicUrl: origin, auth: { proxy } });
  const nginx = await startNginx(context);

  const name = 'nginx ';
  const resource = resourceAt(origin);
  const reached = { ...context, name, resource };
  await checkTraffic(checks, { ...reached, tokens: await signInAll(reached) });
  const modern = clients.filter(({ era }) => era === 'modern');
  await checkClients(checks, { ...reached, caFile: nginx.caFile, signInOnly: true }, modern);
  for (const [what, check] of Object.entries(USER_CHECKS)) {
    await checks.one(`${name}  ${what}`, () => check({ ...nginx, direct: `http://127.0.0.1:${ports.proxied}/mcp` }));
  }
}

const USER_CHECKS = {
  async 'a user whom nginx has authenticated calls'({ users, as }) {
    const answer = await send(users, { ...call('note'), headers: { ...call('note').headers, ...as('alice') } });
    const text = messageIn(answer)?.result?.content?.[0]?.text;
    return differences({ status: answer.status, text }, { status: 200, text: 'noted' });
  },

  async 'a session is of use to its user alone'({ users, as }) {
    const opened = await send(users, { message: INITIALIZE, headers: as('alice') });
    const session = { 'mcp-session-id': opened.headers.get('mcp-session-id'), 'mcp-protocol-version': '2025-11-25' };
    const stolen = await send(users, { message: LIST, headers: { ...session, ...as('bob') } });
    const own = await send(users, { message: LIST, headers: { ...session, ...as('alice') } });
    return differences({ opened: opened.status, stolen: stolen.status, own: own.status }, { opened: 200, stolen: 404, own: 200 });
  },

  async 'a client that names itself is not believed'({ users, as, direct }) {
    const opened = await send(users, { message: INITIALIZE, headers: as('alice') });
    const session = { 'mcp-session-id': opened.headers.get('mcp-session-id'), 'mcp-protocol-version': '2025-11-25' };
    const named = { 'x-forwarded-user': 'alice' };
    const through = await send(users, { message: LIST, headers: { ...session, ...as('bob'), ...named } });
    const around = await send(direct, { message: LIST, headers: { ...session, ...named } });
    return differences({ through: through.status, around: around.status }, { through: 404, around: 401 });
  },
};

async function startNginx({ work, ports }) {
  const folder = path.join(work, 'nginx');
  mkdirSync(folder);
  const cert = certify(folder);
  const users = await freePort();
  const passwords = path.join(folder, 'users');
  writeFileSync(passwords, ['alice', 'bob'].map((user) => `${user}:{PLAIN}${user}-secret\n`).join(''));
  const file = path.join(folder, 'nginx.conf');
  writeFileSync(file, configurationOf({ folder, ports: { ...ports, users }, passwords }));
  const logFile = path.join(work, 'logs', 'nginx.log');
  const child = await start([PROGRAM, '-c', file, '-e', 'stderr'], { logFile });
  await waitUntilReady(child, 'nginx', () => isListening(users), START_TIMEOUT_MS);
  tellOfEnd(child, 'nginx');
  const as = (user) => ({ authorization: `Basic ${btoa(`${user}:${user}-secret`)}` });
  return { caFile: cert, users: `http://127.0.0.1:${users}/mcp`, as };
}

/** The first server is the one in docs/guide-team.md. The second authenticates users by passwords, and names them in the same way. */
function configurationOf({ folder, ports, passwords }) {
  const [server, names] = blocksOf('nginx');
  const local = server
    .replace('listen 443 ssl', `listen 127.0.0.1:${ports.tls} ssl`)
    .replace('server_name mcp.example.com', 'server_name localhost')
    .replace('/etc/ssl/mcp.pem', `${folder}/cert.pem`)
    .replace('/etc/ssl/mcp.key', `${folder}/key.pem`)
    .replace('127.0.0.1:8080', `127.0.0.1:${ports.proxied}`);
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`);
  return `
daemon off;
user ${os.userInfo().username};
worker_processes 1;
pid ${folder}/nginx.pid;
events { worker_connections 256; }
http {
  access_log off;
  ${temporary.join('\n  ')}
  ${local}
  server {
    listen 127.0.0.1:${ports.users};
    auth_basic "fanlight";
    auth_basic_user_file ${passwords};
    location / {
      proxy_pass http://127.0.0.1:${ports.proxied};
      proxy_bind ${PROXY_ADDRESS};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host localhost:${ports.tls};
      proxy_buffering off;
      ${names}
    }
  }
}
`;
}
