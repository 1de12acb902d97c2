//! Remembers which server sent a URI to a client, and the servers whose apps the client has open.
//!
//! A server may put an unlisted URI into a result (server/tools, Resource Links), which the client
//! reads later. Each entry belongs to one caller, so that no client's requests depend on another
//! one's answers. The memory is limited: a forgotten URI only makes Fanlight ask the servers in
//! turn.

use std::time::Duration;

use fanlight_canonical::{Caller, Holder, SessionKey};
use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use tokio::time::Instant;

use crate::topology::BackendId;

/// The longest remembered URI, in bytes. A longer URI gets an alias.
const LONGEST: usize = 2 << 10;
/// The most servers whose apps one client has open. No client shows that many apps.
const ORIGINS: usize = 32;

/// The URIs that servers have handed out, and the apps that clients have open.
pub(crate) struct HandedOut {
    owners: Mutex<Cache<Key, BackendId>>,
    apps: Mutex<Cache<Client, Apps>>,
    /// How long an app counts as open after its last use, since nobody reports when it is closed.
    open_for: Duration,
}

/// A client: one session, or a principal at an endpoint without sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    holder: Holder,
    session: Option<SessionKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: Client,
    uri: Box<str>,
}

/// The servers whose apps one client has open.
#[derive(Clone, Debug, Default)]
struct Apps {
    /// The client called a tool that an app shows.
    called: Vec<App>,
    /// The client read an app, perhaps only to have it ready.
    read: Vec<App>,
}

/// A server with an app, and the time of its last use.
type App = (BackendId, Instant);

/// How a client opened an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The client called a tool that the app shows.
    ByCall,
    /// The client read the app.
    ByRead,
}

impl Client {
    fn from_caller(caller: &Caller) -> Self {
        Self {
            holder: caller.holder().clone(),
            session: caller.session(),
        }
    }
}

impl HandedOut {
    /// Remembers at most `limit` URIs, and the apps of as many clients.
    pub(crate) fn new(limit: usize, open_for: Duration) -> Self {
        let limit = limit.max(1);
        Self {
            owners: Mutex::new(Cache::new(limit)),
            apps: Mutex::new(Cache::new(limit)),
            open_for,
        }
    }

    /// The server that handed out `uri` to this caller.
    pub(crate) fn owner(&self, caller: &Caller, uri: &str) -> Option<BackendId> {
        if uri.len() > LONGEST {
            return None;
        }
        self.owners
            .lock()
            .get(&Key {
                client: Client::from_caller(caller),
                uri: uri.into(),
            })
            .copied()
    }

    /// Remembers that `backend` handed out `uri` to this caller, and returns the first server that
    /// did. `None` if the URI is too long to be remembered.
    pub(crate) fn remember(
        &self,
        caller: &Caller,
        uri: &str,
        backend: BackendId,
        is_gone: impl Fn(BackendId) -> bool,
    ) -> Option<BackendId> {
        if uri.len() > LONGEST {
            return None;
        }
        let key = Key {
            client: Client::from_caller(caller),
            uri: uri.into(),
        };
        let mut owners = self.owners.lock();
        if let Some(owner) = owners.get(&key).filter(|owner| !is_gone(**owner)) {
            return Some(*owner);
        }
        owners.insert(key, backend);
        Some(backend)
    }

    /// Records that a client has opened an app of this server.
    pub(crate) fn record_opened(&self, caller: &Caller, backend: BackendId, how: Opened) {
        let client = Client::from_caller(caller);
        let mut all = self.apps.lock();
        let mut apps = all.get(&client).cloned().unwrap_or_default();
        let of_kind = match how {
            Opened::ByCall => &mut apps.called,
            Opened::ByRead => &mut apps.read,
        };
        of_kind.retain(|(known, used)| *known != backend && used.elapsed() < self.open_for);
        if of_kind.len() < ORIGINS {
            of_kind.push((backend, Instant::now()));
            all.insert(client, apps);
        }
    }

    /// The only one of `candidates` whose app the client has open. Apps opened by a call count
    /// first, then apps that were read. `None` if there are several, because a request does not
    /// tell which app makes it.
    pub(crate) fn only_origin(
        &self,
        caller: &Caller,
        candidates: &[BackendId],
    ) -> Option<BackendId> {
        let mut all = self.apps.lock();
        let mut apps = all.get_mut(&Client::from_caller(caller))?;
        let is_open =
            |(backend, used): &App| candidates.contains(backend) && used.elapsed() < self.open_for;
        let Apps { called, read } = &mut *apps;
        let opened = if called.iter().any(is_open) {
            called
        } else {
            read
        };
        let mut open = opened.iter_mut().filter(|app| is_open(app));
        let (backend, used) = open.next()?;
        if open.next().is_some() {
            return None;
        }
        // The app is in use.
        *used = Instant::now();
        Some(*backend)
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::Principal;

    use super::*;

    const OPEN: Duration = Duration::from_secs(60);

    fn session(n: u64) -> Caller {
        Caller::session_of(Principal::anonymous(), SessionKey(n))
    }

    #[test]
    fn uri_belongs_to_the_first_that_hands_it_out_to_this_client() {
        let handed_out = HandedOut::new(100, OPEN);
        let [a, b] = [BackendId::generate(), BackendId::generate()];
        let give = |caller: &Caller, backend, gone| {
            handed_out.remember(caller, "x://1", backend, |one| Some(one) == gone)
        };
        assert_eq!(give(&session(1), a, None), Some(a));
        assert_eq!(give(&session(1), b, None), Some(a));
        assert_eq!(give(&session(2), b, None), Some(b));
        assert_eq!(handed_out.owner(&session(1), "x://1"), Some(a));
        assert_eq!(
            handed_out.owner(
                &Caller::session_of(Principal::operator(), SessionKey(1)),
                "x://1"
            ),
            None
        );
        assert_eq!(
            handed_out.owner(&Caller::request_of(Principal::anonymous()), "x://1"),
            None
        );
        assert_eq!(
            give(&session(1), b, Some(a)),
            Some(b),
            "the first is no longer configured"
        );
        let long = format!("x://{}", "x".repeat(LONGEST));
        assert_eq!(handed_out.remember(&session(1), &long, a, |_| false), None);
        assert_eq!(handed_out.owner(&session(1), &long), None);
    }

    #[test]
    fn memory_is_bounded() {
        let (handed_out, backend) = (HandedOut::new(50, OPEN), BackendId::generate());
        for n in 0..1000 {
            handed_out.remember(&session(n), "x://1", backend, |_| false);
            handed_out.record_opened(&session(n), backend, Opened::ByRead);
        }
        (0..1000).for_each(|_| {
            handed_out.record_opened(&session(1), BackendId::generate(), Opened::ByCall);
        });
        assert!(handed_out.owners.lock().len() <= 50 && handed_out.apps.lock().len() <= 50);
        assert!(
            handed_out
                .apps
                .lock()
                .get(&Client::from_caller(&session(1)))
                .is_none_or(|apps| apps.called.len() <= ORIGINS)
        );
    }

    #[test]
    fn origin_is_the_only_candidate_whose_app_is_open() {
        let handed_out = HandedOut::new(50, OPEN);
        let [a, b, c] = [
            BackendId::generate(),
            BackendId::generate(),
            BackendId::generate(),
        ];
        let only = |caller, of: &[BackendId]| handed_out.only_origin(&session(caller), of);
        assert_eq!(only(1, &[a, b]), None);
        handed_out.record_opened(&session(1), b, Opened::ByRead);
        assert_eq!(only(1, &[a, b]), Some(b));
        assert_eq!(only(2, &[a, b]), None, "another client's app");
        assert_eq!(only(1, &[a, c]), None);
        handed_out.record_opened(&session(1), a, Opened::ByRead);
        assert_eq!(only(1, &[a, b]), None, "either may call");
        handed_out.record_opened(&session(1), b, Opened::ByCall);
        assert_eq!(only(1, &[a, b]), Some(b), "the other was only read ahead");
        handed_out.record_opened(&session(1), a, Opened::ByCall);
        assert_eq!(only(1, &[a, b]), None);
    }
    #[tokio::test(start_paused = true)]
    async fn app_counts_as_open_for_a_time_after_its_last_use() {
        let handed_out = HandedOut::new(50, OPEN);
        let [a, b] = [BackendId::generate(), BackendId::generate()];
        let only = || handed_out.only_origin(&session(1), &[a, b]);
        handed_out.record_opened(&session(1), a, Opened::ByCall);
        tokio::time::advance(OPEN / 2).await;
        handed_out.record_opened(&session(1), b, Opened::ByCall);
        assert_eq!(only(), None, "either may call");
        tokio::time::advance(OPEN / 2).await;
        assert_eq!(only(), Some(b), "the other has not been used for long");
        tokio::time::advance(OPEN - Duration::from_secs(1)).await;
        assert_eq!(only(), Some(b), "a call is a use");
        tokio::time::advance(OPEN).await;
        assert_eq!(only(), None);
        handed_out.record_opened(&session(1), a, Opened::ByCall);
        assert_eq!(only(), Some(a));
        assert_eq!(
            handed_out
                .apps
                .lock()
                .get(&Client::from_caller(&session(1)))
                .unwrap()
                .called
                .len(),
            1
        );
    }
}
