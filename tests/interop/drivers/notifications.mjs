// Server notifications outside of calls: subscribes in the form of either era, and waits for them.
// Shared by the two TypeScript drivers.
import { EventEmitter, once } from 'node:events';
import { isDeepStrictEqual } from 'node:util';

const TIMEOUT_MS = 10_000;
const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';

const arrivals = new EventEmitter();
let received = [];
let watched = { uris: [] };

/** The client's fallback handler for notifications. */
export async function recordNotification({ method, params = {} }) {
  if (method !== 'notifications/resources/updated' && !method.endsWith('/list_changed')) return;
  const { _meta: { [SUBSCRIPTION_ID]: _, ...meta } = {}, ...rest } = params;
  received.push({ method, params: isDeepStrictEqual(meta, {}) ? rest : { ...rest, _meta: meta } });
  arrivals.emit('notification');
}

/** Subscribes to `uris` and to changes of `lists`; returns what the server honours. */
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

/** Returns the notifications since the last time, once there are `count` or the time is over. */
export async function notificationsSince(count) {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  while (received.length < count && !signal.aborted) await once(arrivals, 'notification', { signal }).catch(() => {});
  const notifications = received;
  received = [];
  // The notifications of one call may arrive in any order.
  return notifications.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
}
