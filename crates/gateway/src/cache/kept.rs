//! Results that may be served again, bounded in number and bytes.
//!
//! The eviction is quick_cache's, which a client that reads every resource once does not flush.
//! One result is kept per resource, so that an announced change finds it.
//!
//! Must not know: how a result came, or who asks for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Response;
use fanlight_protocol::json::{Edits, Json};
use fanlight_protocol::result::{AnyResult, ResultView as _};
use fanlight_protocol::uri::with_parents;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use tokio::time::Instant;

use super::{Read, is_complete};
use crate::settings::CacheLimits;

/// What an entry takes beside its texts.
const OVERHEAD: usize = 256;

pub(super) struct Kept {
    cache: Cache<Key, Entry, Weight>,
    capacity: u64,
    longest: Duration,
}

type Key = (usize, Arc<str>);

#[derive(Clone)]
struct Entry {
    params: Bytes,
    response: Response,
    expires: Instant,
}

/// Bounds the number too: no entry counts as less than its share of all bytes.
#[derive(Clone)]
struct Weight {
    least: u64,
}

impl Weighter<Key, Entry> for Weight {
    fn weight(&self, (_, uri): &Key, entry: &Entry) -> u64 {
        let bytes = OVERHEAD + uri.len() + entry.params.len() + entry.response.size();
        u64::try_from(bytes).unwrap_or(u64::MAX).max(self.least)
    }
}

impl Kept {
    pub(super) fn new(limits: CacheLimits) -> Self {
        let capacity = u64::try_from(limits.bytes).unwrap_or(u64::MAX);
        let least = capacity.div_ceil(u64::try_from(limits.entries.max(1)).unwrap_or(u64::MAX));
        Self {
            cache: Cache::with_weighter(limits.entries, capacity, Weight { least }),
            capacity,
            longest: limits.longest,
        }
    }

    /// The result kept for this very read, with what is left of its time.
    pub(super) fn get(&mut self, read: &Read) -> Option<Response> {
        let key = (read.backend, Arc::from(read.uri.as_str()));
        let left = {
            let entry = self.cache.get(&key)?;
            if entry.params != read.params {
                return None;
            }
            entry.expires.saturating_duration_since(Instant::now())
        };
        match i64::try_from(left.as_millis()) {
            Ok(left) if left > 0 => self.cache.get(&key).and_then(|entry| with_ttl(&entry.response, left)),
            _ => {
                self.cache.remove(&key);
                None
            }
        }
    }

    /// Keeps `response` if the server lets anyone have it for some time.
    pub(super) fn insert(&mut self, read: &Read, response: &Response) {
        let Some(ttl) = public_ttl(response) else { return };
        let bytes = OVERHEAD + read.uri.len() + read.params.len() + response.size();
        if u64::try_from(bytes).is_ok_and(|bytes| bytes > self.capacity) {
            return;
        }
        let Some(expires) = Instant::now().checked_add(ttl.min(self.longest)) else { return };
        // What it was cut from is not to stay with it.
        let entry = Entry { params: Bytes::copy_from_slice(&read.params), response: response.detached(), expires };
        self.cache.insert((read.backend, Arc::from(read.uri.as_str())), entry);
    }

    /// Lets go of a resource, and of those that it is part of: one that is updated may be part of
    /// the one subscribed to (2026-07-28 schema, `ResourceUpdatedNotification`).
    pub(super) fn remove(&mut self, backend: usize, uri: &str) {
        for uri in with_parents(uri) {
            self.cache.remove(&(backend, Arc::from(uri)));
        }
    }

    pub(super) fn remove_all(&mut self, backend: usize) {
        let keys: HashSet<Key> =
            self.cache.iter().map(|(key, _)| key.clone()).filter(|(of, _)| *of == backend).collect();
        for key in keys {
            self.cache.remove(&key);
        }
    }
}

fn public_ttl(response: &Response) -> Option<Duration> {
    let result = response.view::<AnyResult>().filter(|_| is_complete(response))?;
    let is_public = result.cache_scope().is_some_and(|scope| scope.as_text() == "\"public\"");
    let ttl = result.ttl_ms().and_then(|ttl| u64::try_from(ttl.as_i64()?).ok()).filter(|ttl| *ttl > 0);
    ttl.filter(|_| is_public).map(Duration::from_millis)
}

/// The same response, good for `left` milliseconds: whoever keeps it again must not keep it longer
/// than the server said.
fn with_ttl(response: &Response, left: i64) -> Option<Response> {
    let body = response.body();
    let place = body.members().find(|member| member.is(&body, "ttlMs"))?.value;
    if body.slice(place.clone()).as_i64() == Some(left) {
        return Some(response.clone());
    }
    let mut edits = Edits::new(body.bytes().clone());
    edits.replace(place, left.to_string().into_bytes());
    let body: Json = edits.finish_json();
    Some(response.with_body(&body))
}
