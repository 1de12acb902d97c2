// A browser without a window: follows the redirects of a sign-in by HTTP, with cookies, as the user it is given.
// As a program (`browser.mjs URL`, user in TEST_USER) it goes to the end, as a desktop's browser does for mcp-remote.
import { USER_HEADER } from './setting.mjs';

const MAX_REDIRECTS = 12;
const TIMEOUT_MS = 10_000;

/** Goes where `url` leads until that is under `redirectUri`, which is returned with its parameters and not opened. */
export async function followTo(redirectUri, url, user) {
  const jar = new Map();
  let next = new URL(url);
  for (let count = 0; count < MAX_REDIRECTS; count += 1) {
    const cookies = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const headers = { cookie: cookies, [USER_HEADER]: user };
    const response = await fetch(next, { headers, redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      jar.set(name, value);
    }
    const location = response.headers.get('location');
    if (!location) {
      if (redirectUri === undefined && response.ok) return next;
      throw new Error(`the sign-in ends at ${next.pathname} with ${response.status}: ${await response.text()}`);
    }
    next = new URL(location, next);
    if (redirectUri !== undefined && next.href.startsWith(redirectUri)) return next;
  }
  throw new Error(`more than ${MAX_REDIRECTS} redirects`);
}

if (process.argv[1] === import.meta.filename) {
  await followTo(undefined, process.argv[2], process.env.TEST_USER ?? 'alice');
}
