//! Budgets for lines of the log and of the audit log: one for each party that causes lines.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The budgets of one limit. Parties whose hashes are equal modulo this share one, so that memory is
/// bounded whoever comes.
const BUDGETS: u64 = 16_384;

/// Allows each party some lines in a time, and all parties together another number, and counts the
/// others.
#[derive(Debug)]
pub struct LogLimit {
    lines: u32,
    of_all: u32,
    time: Duration,
    /// The hasher of parties. Its keys are secret, so that nobody can use up the budget of a chosen
    /// party.
    hasher: RandomState,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    all: Window,
    of_parties: BTreeMap<u64, Window>,
}

#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    written: u32,
    omitted: u64,
}

impl LogLimit {
    /// Allows each party `lines` lines in `time`.
    pub fn new(lines: u32, time: Duration) -> Self {
        Self {
            lines,
            of_all: u32::MAX,
            time,
            hasher: RandomState::new(),
            windows: Mutex::default(),
        }
    }

    /// The same limit, with a number of lines for all parties together.
    #[must_use]
    pub fn with_total(self, of_all: u32) -> Self {
        Self { of_all, ..self }
    }

    /// Whether `party` may cause a line now; if so, returns the number of its lines that were
    /// omitted since its last one.
    pub fn admit(&self, party: impl Hash) -> Option<u64> {
        let budget = self.hasher.hash_one(party) % BUDGETS;
        let mut windows = self.windows.lock();
        let Windows { all, of_parties } = &mut *windows;
        let own = of_parties.entry(budget).or_default();
        if own.is_full(self.lines, self.time) || all.is_full(self.of_all, self.time) {
            own.omitted += 1;
            return None;
        }
        own.written += 1;
        all.written += 1;
        Some(std::mem::take(&mut own.omitted))
    }
}

impl Window {
    /// Whether the window has no line left. A new window begins after `time`.
    fn is_full(&mut self, lines: u32, time: Duration) -> bool {
        if self.since.is_none_or(|since| since.elapsed() >= time) {
            self.since = Some(Instant::now());
            self.written = 0;
        }
        self.written >= lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn each_party_has_a_budget_and_its_other_lines_are_counted() {
        let limit = LogLimit::new(2, TIME);
        assert_eq!(
            [(); 4].map(|()| limit.admit("bad")),
            [Some(0), Some(0), None, None]
        );
        assert_eq!(limit.admit("good"), Some(0));
        tokio::time::advance(TIME).await;
        assert_eq!(
            [(); 3].map(|()| limit.admit("bad")),
            [Some(2), Some(0), None]
        );
        assert_eq!(limit.admit("good"), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn parties_without_number_share_one_budget_that_no_one_of_them_uses_up() {
        let limit = LogLimit::new(2, TIME).with_total(4);
        assert_eq!((0..9).filter_map(|_| limit.admit("bad")).count(), 2);
        assert_eq!((0..9).filter_map(|party| limit.admit(party)).count(), 2);
        tokio::time::advance(TIME).await;
        assert_eq!(limit.admit("bad"), Some(7));
    }
}
