//! One backend's part of a list: what it gave, and for how long that counts.
//!
//! Fanlight reads lists on its own behalf, in one context for all clients, so a part with
//! `cacheScope: "private"` is Fanlight's own. Once clients are principals, a private part belongs
//! to one of them and must not be served to another.
//!
//! Must not know: other backends' parts, or how a list is read.

use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use fanlight_canonical::Outcome;

use crate::merge::Contribution;

/// A backend's list as it was read.
pub(crate) struct Loaded {
    pub(crate) contribution: Contribution,
    /// When the last of it came.
    pub(crate) received: Instant,
    /// Until when it may be served by its own word: the least of its pages' `ttlMs`, each counted
    /// from when the page came. `None` if any page does not say.
    pub(crate) expires: Option<Instant>,
}

/// One backend's part of one list.
#[derive(Default)]
pub(super) struct Part {
    pub(super) loaded: Option<Loaded>,
    /// How many changes have been heard of.
    pub(super) heard: u64,
    /// How many of them the loaded list has in it for certain.
    pub(super) reflects: u64,
    /// Whether the backend announces changes to us.
    pub(super) announces: bool,
    pub(super) running: Option<Running>,
    /// Tells readings apart.
    pub(super) readings: u64,
}

/// A reading that is going on.
pub(super) struct Running {
    pub(super) number: u64,
    /// How many changes had been heard of when it began.
    pub(super) reflects: u64,
    pub(super) done: Shared<BoxFuture<'static, ()>>,
}

impl Part {
    /// Whether what is loaded is the list as far as anyone can know without asking.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        !self.is_behind() && (self.announces || !self.has_expired(now))
    }

    /// Whether what is loaded is known not to be the list.
    pub(super) fn is_behind(&self) -> bool {
        let ok = self.loaded.as_ref().is_some_and(|loaded| loaded.contribution.outcome == Outcome::Ok);
        !ok || self.reflects < self.heard
    }

    /// Whether the list is served because no change was announced, though the time is over for which
    /// the server gave it.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let had_time = self.loaded.as_ref().and_then(|loaded| Some(loaded.expires? > loaded.received));
        self.announces && had_time == Some(true) && self.has_expired(now)
    }

    /// Whether there is no time, or none left, for which the server gave the list.
    fn has_expired(&self, now: Instant) -> bool {
        self.loaded.as_ref().and_then(|loaded| loaded.expires).is_none_or(|expires| expires <= now)
    }

    /// Takes in what was read by a reading that began when `reflects` changes had been heard of.
    /// Returns whether it says anything new.
    pub(super) fn store(&mut self, loaded: Loaded, reflects: u64) -> bool {
        let is_new = self.loaded.as_ref().is_none_or(|old| {
            let (old, new) = (&old.contribution, &loaded.contribution);
            old.outcome != new.outcome || old.reason != new.reason || old.results != new.results
        });
        self.loaded = Some(loaded);
        self.reflects = reflects;
        self.running = None;
        is_new
    }
}
