//! Rate limits that several processes count together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fanlight_fair::{Quota, Rate, TooMany};
use futures_util::future::BoxFuture;

use super::turn::{Counts, Key, Turn};

/// The behaviour of a shared limit that cannot be counted with other processes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutOthers {
    /// Each process allows its part.
    Part,
    /// Requests under the limit are refused.
    Refuse,
}

/// One limit that a request counts against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonLimit {
    /// The counter's key: equal in all processes, and different for every other counter.
    pub key: Vec<u8>,
    /// The client's key, equal for all limits of one client; `None` if the limit does not count
    /// clients separately.
    pub client: Option<Vec<u8>>,
    /// The number of requests allowed at once, and again evenly over `per`.
    pub most: usize,
    /// The period of the limit.
    pub per: Duration,
    /// The longest wait for a turn.
    pub queue: Duration,
}

/// The reason why a request was not counted against shared limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// One of the limits is used up.
    TooMany(TooMany),
    /// The limits cannot be counted now.
    Away,
}

/// Counts limits together with other processes.
///
/// A trait because its implementation depends on this crate.
pub trait CommonLimits: fmt::Debug + Send + Sync {
    /// Counts a request against all of these limits, or against none; returns the time until its
    /// turn. Limits that count clients separately are all of one client. Takes a bounded time in
    /// any case.
    fn take(&self, limits: Vec<CommonLimit>) -> BoxFuture<'_, Result<Duration, NotTaken>>;

    /// The last known number of processes.
    fn processes(&self) -> usize;
}

/// A shared limit that a request must be counted against.
#[derive(Debug)]
pub(super) struct CommonEntry {
    pub(super) limit: CommonLimit,
    pub(super) without: WithoutOthers,
    /// The count of this process alone, used if the shared count is unavailable.
    pub(super) rate: Rate<Key>,
    pub(super) key: Key,
    pub(super) counts: Arc<Counts>,
}

/// A request that is counted against this process's limits, but not yet against shared ones.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(super) turn: Turn,
    pub(super) common: Vec<CommonEntry>,
}

impl Taking {
    /// Whether there are no shared limits to count against.
    pub(crate) fn is_done(&self) -> bool {
        self.common.is_empty()
    }

    /// The turn; `None` if the request may run at once.
    pub(crate) fn turn(self) -> Option<Turn> {
        self.turn.into_waiting()
    }

    /// Counts the request against the shared limits.
    ///
    /// # Errors
    ///
    /// If one of them is used up. Then none is charged, and earlier charges are refunded.
    pub(crate) async fn charge_shared(
        mut self,
        limits: &dyn CommonLimits,
    ) -> Result<Option<Turn>, NotTaken> {
        let asked = self
            .common
            .iter()
            .map(|entry| entry.limit.clone())
            .collect();
        // The limit that refused is unknown, so each counts it.
        let count = |wait| self.common.iter().for_each(|entry| entry.counts.add(wait));
        match limits.take(asked).await {
            Ok(wait) => {
                count(Some(wait));
                self.turn.wait(wait);
            }
            Err(NotTaken::Away) => self.charge_alone(limits.processes())?,
            Err(too_many) => {
                count(None);
                return Err(too_many);
            }
        }
        Ok(self.turn.into_waiting())
    }

    /// Charges this process's parts of the limits.
    fn charge_alone(&mut self, processes: usize) -> Result<(), NotTaken> {
        for CommonEntry {
            limit,
            without,
            rate,
            key,
            counts,
        } in self.common.drain(..)
        {
            if without == WithoutOthers::Refuse {
                counts.add(None);
                return Err(NotTaken::Away);
            }
            let charged = rate.charge_within(&key, part_of(&limit, processes.max(1)), limit.queue);
            counts.add(charged.as_ref().ok().map(|(_, wait)| *wait));
            let (charge, wait) = charged.map_err(NotTaken::TooMany)?;
            self.turn.charged(charge, wait);
        }
        Ok(())
    }
}

/// This process's part of a limit among so many processes. It allows at least one request at once,
/// and its fair part in the long run.
fn part_of(limit: &CommonLimit, processes: usize) -> Quota {
    let most = (limit.most / processes).max(1);
    Quota {
        most,
        per: limit
            .per
            .mul_f64((most * processes) as f64 / limit.most.max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_all_processes_are_no_more_than_the_limit() {
        let (per, queue) = (Duration::from_secs(60), Duration::ZERO);
        let limit = |most| CommonLimit {
            key: Vec::new(),
            client: None,
            most,
            per,
            queue,
        };
        assert_eq!(
            part_of(&limit(90), 3),
            Quota {
                most: 30,
                per: Duration::from_secs(60)
            }
        );
        // One in two minutes in each of four processes makes two in a minute.
        assert_eq!(
            part_of(&limit(2), 4),
            Quota {
                most: 1,
                per: Duration::from_secs(120)
            }
        );
        assert_eq!(
            part_of(&limit(5), 1),
            Quota {
                most: 5,
                per: Duration::from_secs(60)
            }
        );
    }
}
