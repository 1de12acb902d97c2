//! How many wrong tokens of one peer are verified.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fanlight_canonical::Peer;
use fanlight_credentials::Denial;
use quick_cache::sync::Cache;

/// Peers that are counted at the same time. Those that fail most stay.
const PEERS: usize = 16_384;

/// How much may be used at once: what a second has.
const BURST: u64 = 1_000_000_000;

/// Counts the wrong tokens of each peer: as a time in nanoseconds at which all of them are forgotten, of which each adds an
/// equal part of a second (the generic cell rate algorithm).
pub(crate) struct Throttle {
    peers: Cache<Peer, Arc<AtomicU64>>,
    /// The part of one.
    part: u64,
    start: Instant,
}

/// What a peer has used for a token that is being verified. Dropped, it stays used.
#[derive(Debug)]
pub(crate) struct Charge(Option<(Arc<AtomicU64>, u64)>);

impl Charge {
    /// Gives it back: the token is not wrong.
    pub(crate) fn refund(&mut self) {
        if let Some((used, part)) = self.0.take() {
            used.fetch_sub(part, Ordering::Relaxed);
        }
    }
}

impl Throttle {
    /// Allows each peer this many wrong tokens a second.
    pub(crate) fn new(failures: usize) -> Self {
        let failures = u64::try_from(failures).unwrap_or(u64::MAX).clamp(1, BURST);
        Self { peers: Cache::new(PEERS), part: BURST / failures, start: Instant::now() }
    }

    /// Has `peer` use one.
    ///
    /// # Errors
    ///
    /// If it has none left.
    pub(crate) fn charge(&self, peer: &Peer) -> Result<Charge, Denial> {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let used = match self.peers.get(peer) {
            Some(used) => used,
            None => {
                let used = Arc::new(AtomicU64::new(0));
                self.peers.insert(peer.clone(), Arc::clone(&used));
                used
            }
        };
        let (part, latest) = (self.part, now.saturating_add(BURST));
        let add = |until: u64| Some(until.max(now).saturating_add(part)).filter(|until| *until <= latest);
        match used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Charge(Some((used, part)))),
            Err(until) => {
                let wait = until.saturating_add(part).saturating_sub(latest);
                Err(Denial::Throttled { retry_after: Duration::from_nanos(wait) })
            }
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("peers", &self.peers.len()).field("part", &self.part).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    #[test]
    fn peer_has_a_budget_of_its_own() {
        let throttle = Throttle::new(5);
        let allowed = (0..100).filter(|_| throttle.charge(&peer(1)).is_ok()).count();
        assert!((5..=10).contains(&allowed), "{allowed}");
        let denial = throttle.charge(&peer(1)).unwrap_err();
        assert!(matches!(denial, Denial::Throttled { retry_after } if retry_after <= Duration::from_secs(1)));
        assert!(throttle.charge(&peer(2)).is_ok() && throttle.charge(&Peer::Local).is_ok());
    }

    #[test]
    fn right_tokens_cost_nothing() {
        let throttle = Throttle::new(1);
        for _ in 0..100 {
            throttle.charge(&peer(1)).unwrap().refund();
        }
        let _wrong = throttle.charge(&peer(1)).unwrap();
        assert!(throttle.charge(&peer(1)).is_err());
    }

    #[test]
    fn counted_peers_are_bounded() {
        let throttle = Throttle::new(1);
        for number in 0..100_000_u32 {
            let _ = throttle.charge(&Peer::Address(std::net::Ipv4Addr::from(number).into()));
        }
        assert!(throttle.peers.len() <= PEERS);
    }
}
