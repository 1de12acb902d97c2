//! Results that may be served again, limited in number and bytes.
//!
//! quick_cache chooses which to evict: a client that reads every resource once does not flush the
//! cache. One result is kept per resource, so that an announced change finds it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Response;
use fanlight_protocol::json::{Edits, Json};
use fanlight_protocol::result::{AnyResult, ResultView as _};
use fanlight_protocol::uri::with_parents;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use tokio::time::Instant;

use super::Read;
use crate::topology::BackendId;

/// The memory of an entry besides its texts, in bytes.
const OVERHEAD: usize = 256;

/// Limits for results that are kept to be served again. If `entries` or `bytes` is 0, none are
/// kept.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// The most results that are kept.
    pub entries: usize,
    /// The most bytes of all results together.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self {
            entries: 1000,
            bytes: 16 << 20,
        }
    }
}

/// The longest time that a result is kept, even if its `ttlMs` is longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The results that any principal may be served.
pub(super) struct KeptResults {
    cache: Mutex<Cache<Key, Entry, Weight>>,
    capacity: u64,
}

type Key = (BackendId, Arc<str>);

#[derive(Clone)]
struct Entry {
    params: Bytes,
    response: Response,
    expires: Instant,
}

/// An entry's weight. It is at least an equal share of all bytes, which limits the number of
/// entries too.
#[derive(Clone)]
struct Weight {
    least: u64,
}

impl Weighter<Key, Entry> for Weight {
    fn weight(&self, (_, uri): &Key, entry: &Entry) -> u64 {
        let bytes = OVERHEAD + uri.len() + entry.params.len() + entry.response.size();
        (bytes as u64).max(self.least)
    }
}

impl KeptResults {
    /// Returns `None` if the limits permit no results.
    pub(super) fn new(limits: CacheLimits) -> Option<Self> {
        if limits.entries == 0 || limits.bytes == 0 {
            return None;
        }
        let capacity = limits.bytes as u64;
        let least = capacity.div_ceil(limits.entries.max(1) as u64);
        let cache = Cache::with_weighter(limits.entries, capacity, Weight { least });
        Some(Self {
            cache: Mutex::new(cache),
            capacity,
        })
    }

    /// The result of an equal read, with its remaining `ttlMs`.
    pub(super) fn get(&self, read: &Read) -> Option<Response> {
        let key = (read.backend, Arc::from(read.uri.as_str()));
        let mut cache = self.cache.lock();
        let entry = cache
            .get(&key)
            .filter(|entry| entry.params == read.params)?;
        let left = i64::try_from(
            entry
                .expires
                .saturating_duration_since(Instant::now())
                .as_millis(),
        )
        .ok();
        let response = left
            .filter(|left| *left > 0)
            .and_then(|left| with_ttl(&entry.response, left));
        if response.is_none() {
            cache.remove(&key);
        }
        response
    }

    /// Stores a result if the server permits that for some time and for any principal.
    pub(super) fn insert(&self, read: &Read, response: &Response) {
        let Some(ttl) = public_ttl(response) else {
            return;
        };
        let bytes = OVERHEAD + read.uri.len() + read.params.len() + response.size();
        if u64::try_from(bytes).is_ok_and(|bytes| bytes > self.capacity) {
            return;
        }
        let Some(expires) = Instant::now().checked_add(ttl.min(LONGEST)) else {
            return;
        };
        // Detached, because otherwise the whole receive buffer would stay in memory.
        let entry = Entry {
            params: Bytes::copy_from_slice(&read.params),
            response: response.detached(),
            expires,
        };
        self.cache
            .lock()
            .insert((read.backend, Arc::from(read.uri.as_str())), entry);
    }

    /// Drops the results of a resource and of the resources that contain it. An updated resource
    /// may be part of the one subscribed to (2026-07-28 schema, `ResourceUpdatedNotification`).
    pub(super) fn remove(&self, backend: BackendId, uri: &str) {
        let mut cache = self.cache.lock();
        for uri in with_parents(uri) {
            cache.remove(&(backend, Arc::from(uri)));
        }
    }

    /// Drops all results of a server.
    pub(super) fn remove_all(&self, backend: BackendId) {
        self.cache.lock().retain(|(of, _), _| *of != backend);
    }
}

fn public_ttl(response: &Response) -> Option<Duration> {
    let result = response
        .view::<AnyResult>()
        .filter(|_| response.is_complete())?;
    let is_public = result
        .cache_scope()
        .is_some_and(|scope| scope.as_text() == "\"public\"");
    let ttl = result
        .ttl_ms()
        .and_then(|ttl| u64::try_from(ttl.as_i64()?).ok())
        .filter(|ttl| *ttl > 0);
    ttl.filter(|_| is_public).map(Duration::from_millis)
}

/// The response with a `ttlMs` of `left`, so that a client keeps it no longer than the server
/// permits.
fn with_ttl(response: &Response, left: i64) -> Option<Response> {
    let body = response.body();
    let place = body.place("ttlMs")?;
    if body.slice(place.clone()).as_i64() == Some(left) {
        return Some(response.clone());
    }
    let mut edits = Edits::new(body.bytes().clone());
    edits.replace(place, left.to_string().into_bytes());
    let body: Json = edits.finish_json();
    Some(response.with_body(&body))
}
