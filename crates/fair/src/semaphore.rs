//! Permits that are handed out in turn. No share can take all of them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::budget::Part;

/// One acquirer of permits; several acquirers may have a common share.
pub trait Member: Clone + Eq + Hash {
    /// Identifies a share.
    type Share: Clone + Eq + Hash;

    /// The share that its permits count in.
    fn share(&self) -> &Self::Share;

    /// Whether its share is limited by more than the number of permits.
    fn is_bounded(&self) -> bool;
}

/// The number of permits, and the part that a share and a member may hold.
#[derive(Clone, Copy, Debug)]
pub struct PermitLimits {
    /// The number of permits; as many requests may wait.
    pub permits: usize,
    /// The part of one share, among running and among waiting requests.
    pub of_share: Part,
    /// The part of the limit that one member may hold.
    pub of_member: Part,
}

/// Permits that members acquire.
pub struct Semaphore<M: Member>(Arc<Shared<M>>);

struct Shared<M: Member> {
    limits: PermitLimits,
    state: Mutex<State<M>>,
}

struct State<M: Member> {
    free: usize,
    waiting: usize,
    next_number: u64,
    /// Shares with permits or waiting requests.
    shares: HashMap<M::Share, Count, RandomState>,
    /// Members with permits or waiting requests.
    members: HashMap<M, Requests<M>, RandomState>,
    /// The members with waiting requests; the one that last got a permit is at the end.
    turns: VecDeque<M>,
}

/// The requests of one share.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    running: usize,
    waiting: usize,
}

struct Requests<M: Member> {
    running: usize,
    /// Waiting requests in order of arrival.
    waiting: VecDeque<Waiter<M>>,
}

struct Waiter<M: Member> {
    number: u64,
    granted: oneshot::Sender<Permit<M>>,
}

/// The right of one request to run, until dropped.
pub struct Permit<M: Member>(Claim<M>);

/// A member that may ask for a permit.
pub struct Claim<M: Member> {
    semaphore: Semaphore<M>,
    member: M,
}

/// Too many requests of the member, of its share, or in total are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait")]
pub struct Full;

/// Resolves to a permit. Dropping it leaves the queue.
struct Waiting<M: Member> {
    claim: Claim<M>,
    number: u64,
    granted: oneshot::Receiver<Permit<M>>,
}

impl<M: Member> Semaphore<M> {
    /// Creates permits within these limits.
    pub fn new(limits: PermitLimits) -> Self {
        let state = State {
            free: limits.permits,
            waiting: 0,
            next_number: 0,
            shares: HashMap::default(),
            members: HashMap::default(),
            turns: VecDeque::new(),
        };
        Self(Arc::new(Shared {
            limits,
            state: Mutex::new(state),
        }))
    }

    /// The claim of a member.
    #[must_use]
    pub fn claim(&self, member: M) -> Claim<M> {
        Claim {
            semaphore: self.clone(),
            member,
        }
    }

    /// Whether all permits are free and nobody waits.
    pub fn is_unused(&self) -> bool {
        let state = self.0.state.lock();
        (state.free, state.waiting) == (self.0.limits.permits, 0)
            && state.shares.is_empty()
            && state.members.is_empty()
            && state.turns.is_empty()
    }

    /// Gives free permits to the requests whose turn it is.
    fn grant(&self, mut state: MutexGuard<'_, State<M>>) {
        if state.turns.is_empty() {
            return;
        }
        let mut granted = Vec::new();
        while let Some((member, waiter)) = state.next_turn(&self.0.limits) {
            granted.push((Permit(self.claim(member)), waiter));
        }
        // A waiter that has left gives its permit back, which needs the lock.
        drop(state);
        for (permit, waiter) in granted {
            drop(waiter.granted.send(permit));
        }
    }
}

impl<M: Member> Claim<M> {
    /// A permit, if the member may run one more request at once.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit<M>> {
        let mut state = self.semaphore.0.state.lock();
        if !state.may_run(&self.member, &self.semaphore.0.limits) {
            return None;
        }
        state.change(&self.member, |share, member| {
            share.running += 1;
            member.running += 1;
        });
        state.free -= 1;
        Some(Permit(self.clone()))
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// If too many requests are waiting.
    pub async fn acquire(&self) -> Result<Permit<M>, Full> {
        match self.try_acquire() {
            Some(permit) => Ok(permit),
            None => Ok(self.wait(true)?.await),
        }
    }

    /// Waits for a permit for a request that already had one. It may wait however many others do.
    pub async fn acquire_again(self) -> Permit<M> {
        match self.wait(false) {
            Ok(waiting) => waiting.await,
            // Cannot happen without a limit.
            Err(Full) => std::future::pending().await,
        }
    }

    fn wait(&self, is_limited: bool) -> Result<Waiting<M>, Full> {
        let mut state = self.semaphore.0.state.lock();
        if is_limited && !state.may_wait(&self.member, &self.semaphore.0.limits) {
            return Err(Full);
        }
        let (sender, granted) = oneshot::channel();
        let number = state.next_number;
        state.next_number += 1;
        state.waiting += 1;
        let mut is_first = false;
        state.change(&self.member, |share, member| {
            share.waiting += 1;
            is_first = member.waiting.is_empty();
            member.waiting.push_back(Waiter {
                number,
                granted: sender,
            });
        });
        if is_first {
            state.turns.push_back(self.member.clone());
        }
        // A permit may have become free meanwhile.
        self.semaphore.grant(state);
        Ok(Waiting {
            claim: self.clone(),
            number,
            granted,
        })
    }
}

impl<M: Member> State<M> {
    /// Whether this member may run one more request now.
    fn may_run(&self, member: &M, limits: &PermitLimits) -> bool {
        let (of_share, of_member) = (
            |count: &Count| count.running,
            |requests: &Requests<M>| requests.running,
        );
        self.free > 0 && self.allows(member, self.free, limits, of_share, of_member)
    }

    /// Whether one more request of this member may wait.
    fn may_wait(&self, member: &M, limits: &PermitLimits) -> bool {
        let left = limits.permits.saturating_sub(self.waiting);
        let (of_share, of_member) = (
            |count: &Count| count.waiting,
            |requests: &Requests<M>| requests.waiting.len(),
        );
        left > 0 && self.allows(member, left, limits, of_share, of_member)
    }

    /// Whether a member and its share may take one more permit while `free` permits are left.
    fn allows(
        &self,
        member: &M,
        free: usize,
        limits: &PermitLimits,
        of_share: impl Fn(&Count) -> usize,
        of_member: impl Fn(&Requests<M>) -> usize,
    ) -> bool {
        let allows = |part: Part, held| held == 0 || part.allows(held, 1, free, limits.permits);
        !member.is_bounded()
            || allows(
                limits.of_share,
                self.shares.get(member.share()).map_or(0, of_share),
            ) && allows(
                limits.of_member,
                self.members.get(member).map_or(0, of_member),
            )
    }

    /// Removes the waiting request whose turn it is from its queue, and gives it a permit. `None`
    /// if no waiting request may run.
    fn next_turn(&mut self, limits: &PermitLimits) -> Option<(M, Waiter<M>)> {
        let at = self
            .turns
            .iter()
            .position(|member| self.may_run(member, limits))?;
        let member = self.turns.remove(at)?;
        let (mut waiter, mut has_more) = (None, false);
        self.change(&member, |share, requests| {
            waiter = requests.waiting.pop_front();
            has_more = !requests.waiting.is_empty();
            share.waiting -= 1;
            share.running += 1;
            requests.running += 1;
        });
        self.free -= 1;
        self.waiting -= 1;
        if has_more {
            self.turns.push_back(member.clone());
        }
        waiter.map(|waiter| (member, waiter))
    }

    /// Changes the requests of a member. Shares and members without requests have no entry.
    fn change(&mut self, member: &M, change: impl FnOnce(&mut Count, &mut Requests<M>)) {
        let requests = self.members.entry(member.clone()).or_default();
        let count = self.shares.entry(member.share().clone()).or_default();
        change(count, requests);
        if (count.running, count.waiting) == (0, 0) {
            self.shares.remove(member.share());
        }
        if requests.running == 0 && requests.waiting.is_empty() {
            self.members.remove(member);
        }
    }
}

impl<M: Member> Permit<M> {
    /// A claim to another permit for the same member.
    #[must_use]
    pub fn claim(&self) -> Claim<M> {
        self.0.clone()
    }
}

impl<M: Member> Drop for Permit<M> {
    fn drop(&mut self) {
        let Claim { semaphore, member } = &self.0;
        let mut state = semaphore.0.state.lock();
        state.change(member, |share, requests| {
            share.running -= 1;
            requests.running -= 1;
        });
        state.free += 1;
        semaphore.grant(state);
    }
}

impl<M: Member> Future for Waiting<M> {
    type Output = Permit<M>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit<M>> {
        match ready!(Pin::new(&mut self.granted).poll(cx)) {
            Ok(permit) => Poll::Ready(permit),
            // The sender leaves the queue only with a permit, or with this future.
            Err(_) => Poll::Pending,
        }
    }
}

impl<M: Member> Unpin for Waiting<M> {}

impl<M: Member> Drop for Waiting<M> {
    fn drop(&mut self) {
        let Claim { semaphore, member } = &self.claim;
        let mut state = semaphore.0.state.lock();
        let Some(requests) = state.members.get(member) else {
            return;
        };
        let Some(at) = requests
            .waiting
            .iter()
            .position(|waiter| waiter.number == self.number)
        else {
            return;
        };
        let mut left = None;
        let mut has_more = false;
        state.change(member, |share, requests| {
            left = requests.waiting.remove(at);
            has_more = !requests.waiting.is_empty();
            share.waiting -= 1;
        });
        state.waiting -= 1;
        if !has_more {
            state.turns.retain(|turn| turn != member);
        }
        drop(state);
        drop(left);
    }
}

impl<M: Member> Default for Requests<M> {
    fn default() -> Self {
        Self {
            running: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl<M: Member> Clone for Semaphore<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Member> Clone for Claim<M> {
    fn clone(&self) -> Self {
        Self {
            semaphore: self.semaphore.clone(),
            member: self.member.clone(),
        }
    }
}

impl<M: Member> fmt::Debug for Semaphore<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("Semaphore")
            .field("free", &state.free)
            .field("waiting", &state.waiting)
            .finish_non_exhaustive()
    }
}

impl<M: Member> fmt::Debug for Permit<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
