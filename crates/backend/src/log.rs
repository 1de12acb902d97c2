//! What keeps the text of a peer from harming the log: cleaned excerpts, and a bounded rate of warnings.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fanlight_protocol::visible::escaped;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one warning through per interval and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    suppressed: u64,
}

impl Throttle {
    /// Whether to warn now, and if so how many were suppressed since the last.
    pub(crate) fn admit(&self) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *window {
            Some(open) if open.since.elapsed() < INTERVAL => {
                open.suppressed += 1;
                None
            }
            other => {
                let suppressed = other.as_ref().map_or(0, |closed| closed.suppressed);
                *other = Some(Window { since: Instant::now(), suppressed: 0 });
                Some(suppressed)
            }
        }
    }
}

/// The first `limit` characters of `text`, with escapes for those that cannot be seen.
pub(crate) fn excerpt(text: &[u8], limit: usize) -> String {
    // A character has at most four bytes: the rest need not be decoded.
    let head = text.get(..limit.saturating_mul(4).min(text.len())).unwrap_or_default();
    let decoded = String::from_utf8_lossy(head);
    let mut shown: String = decoded.chars().map(|c| if c == '\t' { ' ' } else { c }).take(limit).collect();
    if head.len() < text.len() || decoded.chars().nth(limit).is_some() {
        shown.push('…');
    }
    escaped(&shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_short_and_visible() {
        assert_eq!(excerpt(b"plain", 10), "plain");
        assert_eq!(excerpt("ééééé".as_bytes(), 3), "ééé…");
        assert_eq!(excerpt(b"a\x1b[2J\xff\tb", 10), "a\\u001b[2J\u{fffd} b");
        assert_eq!(excerpt(&vec![b'x'; 1 << 20], 4), "xxxx…");
    }

    #[tokio::test(start_paused = true)]
    async fn admits_one_per_interval_and_counts_the_rest() {
        let throttle = Throttle::default();
        assert_eq!([throttle.admit(), throttle.admit(), throttle.admit()], [Some(0), None, None]);
        tokio::time::advance(INTERVAL).await;
        assert_eq!([throttle.admit(), throttle.admit()], [Some(2), None]);
    }
}
