//! One server's part of a list, and how long it is valid.
//!
//! Fanlight reads lists on its own behalf, in one context for all clients. If a server says that
//! its part is private, Fanlight keeps that reading to itself. Authenticated clients then get a
//! part that is read for their principal (`own`).

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

/// A reading that fails after this time marks its server as hanging, so requests do not wait for
/// it. No option: the server's last list is served meanwhile, and read again in the background.
const SLOW: Duration = Duration::from_millis(500);

/// A server's list as it was read.
pub(crate) struct Loaded {
    pub(crate) contribution: Contribution,
    /// When the last page arrived.
    pub(crate) received: Instant,
    /// When the list expires: the earliest end of a page's `ttlMs`, counted from the page's
    /// arrival. `None` if any page has no `ttlMs`.
    pub(crate) expires: Option<Instant>,
    /// Whether its entries may name URIs of other lists.
    pub(crate) names_uris: bool,
    /// When the results were read. For stale results this is earlier than `received`.
    pub(crate) read: Instant,
    /// The memory reserved for the results.
    pub(crate) reserved: ReservedBytes,
    /// When the results were read, if an earlier run of Fanlight read them.
    pub(crate) kept_since: Option<SystemTime>,
    /// The capabilities declared for the reading.
    pub(crate) declared: Json,
    /// How many changes the server had announced before the reading.
    pub(super) changes: u64,
    /// The extensions that clients need to see some of the entries.
    pub(super) needs: Needs,
}

/// One server's part of one list.
#[derive(Default)]
pub(super) struct Part {
    pub(super) loaded: Option<Loaded>,
    /// The number of reasons to read the list again: changes that the server announced, and
    /// additions to the capabilities that Fanlight declares.
    pub(super) announced: u64,
    /// The number of changes that the server itself has announced.
    pub(super) changes: u64,
    /// How many of `announced` the loaded list certainly includes.
    pub(super) reflects: u64,
    /// Whether the server announces changes to Fanlight.
    pub(super) announces: bool,
    pub(super) running: Option<Running>,
    /// Counts the readings, so that each has a number.
    pub(super) readings: u64,
    /// The server did not answer the last reading in time. No request waits for it until it answers
    /// again.
    pub(super) is_hanging: bool,
    /// The server says that only the reader may see the list. This stays so while the list cannot
    /// be read.
    pub(super) is_private: bool,
    /// For a principal's part: how many of the common part's `announced` this part has counted.
    followed: u64,
    /// A task waits until the loaded list is too old to be served.
    pub(super) is_expiring: bool,
}

/// A reading that is still running.
pub(super) struct Running {
    pub(super) number: u64,
    /// The value of `announced` when it began.
    pub(super) reflects: u64,
    pub(super) wait: Wait,
    pub(super) may_use_kept: bool,
    pub(super) done: Shared<BoxFuture<'static, ()>>,
}

impl Part {
    /// Whether the loaded list is current, as far as Fanlight can tell without asking.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        !self.is_behind() && (self.announces || !self.has_expired(now))
    }

    /// Whether nothing is known of the list: it was never read, and no change of it was announced.
    pub(super) fn is_untouched(&self) -> bool {
        self.readings == 0 && self.announced == 0
    }

    /// Counts changes that the server announced to Fanlight, since they may concern this part too.
    pub(super) fn follow(&mut self, announced: u64) {
        let new = announced.saturating_sub(self.followed);
        (self.announced, self.followed) = (self.announced + new, self.followed + new);
    }

    /// Whether the list was never read, or a change was announced since.
    pub(super) fn is_outdated(&self) -> bool {
        self.loaded.is_none() || self.reflects < self.announced
    }

    /// Whether the loaded list is a whole list of an earlier run.
    pub(super) fn is_kept(&self) -> bool {
        !self.is_behind()
            && self
                .loaded
                .as_ref()
                .is_some_and(|loaded| loaded.kept_since.is_some())
    }

    /// Whether the list was read before the server's connection made at `made`.
    pub(super) fn is_older_than_connection(&self, made: Instant) -> bool {
        match &self.running {
            // The reading may end with the list of an earlier run.
            Some(running) => running.may_use_kept,
            None => self
                .loaded
                .as_ref()
                .is_some_and(|loaded| loaded.received < made),
        }
    }

    /// Whether the loaded list is known to be outdated or incomplete.
    pub(super) fn is_behind(&self) -> bool {
        let ok = self
            .loaded
            .as_ref()
            .is_some_and(|loaded| loaded.contribution.outcome == Outcome::Ok);
        !ok || self.reflects < self.announced
    }

    /// Whether the list is missing because the server requires the user to sign in.
    pub(super) fn wants_sign_in(&self) -> bool {
        self.loaded
            .as_ref()
            .is_some_and(|loaded| loaded.contribution.outcome == Outcome::SignInNeeded)
    }

    /// Whether the list is served although its `ttlMs` is over, because the server announced no
    /// change.
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

    /// Stores the result of a reading that began when `announced` was `reflects`. If the reading
    /// failed, the last whole list stays for at most `stale`. Returns whether anything is new.
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
        // A host that disappears without a reset fails in several ways, but always slowly.
        self.is_hanging = matches!(outcome, Outcome::Timeout | Outcome::Starting)
            || (outcome != Outcome::Ok && took >= SLOW);
        self.reflects = reflects;
        self.running = None;
        // A server that requires a sign-in answers each user differently.
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
                    // Reuses the text of the newest snapshot, so that it is in memory once.
                    loaded.contribution.results = last.results;
                }
                is_new || !is_same_list
            }
            None => true,
        };
        self.loaded = Some(loaded);
        is_new
    }

    /// Learns which extensions clients need to see some entries. The reading began after `changes`
    /// changes.
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
            loaded.needs = last.needs.update(kind, before, now);
        }
    }

    /// Whether the loaded list is from before a failure.
    pub(super) fn is_stale(&self) -> bool {
        self.loaded
            .as_ref()
            .is_some_and(|loaded| loaded.contribution.is_stale)
    }

    /// When the loaded list becomes too old to be served. `None` if it is not stale, or a task
    /// waits already.
    pub(super) fn expire(&mut self, stale: Duration) -> Option<Instant> {
        let end = self.loaded.as_ref().filter(|_| self.is_stale())?.read + stale;
        (!std::mem::replace(&mut self.is_expiring, true)).then_some(end)
    }
}

impl Loaded {
    /// Whether the reading gave up before the server had started.
    pub(super) fn is_of_start(&self) -> bool {
        matches!(
            self.contribution.outcome,
            Outcome::Starting | Outcome::Timeout
        )
    }

    /// Whether the server gave the list a lifetime above zero.
    pub(super) fn has_time(&self) -> bool {
        self.expires.is_some_and(|expires| expires > self.received)
    }

    /// Whether the results are a whole list, even an old one.
    fn is_whole(&self) -> bool {
        self.contribution.outcome == Outcome::Ok || self.contribution.is_stale
    }
}
