// State that the two TypeScript peers share: entries that are added and removed, and the sessions that are notified of
// it.
import { EventEmitter, once } from 'node:events';

const LISTENING_TIMEOUT_MS = 10_000;

export const FORM = { type: 'object', properties: { name: { type: 'string', title: 'Näme' } }, required: ['name'] };
export const POEM = {
  messages: [{ role: 'user', content: { type: 'text', text: 'a poem, s’il vous plaît' } }],
  maxTokens: 9,
};
export const text = (value) => ({ content: [{ type: 'text', text: value }] });

export class World {
  extra = new Set();
  #sessions = new Set();
  #streams = 0;
  #began = new EventEmitter();

  constructor(name) {
    this.name = name;
  }

  uri(entry) {
    return `note://${this.name}/${entry}`;
  }

  /** Registers the entries that every server has; the SDKs agree on these methods. */
  registerEntries(server) {
    for (const entry of ['1', '2', '3']) this.#registerNote(server, entry);
    this.#registerHint(server, 'hint');
  }

  /** Registers an entry that can be removed, by `remove()` of the return value. */
  registerExtra(server, kind) {
    if (kind === 'tools') return server.registerTool('extra', { description: 'Added and removed' }, async () => text('extra'));
    return kind === 'prompts' ? this.#registerHint(server, 'extra') : this.#registerNote(server, 'extra');
  }

  #registerNote(server, entry) {
    const uri = this.uri(entry);
    return server.registerResource(`${this.name}-${entry}`, uri, {}, async () => ({ contents: [{ uri, text: entry }] }));
  }

  #registerHint(server, name) {
    const messages = [{ role: 'user', content: { type: 'text', text: name } }];
    return server.registerPrompt(name, { description: 'A hint' }, async () => ({ messages }));
  }

  /** A session of the legacy era, which is notified of changes until `close` is called. */
  openSession(server) {
    const session = { server, subscribed: new Set(), extra: new Map(), close: () => this.#sessions.delete(session) };
    for (const kind of this.extra) session.extra.set(kind, this.registerExtra(server, kind));
    this.#sessions.add(session);
    return session;
  }

  async updated(uri) {
    const method = 'notifications/resources/updated';
    const concerned = [...this.#sessions].filter(({ subscribed }) => subscribed.has(uri));
    await Promise.allSettled(concerned.map(({ server }) => server.server.notification({ method, params: { uri } })));
  }

  /** The SDK itself announces the change of a connected server. */
  toggle(kind) {
    const adds = !this.extra.delete(kind);
    if (adds) this.extra.add(kind);
    for (const { server, extra } of this.#sessions) {
      if (adds) extra.set(kind, this.registerExtra(server, kind));
      else {
        extra.get(kind).remove();
        extra.delete(kind);
      }
    }
  }

  /** Counts the open GET streams of sessions: without one, notifications reach no client. */
  countStream(response) {
    this.#streams += 1;
    this.#began.emit('stream');
    response.once('close', () => (this.#streams -= 1));
  }

  async untilHeard() {
    while (this.#streams === 0) await once(this.#began, 'stream', { signal: AbortSignal.timeout(LISTENING_TIMEOUT_MS) });
  }
}
