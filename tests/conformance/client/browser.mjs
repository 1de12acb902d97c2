// A minimal browser for signing in: keeps cookies, submits the form of a page, and follows
// redirects.

const MOST_STEPS = 10;

export class Browser {
  #cookies = new Map();

  /** Opens a link of Fanlight, submits its page, and follows the redirects. */
  async signIn(link) {
    const page = await this.#request(link, { headers: { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' } });
    if (page.status !== 200) throw new Error(`the page of ${link} has the status ${page.status}`);
    const headers = {
      origin: new URL(link).origin,
      'sec-fetch-site': 'same-origin',
      'content-type': 'application/x-www-form-urlencoded',
    };
    let answer = await this.#request(link, { method: 'POST', headers, body: new URLSearchParams(hiddenFields(page.text)).toString() });
    for (let step = 0; answer.location && step < MOST_STEPS; step += 1) answer = await this.#request(answer.location, {});
    if (answer.status !== 200) throw new Error(`signing in ended with the status ${answer.status}: ${answer.text.slice(0, 300)}`);
  }

  async #request(url, { headers = {}, ...rest }) {
    const { hostname } = new URL(url);
    const own = this.#cookies.get(hostname) ?? new Map();
    const cookie = [...own].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(url, { ...rest, redirect: 'manual', headers: { ...headers, ...(cookie && { cookie }) } });
    for (const set of response.headers.getSetCookie()) {
      const [, name, value] = set.match(/^([^=]+)=([^;]*)/);
      own.set(name, value);
    }
    this.#cookies.set(hostname, own);
    const to = response.headers.get('location');
    return { status: response.status, location: to && new URL(to, url).href, text: await response.text() };
  }
}

function hiddenFields(html) {
  const form = html.split('<form')[1]?.split('</form>')[0] ?? '';
  const inputs = form.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g);
  return [...inputs].map(([, name, value]) => [plain(name), plain(value)]);
}

function plain(text) {
  const characters = { quot: '"', '#39': "'", lt: '<', gt: '>', amp: '&' };
  return text.replaceAll(/&(quot|#39|lt|gt|amp);/g, (_, name) => characters[name]);
}
