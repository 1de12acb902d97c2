//! The progress of a call: its permit to run, and its time limit, which can be paused.
//!
//! Permits decide which requests run at a server at the same time. No client takes all of them, and
//! waiting requests of all clients are served in turn.
//!
//! A client is a session, or all requests without a session that have the same `clientInfo`. All
//! clients of one [`Peer`] belong to one owner. A client or owner may run requests as long as
//! enough permits stay free. A single client leaves an eighth free, a single owner a sixteenth. The
//! more clients there are, the less each of them gets. If there are few permits, one or two are
//! kept for others.

use std::hash::BuildHasher as _;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_canonical::{CallContext, Peer, SessionKey};
use fanlight_fair::{Member, Part, PermitLimits, Semaphore};
use foldhash::fast::RandomState;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

pub(crate) use fanlight_fair::Full;

/// The progress of one call.
#[derive(Default)]
pub(crate) struct CallProgress {
    /// The id of the call's last request, which is also the progress token.
    pub(crate) id: AtomicI64,
    /// The number of times that the current request has been sent.
    pub(crate) attempts: AtomicU32,
    /// The number of earlier requests for the same call.
    pub(crate) earlier: u32,
    /// The progress token of an earlier request that this one continues (2025-11-25
    /// basic/utilities/tasks, Task Progress Notifications). This request then has no token of its
    /// own.
    pub(crate) carries_on: Option<i64>,
    pub(crate) deadline: Arc<PausableDeadline>,
}

/// The time limit of one call. It is paused while the server waits for the client, since a person
/// may be thinking.
#[derive(Default)]
pub(crate) struct PausableDeadline {
    /// The number of current [`Pause`]s.
    pauses: AtomicUsize,
    /// The number of pauses so far.
    paused: AtomicUsize,
    /// Notified after each change of `pauses`. Only [`PausableDeadline::limit`] waits for it, so a
    /// notification between two waits is kept for the next.
    changed: Notify,
    expired: AtomicBool,
    /// Whether it expired during a pause, while the server was waiting for the client.
    expired_in_pause: AtomicBool,
    /// Whether the request may be running at the server, because part of it may have been written.
    sent: AtomicBool,
    /// The time at which the limit is exceeded without a pause.
    due: OnceLock<Instant>,
    /// The call's permit, which is given back during pauses.
    pub(crate) permit: CallPermit,
}

/// The time limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallLimits {
    /// The limit without pauses.
    pub(crate) active: Duration,
    /// The limit including pauses: a server that keeps asking the client cannot keep a call alive
    /// for longer.
    pub(crate) total: Duration,
}

/// The limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired(pub(crate) Duration);

/// Limits for the pauses of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PauseLimits {
    /// The maximum number of concurrent pauses.
    pub(crate) open: usize,
    /// The maximum number over the whole call.
    pub(crate) ever: usize,
}

/// Pauses a deadline until it is dropped.
pub(crate) struct Pause(Arc<PausableDeadline>);

impl PausableDeadline {
    /// Runs a future within `limits`. At most one caller at a time. The caller pins the future,
    /// which would otherwise be stored twice.
    pub(crate) fn limit<T>(
        &self,
        limits: CallLimits,
        mut future: Pin<&mut (impl Future<Output = T> + Send)>,
    ) -> impl Future<Output = Result<T, Expired>> + Send {
        async move {
            let mut timer = pin!(sleep(limits.active));
            let _ = self.due.set(timer.deadline());
            let end = timer.deadline() + limits.total.saturating_sub(limits.active);
            // Set during a pause.
            let mut remaining = None;
            loop {
                let is_paused = self.is_paused();
                match remaining {
                    None if is_paused => {
                        remaining =
                            Some(timer.deadline().saturating_duration_since(Instant::now()));
                        timer.as_mut().reset(end);
                    }
                    Some(rest) if !is_paused => {
                        timer.as_mut().reset(end.min(Instant::now() + rest));
                        remaining = None;
                    }
                    _ => {}
                }
                tokio::select! {
                    biased;
                    outcome = future.as_mut() => return Ok(outcome),
                    () = self.changed.notified() => {}
                    // A server that always sends something uses up the task's budget, without which a
                    // timer is never ready.
                    () = unconstrained(timer.as_mut()) => {
                        self.expired_in_pause.store(remaining.is_some(), Ordering::Relaxed);
                        self.expired.store(true, Ordering::Relaxed);
                        let is_end = timer.deadline() == end && limits.total > limits.active;
                        return Err(Expired(if is_end { limits.total } else { limits.active }));
                    }
                }
            }
        }
    }

    /// Whether the server waits for the client.
    pub(crate) fn is_paused(&self) -> bool {
        self.pauses.load(Ordering::Acquire) > 0
    }

    /// Whether a call without pauses is over its limit, even if [`Self::limit`] has not noticed
    /// yet.
    pub(crate) fn is_over(&self) -> bool {
        self.due.get().is_some_and(|due| *due <= Instant::now())
    }

    /// Whether the limit was exceeded. Already true while the limited future is being dropped.
    pub(crate) fn has_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    /// Whether the limit was exceeded while the server had the request and was not waiting for the
    /// client.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.has_expired() && self.is_sent() && !self.expired_in_pause.load(Ordering::Relaxed)
    }

    /// Whether the request may be running at the server.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// Records whether the request may be running at the server; returns the previous value.
    pub(crate) fn set_sent(&self, is_sent: bool) -> bool {
        self.sent.swap(is_sent, Ordering::AcqRel)
    }

    /// Pauses the deadline; `None` if that would exceed `limits`.
    pub(crate) fn pause(self: &Arc<Self>, limits: PauseLimits) -> Option<Pause> {
        let one_more = |most: usize| move |pauses: usize| (pauses < most).then_some(pauses + 1);
        self.paused
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more(limits.ever))
            .ok()?;
        self.pauses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more(limits.open))
            .ok()?;
        self.changed.notify_one();
        self.permit.give_back();
        Some(Pause(Arc::clone(self)))
    }
}

impl Pause {
    /// Prepares for the end of the pause. If it is the only one, the call must get a permit again
    /// before its server continues. If that takes time, the pause ends now, so that the wait
    /// counts.
    pub(crate) fn prepare_end(self) -> Result<Self, Continuing> {
        if self.0.pauses.load(Ordering::Acquire) > 1 {
            return Ok(self);
        }
        match self.0.permit.reacquire() {
            None => Ok(self),
            Some(reacquiring) => Err(Continuing {
                deadline: Arc::clone(&self.0),
                reacquiring,
            }),
        }
    }
}

/// A call that waits for a permit to continue.
pub(crate) struct Continuing {
    deadline: Arc<PausableDeadline>,
    reacquiring: Reacquiring,
}

impl Continuing {
    /// Ready once the call holds a permit.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.reacquiring
            .as_mut()
            .poll(cx)
            .map(|permit| self.deadline.permit.hold(permit))
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.notify_one();
    }
}

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
