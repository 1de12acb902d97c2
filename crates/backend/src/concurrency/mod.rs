//! Which requests may run at a server at the same time: no client takes all permits, and waiting requests of all clients
//! are served in turn.
//!
//! A client is a session, or the requests without one that give the same `clientInfo`. All clients of one
//! [`Peer`] are one owner. A client, and
//! likewise an owner, may run requests as long as there are as many free permits as its share asks for: alone it leaves an
//! eighth (an owner a sixteenth) free, and the more others do the same, the less each of them gets. Of few permits, one or
//! two are kept for others.

mod call_permit;

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use fanlight_canonical::{CallContext, Peer, SessionKey};
use foldhash::fast::RandomState;
use tokio::sync::oneshot;

pub(crate) use self::call_permit::{CallPermit, Reacquiring};

/// Bounds the requests of one client.
const CLIENT: Share = Share { for_each_free: 7, kept: [(4, 1), (8, 2)] };
/// Bounds the requests of one owner.
pub(crate) const OWNER: Share = Share { for_each_free: 15, kept: [(8, 1), (8, 1)] };

/// How many of something one may take.
pub(crate) struct Share {
    /// As many for each that stays free.
    for_each_free: usize,
    /// With so many in all, so many are kept for others.
    kept: [(usize, usize); 2],
}

impl Share {
    /// Whether one more may be taken where one has taken so many, so many are `free`, and there are so many in `all`.
    pub(crate) fn allows(&self, taken: usize, free: usize, all: usize) -> bool {
        let kept = self.kept.iter().filter(|(of, _)| all >= *of).map(|(_, kept)| *kept).max().unwrap_or(0);
        taken == 0 || (free > kept && taken < self.for_each_free.saturating_mul(free))
    }
}

/// Bytes of `clientInfo` that tell clients apart.
const COMPARED: usize = 256;

/// The permits of one server.
#[derive(Clone)]
pub(crate) struct FairQueue(Arc<Shared>);

struct Shared {
    /// How many requests may run; as many may wait.
    concurrency: usize,
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Permits that are not in use.
    free: usize,
    waiting: usize,
    next_number: u64,
    /// Those with running or waiting requests.
    owners: HashMap<Owner, Count, RandomState>,
    /// Likewise.
    clients: HashMap<Client, Requests, RandomState>,
    /// The clients with waiting requests; the one that got a permit last is at the end.
    turns: VecDeque<Client>,
}

/// Whose requests are counted together first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// Fanlight itself, which has no share.
    Gateway,
    Peer(Peer),
}

/// One client of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    owner: Owner,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Session(SessionKey),
    /// Without a session: what it says of itself, which only tells honest clients of one owner apart.
    Info(u64),
}

/// The requests of one owner.
#[derive(Clone, Copy, Default)]
struct Count {
    running: usize,
    waiting: usize,
}

/// The requests of one client.
#[derive(Default)]
struct Requests {
    running: usize,
    /// In the order of their arrival.
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    granted: oneshot::Sender<Permit>,
}

/// The right of one request to run, until it is dropped.
pub(crate) struct Permit(Claim);

/// A client that may ask for a permit.
#[derive(Clone)]
pub(crate) struct Claim {
    queue: FairQueue,
    client: Client,
}

/// Too many requests of the client, or of all, wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Resolves to a permit. Dropping it leaves the queue.
struct Waiting {
    claim: Claim,
    number: u64,
    granted: oneshot::Receiver<Permit>,
}

impl FairQueue {
    /// A queue for `concurrency` permits.
    pub(crate) fn new(concurrency: usize) -> Self {
        let state = Mutex::new(State { free: concurrency, ..State::default() });
        Self(Arc::new(Shared { concurrency, hasher: RandomState::default(), state }))
    }

    /// The claim of a request's client.
    pub(crate) fn claim(&self, context: &CallContext) -> Claim {
        let caller = &context.caller;
        let owner = if caller.is_gateway() { Owner::Gateway } else { Owner::Peer(context.peer.clone()) };
        let kind = caller.session().map_or_else(|| self.info(context), Kind::Session);
        Claim { queue: self.clone(), client: Client { owner, kind } }
    }

    fn info(&self, context: &CallContext) -> Kind {
        let info = context.client_info.as_ref().map_or(&[][..], |info| info.bytes());
        Kind::Info(self.0.hasher.hash_one(info.get(..COMPARED).unwrap_or(info)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives free permits to the requests whose turn it is.
    fn grant(&self, mut state: MutexGuard<'_, State>) {
        if state.turns.is_empty() {
            return;
        }
        let mut granted = Vec::new();
        while let Some((client, waiter)) = state.next_turn(self.0.concurrency) {
            granted.push((Permit(Claim { queue: self.clone(), client }), waiter));
        }
        // A waiter that has left gives its permit back, which needs the lock.
        drop(state);
        for (permit, waiter) in granted {
            drop(waiter.granted.send(permit));
        }
    }
}

impl Claim {
    /// A permit, if the client may run one more request at once.
    pub(crate) fn try_acquire(&self) -> Option<Permit> {
        let mut state = self.queue.lock();
        if !state.may_run(&self.client, self.queue.0.concurrency) {
            return None;
        }
        state.count(&self.client, |owner, client| {
            owner.running += 1;
            client.running += 1;
        });
        state.free -= 1;
        Some(Permit(self.clone()))
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Result<Permit, Full> {
        match self.try_acquire() {
            Some(permit) => Ok(permit),
            None => Ok(self.wait(true)?.await),
        }
    }

    /// Waits for a permit for a request that had one already, and so waits however many others do.
    pub(crate) async fn acquire_again(self) -> Permit {
        match self.wait(false) {
            Ok(waiting) => waiting.await,
            // Never without a limit.
            Err(Full) => std::future::pending().await,
        }
    }

    fn wait(&self, is_limited: bool) -> Result<Waiting, Full> {
        let mut state = self.queue.lock();
        if is_limited && !state.may_wait(&self.client, self.queue.0.concurrency) {
            return Err(Full);
        }
        let (sender, granted) = oneshot::channel();
        let number = state.next_number;
        state.next_number += 1;
        state.waiting += 1;
        let mut is_first = false;
        state.count(&self.client, |owner, client| {
            owner.waiting += 1;
            is_first = client.waiting.is_empty();
            client.waiting.push_back(Waiter { number, granted: sender });
        });
        if is_first {
            state.turns.push_back(self.client.clone());
        }
        // A permit may have become free since it was asked for.
        self.queue.grant(state);
        Ok(Waiting { claim: self.clone(), number, granted })
    }
}

impl State {
    /// Whether this client may run one more request now.
    fn may_run(&self, client: &Client, concurrency: usize) -> bool {
        if self.free == 0 || client.owner == Owner::Gateway {
            return self.free > 0;
        }
        let of_owner = self.owners.get(&client.owner).map_or(0, |count| count.running);
        let of_client = self.clients.get(client).map_or(0, |requests| requests.running);
        OWNER.allows(of_owner, self.free, concurrency) && CLIENT.allows(of_client, self.free, concurrency)
    }

    /// Whether one more request of this client may wait.
    fn may_wait(&self, client: &Client, concurrency: usize) -> bool {
        let left = concurrency.saturating_sub(self.waiting);
        if left == 0 || client.owner == Owner::Gateway {
            return left > 0;
        }
        let of_owner = self.owners.get(&client.owner).map_or(0, |count| count.waiting);
        let of_client = self.clients.get(client).map_or(0, |requests| requests.waiting.len());
        OWNER.allows(of_owner, left, concurrency) && CLIENT.allows(of_client, left, concurrency)
    }

    /// Takes the waiting request whose turn it is from its queue; it has a permit then. `None` if no waiting request may
    /// run.
    fn next_turn(&mut self, concurrency: usize) -> Option<(Client, Waiter)> {
        let at = self.turns.iter().position(|client| self.may_run(client, concurrency))?;
        let client = self.turns.remove(at)?;
        let (mut waiter, mut has_more) = (None, false);
        self.count(&client, |owner, requests| {
            waiter = requests.waiting.pop_front();
            has_more = !requests.waiting.is_empty();
            owner.waiting -= 1;
            owner.running += 1;
            requests.running += 1;
        });
        self.free -= 1;
        self.waiting -= 1;
        if has_more {
            self.turns.push_back(client.clone());
        }
        waiter.map(|waiter| (client, waiter))
    }

    /// Changes the requests of a client. An owner or a client without requests has no entry.
    fn count(&mut self, client: &Client, change: impl FnOnce(&mut Count, &mut Requests)) {
        let owner = self.owners.entry(client.owner.clone()).or_default();
        let requests = self.clients.entry(client.clone()).or_default();
        change(owner, requests);
        if (owner.running, owner.waiting) == (0, 0) {
            self.owners.remove(&client.owner);
        }
        if requests.running == 0 && requests.waiting.is_empty() {
            self.clients.remove(client);
        }
    }
}

impl Permit {
    /// The claim to another permit for the same client.
    pub(crate) fn claim(&self) -> Claim {
        self.0.clone()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Claim { queue, client } = &self.0;
        let mut state = queue.lock();
        state.count(client, |owner, requests| {
            owner.running -= 1;
            requests.running -= 1;
        });
        state.free += 1;
        queue.grant(state);
    }
}

impl Future for Waiting {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        match ready!(Pin::new(&mut self.granted).poll(cx)) {
            Ok(permit) => Poll::Ready(permit),
            // The sender leaves the queue only with a permit, or with this.
            Err(_) => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Claim { queue, client } = &self.claim;
        let mut state = queue.lock();
        let Some(requests) = state.clients.get_mut(client) else { return };
        let Some(at) = requests.waiting.iter().position(|waiter| waiter.number == self.number) else { return };
        let mut left = None;
        let mut has_more = false;
        state.count(client, |owner, requests| {
            left = requests.waiting.remove(at);
            has_more = !requests.waiting.is_empty();
            owner.waiting -= 1;
        });
        state.waiting -= 1;
        if !has_more {
            state.turns.retain(|turn| turn != client);
        }
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests;
