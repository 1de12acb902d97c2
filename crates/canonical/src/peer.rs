//! The peer behind a request, for limits that clients share: who has most of something loses first.

use std::collections::HashMap;
use std::net::IpAddr;

use fanlight_identity::Principal;

/// Who shares of a limit are counted for: the principal where clients are authenticated, else the address that they
/// connect from, or their user on a Unix socket. Behind a reverse proxy that is not trusted to name their addresses
/// unauthenticated clients are one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The process that started this one, or Fanlight itself.
    #[default]
    Local,
    /// An address, of IPv6 a network.
    Address(IpAddr),
    /// A user of this machine, by its number.
    User(u32),
    /// An authenticated client.
    Principal(Principal),
}

impl Peer {
    /// The peer of a request of `principal` from `address`.
    #[must_use]
    pub fn of(principal: &Principal, address: Option<IpAddr>) -> Self {
        match address {
            _ if !principal.is_anonymous() => Self::Principal(principal.clone()),
            Some(address) => Self::Address(address),
            None => Self::Local,
        }
    }

    /// It, or the user of the process that is connected by a Unix socket, which has no address.
    #[must_use]
    pub fn or_user(self, user: Option<u32>) -> Self {
        match (self, user) {
            (Self::Local, Some(user)) => Self::User(user),
            (peer, _) => peer,
        }
    }
}

/// How many of the things that a limit counts each peer has.
#[derive(Debug)]
pub struct Shares<'a> {
    counts: HashMap<&'a Peer, usize>,
    newcomer: &'a Peer,
}

impl<'a> Shares<'a> {
    /// Counts the peers of everything there is; `newcomer` wants one more.
    pub fn count(all: impl Iterator<Item = &'a Peer>, newcomer: &'a Peer) -> Self {
        let mut counts = HashMap::new();
        all.for_each(|peer| *counts.entry(peer).or_default() += 1);
        Self { counts, newcomer }
    }

    /// How many `peer` has.
    #[must_use]
    pub fn of(&self, peer: &Peer) -> usize {
        self.counts.get(peer).copied().unwrap_or_default()
    }

    /// Whether `peer` may lose one for the newcomer: it has more than the newcomer, or is the newcomer.
    #[must_use]
    pub fn may_lose(&self, peer: &Peer) -> bool {
        peer == self.newcomer || self.of(peer) > self.of(self.newcomer)
    }

    /// Whether `peer` has more than an equal part of `limit`.
    #[must_use]
    pub fn is_above_share(&self, peer: &Peer, limit: usize) -> bool {
        let peers = self.counts.len() + usize::from(self.of(self.newcomer) == 0);
        self.of(peer) > limit.div_ceil(peers)
    }

    /// Whether `peer` may lose to the newcomer what is in use: it has no less than the newcomer even afterwards, so that
    /// no two peers take such things from each other.
    #[must_use]
    pub fn has_more_even_afterwards(&self, peer: &Peer) -> bool {
        self.of(peer) > self.of(self.newcomer) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_the_principal_or_else_the_address() {
        let address = Some([10, 0, 0, 1].into());
        let ann = Principal::named("issuer", "ann");
        assert_eq!(Peer::of(&ann, address).or_user(Some(1)), Peer::Principal(ann));
        assert_eq!(Peer::of(&Principal::anonymous(), address).or_user(Some(1)), Peer::Address([10, 0, 0, 1].into()));
        assert_eq!(Peer::of(&Principal::anonymous(), None).or_user(Some(1)), Peer::User(1));
        assert_eq!(Peer::of(&Principal::anonymous(), None), Peer::Local);
    }

    #[test]
    fn only_peers_with_more_lose_for_a_newcomer() {
        let [one, two, new] = [1, 2, 3].map(|last| Peer::Address([10, 0, 0, last].into()));
        let all = [&one, &one, &one, &two, &new];
        let shares = Shares::count(all.into_iter(), &new);
        assert!(shares.may_lose(&one) && shares.may_lose(&new) && !shares.may_lose(&two));
        assert_eq!((shares.of(&one), shares.of(&Peer::Local)), (3, 0));
        assert!(shares.has_more_even_afterwards(&one));
        assert!(shares.is_above_share(&one, 5) && !shares.is_above_share(&one, 9) && !shares.is_above_share(&two, 1));
        let shares = Shares::count([&one, &one, &new].into_iter(), &new);
        assert!(!shares.has_more_even_afterwards(&one) && !shares.has_more_even_afterwards(&new));
    }
}
