//! Log lines about a server that cannot be reached: one at the start, about one a minute while it
//! lasts, and one at the end.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two lines. A constant: state, failures and reasons are always in the
/// API and on the page.
const INTERVAL: Duration = Duration::from_secs(60);

/// Failed attempts to connect, until one succeeds.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    failures: u64,
    /// The time of the last log line.
    said: Option<Instant>,
}

/// A log line about a failed attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Began,
    GoesOn(Extent),
}

/// The duration of an outage, and its number of failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) after: Duration,
    pub(crate) failures: u64,
}

impl Outage {
    /// Records a failed attempt. Returns no line soon after the last one, even if an attempt
    /// succeeded in between.
    pub(crate) fn record_failure(&mut self) -> Option<Line> {
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

    /// Records a success. Returns the extent of the outage, if there was one.
    pub(crate) fn record_success(&mut self) -> Option<Extent> {
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
            lines.extend(outage.record_failure());
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
            outage.record_success(),
            Some(Extent {
                after: Duration::from_secs(300),
                failures: 60
            })
        );
        assert_eq!(outage.record_success(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_comes_and_goes_is_told_once_a_minute() {
        let mut outage = Outage::default();
        let mut lines = 0;
        for _ in 0..600 {
            lines += usize::from(outage.record_failure().is_some());
            assert!(outage.record_success().is_some());
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert_eq!(lines, 5);
    }
}
