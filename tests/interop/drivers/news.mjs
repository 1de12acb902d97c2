// What a server says outside of calls: asking for it, in the way of either era, and waiting for it. Shared by the two
// TypeScript drivers.
import { EventEmitter, once } from 'node:events';
import { isDeepStrictEqual } from 'node:util';

const TIMEOUT_MS = 10_000;
const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';

const arrivals = new EventEmitter();
let heard = [];
let watched = { uris: [] };

/** The client's handler for notifications without a handler of their own. */
export async function noteNews({ method, params = {} }) {
  if (method !== 'notifications/resources/updated' && !method.endsWith('/list_changed')) return;
  const { _meta: { [SUBSCRIPTION_ID]: _, ...meta } = {}, ...rest } = params;
  heard.push({ method, params: isDeepStrictEqual(meta, {}) ? rest : { ...rest, _meta: meta } });
  arrivals.emit('news');
}

/** Subscribes to `uris` and to changes of `lists`; says what the server honours. */
export async function watch(client, { uris, lists }, options) {
  if (client.getProtocolEra?.() === 'modern') {
    const wanted = Object.fromEntries(lists.map((kind) => [`${kind}ListChanged`, true]));
    const subscription = await client.listen({ ...wanted, resourceSubscriptions: uris }, options);
    watched = { subscription };
    const honoured = subscription.honoredFilter;
    return {
      uris: honoured.resourceSubscriptions ?? [],
      lists: lists.filter((kind) => honoured[`${kind}ListChanged`]),
    };
  }
  watched = { uris };
  for (const uri of uris) await client.subscribeResource({ uri }, options);
  return { uris, lists: lists.filter((kind) => client.getServerCapabilities()[kind].listChanged) };
}

export async function unwatch(client, options) {
  await watched.subscription?.close();
  for (const uri of watched.uris ?? []) await client.unsubscribeResource({ uri }, options);
  return {};
}

/** All that has been heard since the last time, once that is `count` or the time is over. */
export async function heardSince(count) {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  while (heard.length < count && !signal.aborted) await once(arrivals, 'news', { signal }).catch(() => {});
  const told = heard;
  heard = [];
  // What one call sets off may come in any order.
  return told.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
}
