//! Limits how many wrong tokens of one peer are verified.

use fanlight_canonical::Peer;
use fanlight_credentials::Denial;
use fanlight_fair::{Quota, Rate};

/// The limit of peers counted separately at the same time.
const PEERS: usize = 16_384;

/// Counts the wrong tokens of each peer.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: Rate<Peer>,
    quota: Quota,
}

/// A peer's charge for a token under verification. Dropping it keeps the charge.
pub(crate) type Charge = fanlight_fair::Charge<Peer>;

impl Throttle {
    /// Allows each peer this many wrong tokens a second.
    pub(crate) fn new(failures: usize) -> Self {
        Self {
            rate: Rate::new(PEERS),
            quota: Quota::per_second(failures),
        }
    }

    /// Charges `peer` for one verification.
    ///
    /// # Errors
    ///
    /// If it has none left.
    pub(crate) fn charge(&self, peer: &Peer) -> Result<Charge, Denial> {
        let charged = self.rate.charge(peer, self.quota);
        charged.map_err(|too_many| Denial::Throttled {
            retry_after: too_many.retry_after,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    #[test]
    fn peer_has_a_budget_of_its_own() {
        let throttle = Throttle::new(5);
        let allowed = (0..100)
            .filter(|_| throttle.charge(&peer(1)).is_ok())
            .count();
        assert!((5..=10).contains(&allowed), "{allowed}");
        let denial = throttle.charge(&peer(1)).unwrap_err();
        assert!(
            matches!(denial, Denial::Throttled { retry_after } if retry_after <= Duration::from_secs(1))
        );
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
        assert!(throttle.rate.len() <= PEERS);
    }
}
