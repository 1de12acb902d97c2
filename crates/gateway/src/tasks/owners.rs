//! Which backend each task belongs to, as far as that is known.
//!
//! Bounded, the least recently used being forgotten first; an entry also expires some time after its
//! task may. Forgetting costs no more than asking again.
//!
//! Must not know: backends beyond their places, or how anything was learnt.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_canonical::SessionKey;
use fanlight_protocol::Json;
use lru::LruCache;
use tokio::time::Instant;

/// How much longer than its task an entry is kept: lifetimes count from the creation of the task by
/// another clock.
const GRACE: Duration = Duration::from_secs(5 * 60);
/// How long an entry is kept whose task has no end.
const ENDLESS: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an entry is kept at most.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Longer ids are not remembered, in bytes.
const LONGEST_ID: usize = 1024;

/// How an owner became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It made the task for this client: whatever else has this id, that is the client's.
    Created,
    /// It knows a task of this id; what is known already stands.
    Seen,
}

pub(super) struct Owners(Mutex<LruCache<Key, Owned>>);

/// A task of a client. Clients without a session have one table together until there are
/// principals, who then take the place of this.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    client: Option<SessionKey>,
    task: Box<str>,
}

#[derive(Debug)]
struct Owned {
    backend: usize,
    until: Instant,
}

impl Owners {
    pub(super) fn new(limit: usize) -> Self {
        // One with a limit from the start takes room for all at once.
        let mut table = LruCache::unbounded();
        table.resize(NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN));
        Self(Mutex::new(table))
    }

    /// The backend that has this task of the client, if it is known.
    pub(super) fn of(&self, client: Option<SessionKey>, task: &str) -> Option<usize> {
        let key = Key { client, task: task.into() };
        let mut table = self.lock();
        match table.get(&key) {
            Some(owned) if owned.until > Instant::now() => Some(owned.backend),
            Some(_) => {
                table.pop(&key);
                None
            }
            None => None,
        }
    }

    /// Learns from the state of a task, of which only id and lifetime matter.
    pub(super) fn learn(&self, client: Option<SessionKey>, state: &Json, backend: usize, how: How) {
        let Some(id) = state.get("taskId") else { return };
        let Some(task) = id.as_str().filter(|id| id.len() <= LONGEST_ID) else { return };
        let (key, now) = (Key { client, task: task.as_ref().into() }, Instant::now());
        let mut table = self.lock();
        let known = table.peek(&key).filter(|owned| owned.until > now);
        if how == How::Created || known.is_none_or(|owned| owned.backend == backend) {
            table.put(key, Owned { backend, until: now + kept_for(state) });
        }
    }

    pub(super) fn forget(&self, client: Option<SessionKey>, task: &str) {
        self.lock().pop(&Key { client, task: task.into() });
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, Owned>> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `ttl` of 2025-11-25, `ttlMs` of the extension; both in milliseconds, `null` for no end.
fn kept_for(state: &Json) -> Duration {
    let ttl = state.get("ttlMs").or_else(|| state.get("ttl")).and_then(|ttl| ttl.as_i64());
    match ttl.and_then(|ttl| u64::try_from(ttl).ok()) {
        Some(ttl) => Duration::from_millis(ttl).saturating_add(GRACE).min(LONGEST),
        None => ENDLESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Option<SessionKey> = Some(SessionKey(1));

    fn state(text: &'static str) -> Json {
        Json::literal(text)
    }

    #[tokio::test(start_paused = true)]
    async fn entries_outlive_their_tasks_by_a_little() {
        let owners = Owners::new(10);
        let minute = Duration::from_secs(60);
        for (task, ttl, kept) in [
            ("a", r#"{"taskId":"a","ttl":60000}"#, minute + GRACE),
            ("b", r#"{"taskId":"\u0062","ttlMs":60000}"#, minute + GRACE),
            ("c", r#"{"taskId":"c","ttl":null}"#, ENDLESS),
            ("d", r#"{"taskId":"d"}"#, ENDLESS),
            ("e", r#"{"taskId":"e","ttlMs":9223372036854775807}"#, LONGEST),
        ] {
            owners.learn(CLIENT, &state(ttl), 3, How::Created);
            tokio::time::advance(kept - Duration::from_millis(1)).await;
            assert_eq!(owners.of(CLIENT, task), Some(3), "{task}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(owners.of(CLIENT, task), None, "{task}");
        }
        assert!(owners.lock().is_empty());
    }

    #[tokio::test]
    async fn who_made_a_task_for_a_client_owns_it() {
        let owners = Owners::new(10);
        let task = state(r#"{"taskId":"t"}"#);
        owners.learn(CLIENT, &task, 1, How::Seen);
        owners.learn(CLIENT, &task, 2, How::Seen);
        assert_eq!(owners.of(CLIENT, "t"), Some(1), "the first that was seen stands");
        owners.learn(CLIENT, &task, 2, How::Created);
        owners.learn(CLIENT, &task, 1, How::Seen);
        assert_eq!(owners.of(CLIENT, "t"), Some(2));
        assert_eq!((owners.of(None, "t"), owners.of(Some(SessionKey(2)), "t")), (None, None), "another's");
        owners.forget(CLIENT, "t");
        assert_eq!(owners.of(CLIENT, "t"), None);
    }

    #[tokio::test]
    async fn the_least_recently_used_go_first() {
        let owners = Owners::new(2);
        owners.learn(None, &state(r#"{"taskId":"a"}"#), 0, How::Created);
        owners.learn(None, &state(r#"{"taskId":"b"}"#), 1, How::Created);
        assert_eq!(owners.of(None, "a"), Some(0));
        owners.learn(None, &state(r#"{"taskId":"c"}"#), 2, How::Created);
        assert_eq!(["a", "b", "c"].map(|task| owners.of(None, task)), [Some(0), None, Some(2)]);
        owners.learn(None, &Json::literal("{}"), 0, How::Created);
        let long = format!(r#"{{"taskId":"{}"}}"#, "x".repeat(LONGEST_ID + 1));
        owners.learn(None, &Json::parse(long.into(), 8).unwrap(), 0, How::Created);
        assert_eq!(owners.lock().len(), 2);
    }
}
