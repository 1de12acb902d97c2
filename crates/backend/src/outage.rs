//! What the log says of a server that cannot be connected to: that it began, about once a minute that it goes on, and
//! that it has ended.

use std::time::Duration;

use tokio::time::Instant;

/// The least time between two lines. No option: state, failures and reasons are always in the API and on the page.
const INTERVAL: Duration = Duration::from_secs(60);

/// Attempts to connect that fail, until one succeeds.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    failures: u64,
    /// When it was mentioned last.
    said: Option<Instant>,
}

/// What is to be said of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Began,
    GoesOn(Extent),
}

/// How long an outage has lasted, and how many attempts have failed in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) after: Duration,
    pub(crate) failures: u64,
}

impl Outage {
    /// An attempt has failed. `None` if that need not be said: it was not long ago, or just before a short success.
    pub(crate) fn failed(&mut self) -> Option<Line> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.failures += 1;
        if self
            .said
            .is_some_and(|said| now.duration_since(said) < INTERVAL)
        {
            return None;
        }
        self.said = Some(now);
        Some(match self.failures {
            1 => Line::Began,
            failures => Line::GoesOn(Extent {
                after: now.duration_since(since),
                failures,
            }),
        })
    }

    /// An attempt has succeeded. Returns what there was until now.
    pub(crate) fn ended(&mut self) -> Option<Extent> {
        let extent = Extent {
            after: self.since.take()?.elapsed(),
            failures: self.failures,
        };
        self.failures = 0;
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn outage_is_told_when_it_begins_once_a_minute_and_when_it_ends() {
        let mut outage = Outage::default();
        let mut lines = Vec::new();
        for _ in 0..60 {
            lines.extend(outage.failed());
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        let goes_on = |minutes: u64| {
            Line::GoesOn(Extent {
                after: Duration::from_secs(60 * minutes),
                failures: 12 * minutes + 1,
            })
        };
        assert_eq!(
            lines,
            [Line::Began, goes_on(1), goes_on(2), goes_on(3), goes_on(4)]
        );
        assert_eq!(
            outage.ended(),
            Some(Extent {
                after: Duration::from_secs(300),
                failures: 60
            })
        );
        assert_eq!(outage.ended(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_comes_and_goes_is_told_once_a_minute() {
        let mut outage = Outage::default();
        let mut lines = 0;
        for _ in 0..600 {
            lines += usize::from(outage.failed().is_some());
            assert!(outage.ended().is_some());
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert_eq!(lines, 5);
    }
}
