//! One backend's part of a list: what it gave, and for how long that is valid.
//!
//! Fanlight reads lists on its own behalf, in one context for all clients, so a part with
//! `cacheScope: "private"` is Fanlight's own. Once clients are principals, a private part belongs
//! to one of them and must not be served to another.

use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use fanlight_canonical::Outcome;

use crate::merge::Contribution;

/// A backend's list as it was read.
pub(crate) struct Loaded {
    pub(crate) contribution: Contribution,
    /// When the last page arrived.
    pub(crate) received: Instant,
    /// Until when the server allows it to be served: the least of its pages' `ttlMs`, each counted
    /// from when the page arrived. `None` if any page has none.
    pub(crate) expires: Option<Instant>,
    /// Whether its entries may name URIs that are in other lists.
    pub(crate) names_uris: bool,
}

/// One backend's part of one list.
#[derive(Default)]
pub(super) struct Part {
    pub(super) loaded: Option<Loaded>,
    /// How many changes the backend has announced.
    pub(super) announced: u64,
    /// How many of them the loaded list certainly includes.
    pub(super) reflects: u64,
    /// Whether the backend announces changes to Fanlight.
    pub(super) announces: bool,
    pub(super) running: Option<Running>,
    /// Tells readings apart.
    pub(super) readings: u64,
}

/// A reading that has not ended.
pub(super) struct Running {
    pub(super) number: u64,
    /// How many changes had been announced when it began.
    pub(super) reflects: u64,
    pub(super) done: Shared<BoxFuture<'static, ()>>,
}

impl Part {
    /// Whether the loaded list is current as far as can be known without asking.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        !self.is_behind() && (self.announces || !self.has_expired(now))
    }

    /// Whether the loaded list is known to be outdated or not whole.
    pub(super) fn is_behind(&self) -> bool {
        let ok = self.loaded.as_ref().is_some_and(|loaded| loaded.contribution.outcome == Outcome::Ok);
        !ok || self.reflects < self.announced
    }

    /// Whether the list is served because no change was announced, although its `ttlMs` is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let had_time = self.loaded.as_ref().and_then(|loaded| Some(loaded.expires? > loaded.received));
        self.announces && had_time == Some(true) && self.has_expired(now)
    }

    /// Whether the list has no `ttlMs`, or has outlived it.
    fn has_expired(&self, now: Instant) -> bool {
        self.loaded.as_ref().and_then(|loaded| loaded.expires).is_none_or(|expires| expires <= now)
    }

    /// Stores the result of a reading that began when `reflects` changes had been announced. Returns
    /// whether it differs from the one before.
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
