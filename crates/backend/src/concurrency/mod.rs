//! Decides which requests may run at a server at the same time. No client takes all permits, and
//! waiting requests of all clients are served in turn.
//!
//! A client is a session, or all requests without a session that have the same `clientInfo`. All
//! clients of one [`Peer`] belong to one owner. A client or owner may run requests as long as
//! enough permits stay free. A single client leaves an eighth free, a single owner a sixteenth. The
//! more clients there are, the less each of them gets. If there are few permits, one or two are
//! kept for others.

use std::hash::BuildHasher as _;

use fanlight_canonical::{CallContext, Peer, SessionKey};
use fanlight_fair::{Member, Part, PermitLimits, Semaphore};
use foldhash::fast::RandomState;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

pub(crate) use fanlight_fair::Full;

/// The share of the permits that one client may hold.
const CLIENT: Part = Part {
    for_each_free: 7,
    kept: [(4, 1), (8, 2)],
};
/// The share of the permits that one owner may hold.
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

/// The permit of a running call. The call gives it back while its server waits for the client: a
/// person may take minutes, and the server does nothing meanwhile. It acquires a permit again before
/// the server gets the client's answer.
#[derive(Default)]
pub(crate) struct CallPermit(Mutex<State>);

#[derive(Default)]
enum State {
    /// The call needs no permit.
    #[default]
    Unlimited,
    Held(Permit),
    GivenBack(Claim),
}

/// Resolves to the permit of a continuing call.
pub(crate) type Reacquiring = BoxFuture<'static, Permit>;

impl CallPermit {
    /// Stores the permit that the call runs with.
    pub(crate) fn hold(&self, permit: Permit) {
        self.replace(State::Held(permit));
    }

    /// Ends the call and drops its permit.
    pub(crate) fn end(&self) {
        self.replace(State::Unlimited);
    }

    /// Gives the permit back while the server waits for the client.
    pub(crate) fn give_back(&self) {
        let claim = match &*self.0.lock() {
            State::Held(permit) => permit.claim(),
            State::Unlimited | State::GivenBack(_) => return,
        };
        self.replace(State::GivenBack(claim));
    }

    /// Acquires a permit again if it was given back. If that takes time, returns a future whose
    /// result must be [held](Self::hold).
    pub(crate) fn reacquire(&self) -> Option<Reacquiring> {
        let claim = match &*self.0.lock() {
            State::GivenBack(claim) => claim.clone(),
            State::Unlimited | State::Held(_) => return None,
        };
        match claim.try_acquire() {
            Some(permit) => {
                self.hold(permit);
                None
            }
            None => Some(Box::pin(claim.acquire_again())),
        }
    }

    fn replace(&self, state: State) {
        let previous = std::mem::replace(&mut *self.0.lock(), state);
        // Dropped without the lock, since a returned permit wakes others.
        drop(previous);
    }
}

#[cfg(test)]
mod tests;
