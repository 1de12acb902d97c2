//! Limits how often a peer can cause a log line.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The usual time over which lines are counted. A constant: the metrics count each event.
const WINDOW: Duration = Duration::from_secs(10);

/// Allows some lines in ten seconds, or in another time, and counts the others.
#[derive(Debug)]
pub struct LogLimit {
    lines: u32,
    time: Duration,
    window: Mutex<Option<Window>>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    written: u32,
    omitted: u64,
}

impl LogLimit {
    /// Allows `lines` lines in ten seconds.
    pub const fn new(lines: u32) -> Self {
        Self::within(lines, WINDOW)
    }

    /// Allows `lines` lines in `time`.
    pub const fn within(lines: u32, time: Duration) -> Self {
        Self {
            lines,
            time,
            window: Mutex::new(None),
        }
    }

    /// Whether to log now; if so, returns the number of lines omitted since the last one.
    pub fn admit(&self) -> Option<u64> {
        let mut window = self.window.lock();
        let omitted = window.as_ref().map_or(0, |window| window.omitted);
        let open = window
            .take()
            .filter(|window| window.since.elapsed() < self.time);
        let open = window.insert(open.unwrap_or_else(|| Window {
            since: Instant::now(),
            written: 0,
            omitted,
        }));
        if open.written >= self.lines {
            open.omitted += 1;
            return None;
        }
        open.written += 1;
        open.omitted = 0;
        Some(omitted)
    }

    /// Whether to log now, for lines without the number of omitted ones.
    pub fn is_due(&self) -> bool {
        self.admit().is_some()
    }
}

/// Allows one line in ten seconds.
impl Default for LogLimit {
    fn default() -> Self {
        Self::new(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn some_lines_are_let_through_and_the_others_counted() {
        let limit = LogLimit::new(2);
        assert_eq!(
            [(); 4].map(|()| limit.admit()),
            [Some(0), Some(0), None, None]
        );
        tokio::time::advance(WINDOW).await;
        assert_eq!([(); 3].map(|()| limit.admit()), [Some(2), Some(0), None]);
        let one = LogLimit::default();
        assert_eq!([one.is_due(), one.is_due()], [true, false]);
    }
}
