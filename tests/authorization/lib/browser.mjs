// A browser without a window. It follows the redirects of a sign-in by HTTP, with cookies, as a
// given user. As a program (`browser.mjs URL`, user in TEST_USER) it completes the sign-in, like
// the desktop's browser for mcp-remote.
import { USER_HEADER } from './setting.mjs';

const MAX_REDIRECTS = 12;
const TIMEOUT_MS = 10_000;

/** Follows `url` up to a URL under `redirectUri`; returns this URL with its parameters and does not open it. */
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

/** A browser of a given user that keeps cookies and submits forms. */
export class Browser {
  #jar = new Map();
  #user;

  constructor(user) {
    this.#user = user;
  }

  /** Opens a page and follows redirects. */
  open = async (url) => this.follow(await this.#request(new URL(url)));

  /** Follows the redirects of an answer. */
  async follow(answer) {
    let page = answer;
    for (let count = 0; page.location && count < MAX_REDIRECTS; count += 1) page = await this.#request(page.location);
    return page;
  }

  /** Submits the first form of a page with its hidden fields and these fields. */
  async submit(page, fields, { follow = true } = {}) {
    const form = /<form[^]*?<\/form>/.exec(page.text)?.[0];
    if (!form) throw new Error(`there is no form: ${page.text}`);
    const hidden = [...form.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)].map(([, name, value]) => [name, value]);
    const body = new URLSearchParams({ ...Object.fromEntries(hidden), ...fields });
    const headers = { origin: page.url.origin, 'sec-fetch-site': 'same-origin' };
    const answer = await this.#request(page.url, { method: 'POST', body, headers });
    return follow ? this.follow(answer) : answer;
  }

  async #request(url, { headers = {}, ...rest } = {}) {
    const cookie = [...this.#jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const own = { cookie, [USER_HEADER]: this.#user, ...headers };
    const options = { redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS), headers: own, ...rest };
    const response = await fetch(url, options);
    for (const given of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(given);
      if (/max-age=0/i.test(given)) this.#jar.delete(name);
      else this.#jar.set(name, value);
    }
    const location = response.headers.get('location');
    return { url, status: response.status, text: await response.text(), location: location && new URL(location, url) };
  }
}

if (process.argv[1] === import.meta.filename) {
  await followTo(undefined, process.argv[2], process.env.TEST_USER ?? 'alice');
}
