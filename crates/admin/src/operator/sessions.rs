//! Sessions of operators who are signed in to the page.
//!
//! The table contains only digests of session ids. Each request checks the operator's proof by the
//! settings in force (`Proof`). So a session ends with the token, the identity or the role on which
//! it is based.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_canonical::identity::Identity;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::token::Digest;

/// Bytes of a session id.
const ID: usize = 32;

/// The limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLimits {
    /// The number of all sessions.
    pub(crate) all: usize,
    /// The number of sessions of one peer.
    pub(crate) per_peer: usize,
    /// How long a session may be unused.
    pub(crate) idle: Duration,
    /// How long a session may last.
    pub(crate) lifetime: Duration,
}

/// The sessions of operators.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    table: Mutex<HashMap<Digest, Session>>,
}

#[derive(Debug)]
struct Session {
    proof: Arc<Proof>,
    peer: Option<IpAddr>,
    began: Instant,
    used: Instant,
    ended: CancellationToken,
}

impl Session {
    fn is_over(&self, limits: &SessionLimits, now: Instant) -> bool {
        now.duration_since(self.used) >= limits.idle
            || now.duration_since(self.began) >= limits.lifetime
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// A valid session.
#[derive(Clone, Debug)]
pub(crate) struct SessionInForce {
    /// The key of the session in the table.
    pub(crate) key: Digest,
    /// The proof on which the session is based.
    pub(crate) proof: Arc<Proof>,
    /// Cancelled when the session ends.
    pub(crate) ended: CancellationToken,
}

impl Sessions {
    /// A new session id. `None` if the system has no random numbers.
    pub(crate) fn new_id() -> Option<String> {
        let mut bytes = [0; ID];
        getrandom::fill(&mut bytes).ok()?;
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Adds a session that began `age` ago and is based on `proof`.
    pub(crate) fn add(
        &self,
        key: Digest,
        proof: Proof,
        peer: Option<IpAddr>,
        age: Duration,
        limits: &SessionLimits,
    ) {
        let now = Instant::now();
        let session = Session {
            proof: Arc::new(proof),
            peer,
            began: now.checked_sub(age).unwrap_or(now),
            used: now,
            ended: CancellationToken::new(),
        };
        let mut table = self.table.lock();
        table.retain(|_, session| !session.is_over(limits, now));
        while count(&table, peer) >= limits.per_peer && remove_oldest(&mut table, peer) {}
        while table.len() >= limits.all {
            if !peer_with_most(&table).is_some_and(|peer| remove_oldest(&mut table, peer)) {
                break;
            }
        }
        table.insert(key, session);
    }

    /// Finds the session with this key, and counts it as used now.
    pub(crate) fn touch(&self, key: Digest, limits: &SessionLimits) -> Option<SessionInForce> {
        let now = Instant::now();
        let mut table = self.table.lock();
        let session = table.get_mut(&key)?;
        if session.is_over(limits, now) {
            table.remove(&key);
            return None;
        }
        session.used = now;
        Some(SessionInForce {
            key,
            proof: Arc::clone(&session.proof),
            ended: session.ended.clone(),
        })
    }

    /// Ends a session. Returns whether it existed.
    pub(crate) fn end(&self, key: Digest) -> bool {
        self.table.lock().remove(&key).is_some()
    }

    /// Ends all sessions whose proof is no longer accepted.
    pub(crate) fn retain(&self, is_accepted: impl Fn(&Proof) -> bool) {
        self.table
            .lock()
            .retain(|_, session| is_accepted(&session.proof));
    }

    /// The number of valid sessions.
    pub(crate) fn len(&self, limits: &SessionLimits) -> usize {
        let now = Instant::now();
        self.table
            .lock()
            .values()
            .filter(|session| !session.is_over(limits, now))
            .count()
    }
}

fn count(table: &HashMap<Digest, Session>, peer: Option<IpAddr>) -> usize {
    table
        .values()
        .filter(|session| session.peer == peer)
        .count()
}

fn peer_with_most(table: &HashMap<Digest, Session>) -> Option<Option<IpAddr>> {
    let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
    table
        .values()
        .for_each(|session| *counts.entry(session.peer).or_default() += 1);
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(peer, _)| peer)
}

/// Ends the least recently used session of `peer`. Returns whether the peer had one.
fn remove_oldest(table: &mut HashMap<Digest, Session>, peer: Option<IpAddr>) -> bool {
    let of_peer = table.iter().filter(|(_, session)| session.peer == peer);
    let oldest = of_peer
        .min_by_key(|(_, session)| session.used)
        .map(|(key, _)| *key);
    oldest.is_some_and(|key| table.remove(&key).is_some())
}

/// A proof of an operator's identity. Each request judges it again, because settings change and
/// identities end.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// A token that was `admin.token`.
    Token(Digest),
    /// An identity from the methods of `auth`.
    Identity(Arc<Identity>),
    /// An identity from a sign-in at this issuer, with the settings at that time.
    SignedIn {
        at: SignInIssuer,
        identity: Arc<Identity>,
    },
}

/// An issuer at which operators sign in, and the client that is configured for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInIssuer {
    /// The issuer's identifier.
    pub issuer: String,
    /// The client's identifier. `None` if Fanlight registers the client.
    pub client_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SessionLimits = SessionLimits {
        all: 4,
        per_peer: 3,
        idle: Duration::from_secs(60),
        lifetime: Duration::from_secs(150),
    };

    fn proof() -> Proof {
        Proof::Token(Digest::compute(b"token"))
    }

    impl Sessions {
        fn begin(
            &self,
            proof: Proof,
            peer: Option<IpAddr>,
            limits: &SessionLimits,
        ) -> Option<String> {
            let id = Self::new_id()?;
            self.add(
                Digest::compute(id.as_bytes()),
                proof,
                peer,
                Duration::ZERO,
                limits,
            );
            Some(id)
        }

        fn find(&self, id: &str, limits: &SessionLimits) -> Option<SessionInForce> {
            self.touch(Digest::compute(id.as_bytes()), limits)
        }
    }

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn session_ends_after_its_idle_time_and_after_its_lifetime() {
        let sessions = Sessions::default();
        let id = sessions.begin(proof(), peer(1), &LIMITS).unwrap();
        assert_eq!(id.len(), 43);
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(59)).await;
            assert!(sessions.find(&id, &LIMITS).is_some());
        }
        tokio::time::advance(Duration::from_secs(32)).await;
        assert!(
            sessions.find(&id, &LIMITS).is_none(),
            "it lasts for its lifetime at most"
        );
        let id = sessions.begin(proof(), peer(1), &LIMITS).unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(sessions.find(&id, &LIMITS).is_none(), "it was idle");
        assert_eq!(sessions.len(&LIMITS), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_shared_among_peers() {
        let sessions = Sessions::default();
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(sessions.begin(proof(), peer(1), &LIMITS).unwrap());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let ended = sessions.find(&ids[1], &LIMITS).unwrap().ended;
        assert!(
            sessions.find(&ids[0], &LIMITS).is_none(),
            "the oldest of the peer made place"
        );
        let other = sessions.begin(proof(), peer(2), &LIMITS).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        sessions.find(&ids[2], &LIMITS).unwrap();
        sessions.find(&ids[3], &LIMITS).unwrap();
        sessions.begin(proof(), peer(3), &LIMITS).unwrap();
        assert!(
            sessions.find(&ids[1], &LIMITS).is_none() && ended.is_cancelled(),
            "that of the peer with most"
        );
        assert!(sessions.find(&other, &LIMITS).is_some());
        assert_eq!(sessions.len(&LIMITS), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn session_ends_when_it_is_ended_or_its_proof_is_not_accepted() {
        let sessions = Sessions::default();
        let id = sessions.begin(proof(), peer(1), &LIMITS).unwrap();
        let session = sessions.find(&id, &LIMITS).unwrap();
        assert!(sessions.end(session.key) && !sessions.end(session.key));
        assert!(session.ended.is_cancelled() && sessions.find(&id, &LIMITS).is_none());
        let id = sessions.begin(proof(), peer(1), &LIMITS).unwrap();
        sessions.retain(
            |proof| !matches!(proof, Proof::Token(token) if *token == Digest::compute(b"token")),
        );
        assert!(sessions.find(&id, &LIMITS).is_none());
        assert!(sessions.find("", &LIMITS).is_none());
    }
}
