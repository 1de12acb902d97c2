//! One backend's part of a list: what it gave, and for how long that is valid.
//!
//! Fanlight reads lists on its own behalf, in one context for all clients. A part that its server says is private is then
//! Fanlight's own: clients that are authenticated get one that is read for their principal (`own`).

use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use fanlight_canonical::Outcome;
use fanlight_protocol::Json;

use super::ListKind;
use super::memory::ReservedBytes;
use super::needs::{ListReading, Needs};
use super::starting::Wait;
use crate::merge::Contribution;

/// A reading that takes this long and fails is one that requests should not wait for. No option: lists of such a server
/// are served from before and read in the background, whatever this is.
const SLOW: Duration = Duration::from_millis(500);

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
    /// When the results were read, which is earlier than `received` if they are stale.
    pub(crate) read: Instant,
    /// The memory of the results.
    pub(crate) reserved: ReservedBytes,
    /// When the results were read, if that was in an earlier run of Fanlight.
    pub(crate) kept_since: Option<SystemTime>,
    /// The capabilities that the results were read with.
    pub(crate) declared: Json,
    /// How many changes the backend had announced before that.
    pub(super) changes: u64,
    /// What clients need to be shown some of the entries.
    pub(super) needs: Needs,
}

/// One backend's part of one list.
#[derive(Default)]
pub(super) struct Part {
    pub(super) loaded: Option<Loaded>,
    /// How many changes the backend has announced.
    pub(super) announced: u64,
    /// How many changes of the server's own that were: others are those of what is declared to it.
    pub(super) changes: u64,
    /// How many of them the loaded list certainly includes.
    pub(super) reflects: u64,
    /// Whether the backend announces changes to Fanlight.
    pub(super) announces: bool,
    pub(super) running: Option<Running>,
    /// Tells readings apart.
    pub(super) readings: u64,
    /// The backend did not answer the last reading in time. No request waits for it until it has answered.
    pub(super) is_hanging: bool,
    /// The server says that its list is for whom it was read for alone. It stays so while the list cannot be read.
    pub(super) is_private: bool,
    /// Of a principal's part: how many announced changes of the backend are among those that it counts.
    followed: u64,
    /// A task waits until the loaded list is too old to be served.
    pub(super) is_expiring: bool,
}

/// A reading that has not ended.
pub(super) struct Running {
    pub(super) number: u64,
    /// How many changes had been announced when it began.
    pub(super) reflects: u64,
    pub(super) wait: Wait,
    pub(super) may_use_kept: bool,
    pub(super) done: Shared<BoxFuture<'static, ()>>,
}

impl Part {
    /// Whether the loaded list is current as far as can be known without asking.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        !self.is_behind() && (self.announces || !self.has_expired(now))
    }

    /// Whether nothing is known of the list: it has neither been read, nor has a change of it been announced.
    pub(super) fn is_untouched(&self) -> bool {
        self.readings == 0 && self.announced == 0
    }

    /// Counts the changes that the backend has announced to Fanlight, which may be changes of this part as well.
    pub(super) fn follow(&mut self, announced: u64) {
        let new = announced.saturating_sub(self.followed);
        (self.announced, self.followed) = (self.announced + new, self.followed + new);
    }

    /// Whether a change was announced since the list was read, or it has not been.
    pub(super) fn is_outdated(&self) -> bool {
        self.loaded.is_none() || self.reflects < self.announced
    }

    /// Whether it is a whole list of an earlier run.
    pub(super) fn is_kept(&self) -> bool {
        !self.is_behind()
            && self
                .loaded
                .as_ref()
                .is_some_and(|loaded| loaded.kept_since.is_some())
    }

    /// Whether the list was read before its backend's connection of `made`.
    pub(super) fn is_older_than_connection(&self, made: Instant) -> bool {
        match &self.running {
            // It may end with the list of an earlier run.
            Some(running) => running.may_use_kept,
            None => self
                .loaded
                .as_ref()
                .is_some_and(|loaded| loaded.received < made),
        }
    }

    /// Whether the loaded list is known to be outdated or not whole.
    pub(super) fn is_behind(&self) -> bool {
        let ok = self
            .loaded
            .as_ref()
            .is_some_and(|loaded| loaded.contribution.outcome == Outcome::Ok);
        !ok || self.reflects < self.announced
    }

    /// Whether it is missing because its server wants the user to sign in.
    pub(super) fn wants_sign_in(&self) -> bool {
        self.loaded
            .as_ref()
            .is_some_and(|loaded| loaded.contribution.outcome == Outcome::SignInNeeded)
    }

    /// Whether the list is served because no change was announced, although its `ttlMs` is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let had_time = self.loaded.as_ref().is_some_and(Loaded::has_time);
        self.announces && had_time && self.has_expired(now)
    }

    /// Whether the list has no `ttlMs`, or has outlived it.
    fn has_expired(&self, now: Instant) -> bool {
        self.loaded
            .as_ref()
            .and_then(|loaded| loaded.expires)
            .is_none_or(|expires| expires <= now)
    }

    /// Stores the result of a reading that began when `reflects` changes had been announced. If it failed, the last
    /// whole list stays for at most `stale`. Returns whether there is anything new.
    pub(super) fn store(
        &mut self,
        mut loaded: Loaded,
        reflects: u64,
        stale: Duration,
        took: Duration,
    ) -> bool {
        let Contribution {
            outcome,
            ref reason,
            ..
        } = loaded.contribution;
        // A host that is lost without a word fails in several ways, but always slowly.
        self.is_hanging = matches!(outcome, Outcome::Timeout | Outcome::Starting)
            || (outcome != Outcome::Ok && took >= SLOW);
        self.reflects = reflects;
        self.running = None;
        // What wants its user to sign in tells each user something else.
        let is_private = loaded.contribution.is_private() || outcome == Outcome::SignInNeeded;
        self.is_private = is_private || (self.is_private && outcome != Outcome::Ok);
        let last = self.loaded.take();
        let is_other = |last: &Contribution| last.outcome != outcome || last.reason != *reason;
        let is_new = match last {
            Some(last)
                if outcome != Outcome::Ok && last.is_whole() && last.read.elapsed() < stale =>
            {
                let is_new = is_other(&last.contribution);
                loaded.contribution.results = last.contribution.results;
                loaded.contribution.is_stale = true;
                loaded.expires = None;
                (loaded.read, loaded.reserved) = (last.read, last.reserved);
                (loaded.declared, loaded.changes) = (last.declared, last.changes);
                loaded.kept_since = last.kept_since;
                is_new
            }
            Some(Loaded {
                contribution: last,
                needs,
                ..
            }) => {
                let is_new = is_other(&last) || last.is_stale || needs != loaded.needs;
                let is_same_list = last.results == loaded.contribution.results;
                if is_same_list {
                    // The text that the newest snapshot has, so that it is not kept twice.
                    loaded.contribution.results = last.results;
                }
                is_new || !is_same_list
            }
            None => true,
        };
        self.loaded = Some(loaded);
        is_new
    }

    /// Learns from a reading that began after `changes` changes what clients need to be shown some of the entries.
    pub(super) fn learn_needs(&self, kind: ListKind, loaded: &mut Loaded, changes: u64) {
        loaded.changes = changes;
        let Some(last) = self
            .loaded
            .as_ref()
            .filter(|last| self.announces && last.changes == self.changes)
        else {
            return;
        };
        if self.changes == changes {
            let [before, now] = [last, &*loaded].map(|loaded| ListReading {
                declared: &loaded.declared,
                list: &loaded.contribution,
            });
            loaded.needs = last.needs.after(kind, before, now);
        }
    }

    /// Whether the loaded list is from before a failure.
    pub(super) fn is_stale(&self) -> bool {
        self.loaded
            .as_ref()
            .is_some_and(|loaded| loaded.contribution.is_stale)
    }

    /// When the loaded list is too old to be served, if it is from before a failure and no task waits for that.
    pub(super) fn expire(&mut self, stale: Duration) -> Option<Instant> {
        let end = self.loaded.as_ref().filter(|_| self.is_stale())?.read + stale;
        (!std::mem::replace(&mut self.is_expiring, true)).then_some(end)
    }
}

impl Loaded {
    /// Whether the reading did not wait for the end of the backend's start.
    pub(super) fn is_of_start(&self) -> bool {
        matches!(
            self.contribution.outcome,
            Outcome::Starting | Outcome::Timeout
        )
    }

    /// Whether its server has said for how long it holds, and that is some time.
    pub(super) fn has_time(&self) -> bool {
        self.expires.is_some_and(|expires| expires > self.received)
    }

    /// Whether the results are a whole list, be it an old one.
    fn is_whole(&self) -> bool {
        self.contribution.outcome == Outcome::Ok || self.contribution.is_stale
    }
}
