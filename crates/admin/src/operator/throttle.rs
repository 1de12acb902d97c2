//! Limits how often a peer may try credentials.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use fanlight_fair::{Quota, Rate};
use parking_lot::Mutex;

use super::token::Digest;

/// The limit of the peers whose failures are counted separately. It is also the limit of the peers
/// with remembered credentials. There is no option: it limits memory.
const PEERS: usize = 4096;
/// The limit of remembered credentials of one peer, which may be a proxy for many people.
const OF_ONE: usize = 32;

/// Counts the refused credentials of each peer.
#[derive(Debug)]
pub(crate) struct Throttle {
    failures: Rate<Option<IpAddr>>,
    /// The accepted credentials of each peer, the latest last. They are checked even if another
    /// program behind the same address tries wrong ones.
    accepted: Mutex<HashMap<Option<IpAddr>, VecDeque<Digest>>>,
}

impl Throttle {
    /// Whether credentials of this peer may be checked. `most` is how many wrong ones the peer may
    /// send in a minute.
    ///
    /// # Errors
    ///
    /// Returns the time until they may be checked.
    pub(crate) fn check(
        &self,
        peer: Option<IpAddr>,
        shown: Digest,
        most: usize,
    ) -> Result<(), Duration> {
        match self.failures.check(&peer, Quota::per_minute(most)) {
            Err(_) if self.is_accepted(peer, shown) => Ok(()),
            outcome => outcome.map_err(|too_many| too_many.retry_after),
        }
    }

    /// Counts refused credentials.
    pub(crate) fn count_failure(&self, peer: Option<IpAddr>, most: usize) {
        // This exceeds the quota only if several credentials were checked at the same time.
        let _ = self.failures.charge(&peer, Quota::per_minute(most));
    }

    /// Remembers accepted credentials.
    pub(crate) fn remember_accepted(&self, peer: Option<IpAddr>, shown: Digest) {
        let mut accepted = self.accepted.lock();
        if accepted.len() < PEERS || accepted.contains_key(&peer) {
            let of_peer = accepted.entry(peer).or_default();
            of_peer.retain(|one| *one != shown);
            if of_peer.len() >= OF_ONE {
                of_peer.pop_front();
            }
            of_peer.push_back(shown);
        }
    }

    fn is_accepted(&self, peer: Option<IpAddr>, shown: Digest) -> bool {
        let accepted = self.accepted.lock();
        accepted
            .get(&peer)
            .is_some_and(|of_peer| of_peer.contains(&shown))
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            failures: Rate::new(PEERS),
            accepted: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3;

    fn peer(last: u16) -> Option<IpAddr> {
        let [high, low] = last.to_be_bytes();
        Some(IpAddr::from([10, 0, high, low]))
    }

    /// The time after which one more of [`MOST`] is allowed.
    const PART: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn peer_waits_after_some_failures_and_others_do_not() {
        let (throttle, guess) = (Throttle::default(), Digest::compute(b"guess"));
        for _ in 0..MOST {
            assert_eq!(throttle.check(peer(1), guess, MOST), Ok(()));
            throttle.count_failure(peer(1), MOST);
        }
        assert_eq!(throttle.check(peer(1), guess, MOST), Err(PART));
        assert_eq!(throttle.check(peer(2), guess, MOST), Ok(()));
        tokio::time::advance(PART / 2).await;
        // Refused attempts do not prolong the wait.
        assert_eq!(throttle.check(peer(1), guess, MOST), Err(PART / 2));
        tokio::time::advance(PART / 2).await;
        assert_eq!(throttle.check(peer(1), guess, MOST), Ok(()));
        throttle.count_failure(peer(1), MOST);
        assert_eq!(
            throttle.check(peer(1), guess, MOST),
            Err(PART),
            "it may fail as often in each minute"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_were_accepted_from_a_peer_are_looked_at_all_the_same() {
        let (throttle, good) = (Throttle::default(), Digest::compute(b"good"));
        throttle.remember_accepted(peer(1), good);
        // Another person behind the same proxy signs in, too.
        throttle.remember_accepted(peer(1), Digest::compute(b"of another"));
        (0..MOST).for_each(|_| throttle.count_failure(peer(1), MOST));
        (0..MOST).for_each(|_| throttle.count_failure(peer(2), MOST));
        assert_eq!(throttle.check(peer(1), good, MOST), Ok(()));
        assert!(
            throttle
                .check(peer(1), Digest::compute(b"guess"), MOST)
                .is_err()
        );
        assert!(throttle.check(peer(2), good, MOST).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn table_is_bounded_and_peers_beyond_it_are_throttled_together() {
        let (throttle, guess) = (Throttle::default(), Digest::compute(b"guess"));
        for last in 0..u16::try_from(PEERS).unwrap() + 500 {
            throttle.count_failure(peer(last), MOST);
            throttle.remember_accepted(peer(last), guess);
        }
        assert_eq!(
            (throttle.failures.len(), throttle.accepted.lock().len()),
            (PEERS, PEERS)
        );
        assert!(throttle.check(peer(60_000), guess, MOST).is_err());
        assert_eq!(throttle.check(peer(0), guess, MOST), Ok(()));
        tokio::time::advance(PART).await;
        throttle.count_failure(peer(60_000), MOST);
        assert_eq!(throttle.failures.len(), 1);
    }
}
