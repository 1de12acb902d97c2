//! Which requests may run at a server at the same time: no client takes all permits, and waiting requests of all clients
//! are served in turn.
//!
//! A client is a session, or the requests without one that give the same `clientInfo`. All clients of one [`Peer`] are one
//! owner. A client, and likewise an owner, may run requests as long as there are as many free permits as its share asks
//! for: alone it leaves an eighth (an owner a sixteenth) free, and the more others do the same, the less each of them gets.
//! Of few permits, one or two are kept for others.

mod call_permit;

use std::hash::BuildHasher as _;

use fanlight_canonical::{CallContext, Peer, SessionKey};
use fanlight_fair::{Member, Part, PermitLimits, Semaphore};
use foldhash::fast::RandomState;

pub(crate) use self::call_permit::{CallPermit, Reacquiring};
pub(crate) use fanlight_fair::Full;

/// Bounds the requests of one client.
const CLIENT: Part = Part {
    for_each_free: 7,
    kept: [(4, 1), (8, 2)],
};
/// Bounds the requests of one owner.
pub(crate) const OWNER: Part = Part {
    for_each_free: 15,
    kept: [(8, 1), (8, 1)],
};

/// Bytes of `clientInfo` that tell clients apart.
const COMPARED: usize = 256;

/// The permits of one server.
pub(crate) struct FairQueue {
    permits: Semaphore<Client>,
    hasher: RandomState,
}

/// The right of one request to run, until it is dropped.
pub(crate) type Permit = fanlight_fair::Permit<Client>;

/// A client that may ask for a permit.
pub(crate) type Claim = fanlight_fair::Claim<Client>;

/// Whose requests are counted together first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Fanlight itself, which has no share.
    Gateway,
    Peer(Peer),
}

/// One client of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    owner: Owner,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Session(SessionKey),
    /// Without a session: what it says of itself, which only tells honest clients of one owner apart.
    Info(u64),
}

impl FairQueue {
    /// A queue for `concurrency` permits.
    pub(crate) fn new(concurrency: usize) -> Self {
        let limits = PermitLimits {
            permits: concurrency,
            of_share: OWNER,
            of_member: CLIENT,
        };
        Self {
            permits: Semaphore::new(limits),
            hasher: RandomState::default(),
        }
    }

    /// The claim of a request's client.
    pub(crate) fn claim(&self, context: &CallContext) -> Claim {
        let caller = &context.caller;
        let owner = if caller.is_gateway() {
            Owner::Gateway
        } else {
            Owner::Peer(context.peer.clone())
        };
        let kind = caller
            .session()
            .map_or_else(|| self.info(context), Kind::Session);
        self.permits.claim(Client { owner, kind })
    }

    fn info(&self, context: &CallContext) -> Kind {
        let info = context
            .client_info
            .as_ref()
            .map_or(&[][..], |info| info.bytes());
        Kind::Info(self.hasher.hash_one(info.get(..COMPARED).unwrap_or(info)))
    }
}

impl Member for Client {
    type Share = Owner;

    fn share(&self) -> &Owner {
        &self.owner
    }

    fn is_bounded(&self) -> bool {
        self.owner != Owner::Gateway
    }
}

#[cfg(test)]
mod tests;
