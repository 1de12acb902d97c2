//! An amount that all share, such as bytes.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The part of a limit that one share may hold, which depends on the free rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The amount that a share may hold for each free unit.
    pub for_each_free: usize,
    /// The reserves for others: each limit of at least this size keeps this amount free.
    pub kept: [(usize, usize); 2],
}

impl Part {
    /// A share may hold as much as it leaves free: half of all if it is alone, a third beside
    /// another such share.
    pub const AS_MUCH_AS_IT_LEAVES: Self = Self {
        for_each_free: 1,
        kept: [(usize::MAX, 0); 2],
    };

    /// Whether a share that holds `held` may take `more` while `free` of `limit` is free. Each unit
    /// is checked: the share must hold less than its multiple of the free amount, and more than the
    /// reserve must be free.
    #[must_use]
    pub fn allows(&self, held: usize, more: usize, free: usize, limit: usize) -> bool {
        let Some(before_last) = more.checked_sub(1) else {
            return true;
        };
        let kept = self
            .kept
            .iter()
            .filter(|(of, _)| limit >= *of)
            .map(|(_, kept)| *kept)
            .max()
            .unwrap_or(0);
        let free = free.saturating_sub(before_last);
        free > kept && held.saturating_add(before_last) < self.for_each_free.saturating_mul(free)
    }
}

/// A limited amount, of which each share may hold a [`Part`]. Only the whole limits a share's first
/// reservation, so each can reserve any allowed amount.
#[derive(Debug)]
pub struct Budget<S>(Arc<Shared<S>>);

#[derive(Debug)]
struct Shared<S> {
    limit: usize,
    part: Part,
    state: Mutex<State<S>>,
    given_back: Notify,
    /// The number of dropped texts that held a reservation.
    texts_dropped: AtomicUsize,
}

#[derive(Debug)]
struct State<S> {
    /// The sum of all holdings; at most the limit.
    held: usize,
    /// Shares without holdings have no entry.
    shares: HashMap<S, Holding, RandomState>,
}

#[derive(Debug, Default)]
struct Holding {
    amount: usize,
    reservations: usize,
}

/// The budget or the share's part is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit is reached")]
pub struct Spent;

/// The holding of a share; released when dropped.
#[derive(Debug)]
pub struct Reservation<S: Eq + Hash> {
    budget: Budget<S>,
    share: S,
    amount: usize,
}

impl<S> Clone for Budget<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Clone + Eq + Hash> Budget<S> {
    /// Creates a budget of `limit`, of which each share may hold `part`.
    pub fn new(limit: usize, part: Part) -> Self {
        let state = Mutex::new(State {
            held: 0,
            shares: HashMap::default(),
        });
        Self(Arc::new(Shared {
            limit,
            part,
            state,
            given_back: Notify::new(),
            texts_dropped: AtomicUsize::new(0),
        }))
    }

    /// The total amount.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// The amount that all shares hold now.
    pub fn held(&self) -> usize {
        self.0.state.lock().held
    }

    /// Resolves when any share gives something back after this call.
    pub fn given_back(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.given_back.notified()
    }

    /// The number of dropped texts so far that held a reservation ([`Reservation::hold`]). It wraps
    /// around.
    pub fn texts_dropped(&self) -> usize {
        self.0.texts_dropped.load(Ordering::Relaxed)
    }

    /// Reserves an amount for a share.
    ///
    /// # Errors
    ///
    /// If less is left, or the share would exceed its part.
    pub fn reserve(&self, share: &S, amount: usize) -> Result<Reservation<S>, Spent> {
        self.0.take(share, amount, true)?;
        Ok(Reservation {
            budget: self.clone(),
            share: share.clone(),
            amount,
        })
    }
}

impl<S: Clone + Eq + Hash> Shared<S> {
    /// `is_new` is for another reservation of the share, as opposed to a larger one.
    fn take(&self, share: &S, amount: usize, is_new: bool) -> Result<(), Spent> {
        let mut state = self.state.lock();
        let free = self.limit - state.held;
        let holding = state.shares.get(share);
        let (own, reservations) =
            holding.map_or((0, 0), |holding| (holding.amount, holding.reservations));
        let is_first = reservations == usize::from(!is_new);
        if amount > free || !(is_first || self.part.allows(own, amount, free, self.limit)) {
            return Err(Spent);
        }
        let holding = state.shares.entry(share.clone()).or_default();
        holding.amount += amount;
        holding.reservations += usize::from(is_new);
        state.held += amount;
        Ok(())
    }
}

impl<S: Eq + Hash> Shared<S> {
    fn give_back(&self, share: &S, amount: usize, is_last: bool) {
        let mut state = self.state.lock();
        state.held -= amount;
        if let Some(holding) = state.shares.get_mut(share) {
            holding.amount -= amount;
            holding.reservations -= usize::from(is_last);
            if holding.reservations == 0 {
                state.shares.remove(share);
            }
        }
        drop(state);
        self.given_back.notify_waiters();
    }
}

impl<S: Clone + Eq + Hash> Reservation<S> {
    /// Reserves another amount for the same share.
    ///
    /// # Errors
    ///
    /// If less is left, or the share would exceed its part.
    pub fn reserve_more(&self, amount: usize) -> Result<Self, Spent> {
        self.budget.reserve(&self.share, amount)
    }

    /// Changes the amount. After an error it is unchanged.
    ///
    /// # Errors
    ///
    /// If less is left, or the share would exceed its part.
    pub fn resize(&mut self, amount: usize) -> Result<(), Spent> {
        match amount.checked_sub(self.amount) {
            Some(more) => self.budget.0.take(&self.share, more, false)?,
            None => self
                .budget
                .0
                .give_back(&self.share, self.amount - amount, false),
        }
        self.amount = amount;
        Ok(())
    }
}

impl<S: Eq + Hash + Send + Sync + 'static> Reservation<S> {
    /// The same text, which holds this reservation until its last part is dropped.
    #[must_use]
    pub fn hold(self, text: Bytes) -> Bytes {
        Bytes::from_owner(Held {
            text,
            reservation: self,
        })
    }
}

/// A text and its reservation. Fields are dropped in order of declaration.
struct Held<S: Eq + Hash> {
    text: Bytes,
    reservation: Reservation<S>,
}

impl<S: Eq + Hash> Drop for Held<S> {
    fn drop(&mut self) {
        self.reservation
            .budget
            .0
            .texts_dropped
            .fetch_add(1, Ordering::Relaxed);
    }
}

impl<S: Eq + Hash> AsRef<[u8]> for Held<S> {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl<S: Eq + Hash> Drop for Reservation<S> {
    fn drop(&mut self) {
        self.budget.0.give_back(&self.share, self.amount, true);
    }
}

#[cfg(test)]
mod tests;
