// A browser with cookies and forms, and a user who agrees to what Fanlight shows.

const MOST_HOPS = 10;

export class Browser {
  /** Cookies by origin. */
  #cookies = new Map();

  /** Opens a link, agrees to what it shows, and goes where that leads; says what the last page was. */
  async agree(link) {
    const page = await this.#request(link);
    const fields = [...page.text.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)];
    const action = page.text.match(/<button name="([^"]*)" value="([^"]*)">/);
    if (!action) return this.#note(page);
    const form = new URLSearchParams([...fields, action].map(([, name, value]) => [unescaped(name), unescaped(value)]));
    let last = await this.#request(link, form);
    for (let hop = 0; last.location && hop < MOST_HOPS; hop += 1) last = await this.#request(last.location);
    return this.#note(last);
  }

  #note({ url, status, text }) {
    const title = text.match(/<title>(.*)<\/title>/)?.[1] ?? text.slice(0, 200);
    console.error(`${new URL(url).origin}${new URL(url).pathname}: ${status} ${title}`);
  }

  async #request(url, form) {
    const { origin } = new URL(url);
    const cookies = this.#cookies.get(origin) ?? new Map();
    const headers = { Cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; '), ...(form && { Origin: origin }) };
    const answer = await fetch(url, { method: form ? 'POST' : 'GET', body: form, headers, redirect: 'manual' });
    for (const line of answer.headers.getSetCookie()) {
      const [name, value] = line.split(';', 1)[0].split(/=(.*)/s);
      cookies.set(name, value);
    }
    this.#cookies.set(origin, cookies);
    const location = answer.headers.get('location');
    return { url, status: answer.status, text: await answer.text(), location: location && new URL(location, url).href };
  }
}

function unescaped(text) {
  const characters = { lt: '<', gt: '>', quot: '"', '#39': "'", amp: '&' };
  return text.replace(/&(lt|gt|quot|#39|amp);/g, (_, name) => characters[name]);
}
