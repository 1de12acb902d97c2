//! Decides which requests may run at a server at the same time. No client takes all permits, and
//! waiting requests of all clients are served in turn.
//!
//! A client is a session, or all requests without a session that have the same `clientInfo`. All
//! clients of one [`Peer`] belong to one owner. A client or owner may run requests as long as
//! enough permits stay free. A single client leaves an eighth free, a single owner a sixteenth. The
//! more clients there are, the less each of them gets. If there are few permits, one or two are
//! kept for others.

mod call_permit;

use std::hash::BuildHasher as _;

use fanlight_canonical::{CallContext, Peer, SessionKey};
use fanlight_fair::{Member, Part, PermitLimits, Semaphore};
use foldhash::fast::RandomState;

pub(crate) use self::call_permit::{CallPermit, Reacquiring};
pub(crate) use fanlight_fair::Full;

/// The limit for one client's requests.
const CLIENT: Part = Part {
    for_each_free: 7,
    kept: [(4, 1), (8, 2)],
};
/// The limit for one owner's requests.
pub(crate) const OWNER: Part = Part {
    for_each_free: 15,
    kept: [(8, 1), (8, 1)],
};

/// The number of `clientInfo` bytes that distinguish clients.
const COMPARED: usize = 256;

/// The permits of one server.
pub(crate) struct FairQueue {
    permits: Semaphore<Client>,
    hasher: RandomState,
}

/// The right of one request to run, until dropped.
pub(crate) type Permit = fanlight_fair::Permit<Client>;

/// A client that may ask for a permit.
pub(crate) type Claim = fanlight_fair::Claim<Client>;

/// The owner whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Fanlight itself, which has no limit.
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
    /// The description of a client without a session. It only distinguishes honest clients of one
    /// owner.
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
