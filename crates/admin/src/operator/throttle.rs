//! A bound on how often a peer may try credentials.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::token::Digest;

/// The time in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Most peers whose failures are counted apart; the failures of others are counted together. No option: it bounds memory.
const PEERS: usize = 4096;

/// Counts the credentials of each peer that were not accepted.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    peers: HashMap<IpAddr, Record>,
    /// Of all peers that are not in the table.
    others: Record,
}

#[derive(Debug, Default)]
struct Record {
    /// When the failures began to be counted.
    since: Option<Instant>,
    failures: usize,
    /// The credentials of this peer that were accepted last: they are looked at even if another program behind the same
    /// address tries wrong ones.
    accepted: Option<Digest>,
}

impl Record {
    fn is_over(&self, now: Instant) -> bool {
        self.since.is_none_or(|since| now.duration_since(since) >= WINDOW)
    }
}

impl Throttle {
    /// Whether credentials of this peer are looked at.
    ///
    /// # Errors
    ///
    /// The time after which they are.
    pub(crate) fn check(&self, peer: Option<IpAddr>, shown: Digest, most: usize) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state();
        let record = state.known(peer);
        if record.failures < most || record.is_over(now) || record.accepted == Some(shown) {
            return Ok(());
        }
        Err(record.since.map_or(WINDOW, |since| WINDOW.saturating_sub(now.duration_since(since))))
    }

    /// Counts credentials that were not accepted.
    pub(crate) fn failed(&self, peer: Option<IpAddr>) {
        let now = Instant::now();
        let mut state = self.state();
        let record = state.entered(peer, now);
        if record.is_over(now) {
            record.since = Some(now);
            record.failures = 0;
        }
        record.failures = record.failures.saturating_add(1);
    }

    /// Notes credentials that were accepted.
    pub(crate) fn accepted(&self, peer: Option<IpAddr>, shown: Digest) {
        // Nothing is to be remembered for peers that make no mistakes and share their address with none that does, but
        // that is known only afterwards.
        self.state().entered(peer, Instant::now()).accepted = Some(shown);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn known(&mut self, peer: Option<IpAddr>) -> &mut Record {
        match peer.and_then(|peer| self.peers.get_mut(&peer)) {
            Some(record) => record,
            None => &mut self.others,
        }
    }

    /// The record of a peer, which gets one if there is a free place or can be made one.
    fn entered(&mut self, peer: Option<IpAddr>, now: Instant) -> &mut Record {
        let Some(peer) = peer else { return &mut self.others };
        if !self.peers.contains_key(&peer) {
            if self.peers.len() >= PEERS {
                self.peers.retain(|_, record| !record.is_over(now));
            }
            if self.peers.len() >= PEERS {
                return &mut self.others;
            }
        }
        self.peers.entry(peer).or_default()
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

    #[tokio::test(start_paused = true)]
    async fn peer_waits_after_some_failures_and_others_do_not() {
        let (throttle, guess) = (Throttle::default(), Digest::of(b"guess"));
        for _ in 0..MOST {
            assert_eq!(throttle.check(peer(1), guess, MOST), Ok(()));
            throttle.failed(peer(1));
        }
        assert_eq!(throttle.check(peer(1), guess, MOST), Err(WINDOW));
        assert_eq!(throttle.check(peer(2), guess, MOST), Ok(()));
        tokio::time::advance(WINDOW / 2).await;
        // Tries that are refused do not make it longer.
        assert_eq!(throttle.check(peer(1), guess, MOST), Err(WINDOW / 2));
        tokio::time::advance(WINDOW / 2).await;
        assert_eq!(throttle.check(peer(1), guess, MOST), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_were_accepted_from_a_peer_are_looked_at_all_the_same() {
        let (throttle, good) = (Throttle::default(), Digest::of(b"good"));
        throttle.accepted(peer(1), good);
        (0..MOST).for_each(|_| throttle.failed(peer(1)));
        (0..MOST).for_each(|_| throttle.failed(peer(2)));
        assert_eq!(throttle.check(peer(1), good, MOST), Ok(()));
        assert!(throttle.check(peer(1), Digest::of(b"guess"), MOST).is_err());
        assert!(throttle.check(peer(2), good, MOST).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn table_is_bounded_and_peers_beyond_it_are_throttled_together() {
        let (throttle, guess) = (Throttle::default(), Digest::of(b"guess"));
        for last in 0..u16::try_from(PEERS).unwrap() + 500 {
            throttle.failed(peer(last));
        }
        assert_eq!(throttle.state().peers.len(), PEERS);
        assert!(throttle.check(peer(60_000), guess, MOST).is_err());
        assert_eq!(throttle.check(peer(0), guess, MOST), Ok(()));
        tokio::time::advance(WINDOW).await;
        throttle.failed(peer(60_000));
        assert_eq!(throttle.state().peers.len(), 1);
    }
}
