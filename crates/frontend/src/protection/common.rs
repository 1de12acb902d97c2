//! Limits that several processes count together.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fanlight_fair::{Quota, Rate, TooMany};

use super::turn::{Counts, Key, Turn};

/// What happens while a limit cannot be counted together with other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutOthers {
    /// Each process allows its part.
    Part,
    /// Requests that fall under it are refused.
    Refuse,
}

/// One limit that a request takes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonLimit {
    /// What is counted: the same bytes in all processes, and other ones for everything else.
    pub key: Vec<u8>,
    /// Whose it is, if it counts each client apart: the same bytes for all limits of one client.
    pub client: Option<Vec<u8>>,
    /// How many at once, and as many again evenly over `per`.
    pub most: usize,
    /// In which time.
    pub per: Duration,
    /// How long a request waits for its turn.
    pub queue: Duration,
}

/// Why nothing was taken from limits that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// One of them has none left.
    TooMany(TooMany),
    /// They cannot be counted now.
    Away,
}

/// Counts together with other processes.
pub trait CommonLimits: fmt::Debug + Send + Sync {
    /// Takes one from each of these limits, or from none; how long it is until its turn. Those that count each client apart are of one
    /// client. It takes a bounded time, whatever happens.
    fn take(
        &self,
        limits: Vec<CommonLimit>,
    ) -> Pin<Box<dyn Future<Output = Result<Duration, NotTaken>> + Send + '_>>;

    /// How many processes there are, as last heard of.
    fn processes(&self) -> usize;
}

/// A limit of which a request is to take one together with other processes.
#[derive(Debug)]
pub(super) struct CommonEntry {
    pub(super) limit: CommonLimit,
    pub(super) without: WithoutOthers,
    /// What this process counts where it is alone.
    pub(super) rate: Rate<Key>,
    pub(super) key: Key,
    pub(super) counts: Arc<Counts>,
}

/// A request that has taken from the limits of this process, and not yet from common ones.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(super) turn: Turn,
    pub(super) common: Vec<CommonEntry>,
}

impl Taking {
    /// Whether nothing is left to be taken.
    pub(crate) fn is_done(&self) -> bool {
        self.common.is_empty()
    }

    /// The turn, if it is not at once.
    pub(crate) fn turn(self) -> Option<Turn> {
        self.turn.unless_now()
    }

    /// Takes from the common limits, too.
    ///
    /// # Errors
    ///
    /// If one of them has none left: then it takes from none, and what it has taken before is given back.
    pub(crate) async fn in_common(
        mut self,
        limits: &dyn CommonLimits,
    ) -> Result<Option<Turn>, NotTaken> {
        let asked = self
            .common
            .iter()
            .map(|entry| entry.limit.clone())
            .collect();
        // Which of them has refused it is not known: it counts for each.
        let count = |wait| self.common.iter().for_each(|entry| entry.counts.add(wait));
        match limits.take(asked).await {
            Ok(wait) => {
                count(Some(wait));
                self.turn.wait(wait);
            }
            Err(NotTaken::Away) => self.alone(limits.processes())?,
            Err(too_many) => {
                count(None);
                return Err(too_many);
            }
        }
        Ok(self.turn.unless_now())
    }

    /// Takes this process's part.
    fn alone(&mut self, processes: usize) -> Result<(), NotTaken> {
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

/// As many in the long run as one of so many processes may allow, and one at least at once.
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
        // One in two minutes from each of four is two in a minute.
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
