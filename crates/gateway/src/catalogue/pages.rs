//! The pages of one snapshot as ready answers: a list that has not changed is not written anew for
//! each client.
//!
//! Must not know: what is listed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fanlight_protocol::{Json, Response};

/// Pages kept at most. One for each place where a page begins, which are few unless clients page
/// with the cursors of many earlier states.
const KEPT: usize = 64;

/// The answers made of one snapshot so far.
#[derive(Debug, Default)]
pub(super) struct Pages(Mutex<HashMap<usize, Page>>);

#[derive(Debug)]
struct Page {
    end: usize,
    ttl_left: Duration,
    answer: Response,
}

impl Pages {
    /// The answer with the entries from `start` to `end`, by `write` unless it is kept.
    pub(super) fn kept_or(
        &self,
        start: usize,
        end: usize,
        ttl_left: Duration,
        write: impl FnOnce() -> Json,
    ) -> Response {
        let kept = |pages: &HashMap<usize, Page>| {
            let page = pages.get(&start).filter(|page| page.end == end && page.ttl_left == ttl_left)?;
            Some(page.answer.clone())
        };
        if let Some(answer) = kept(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return answer;
        }
        // Written without holding others up: two may write the same page.
        let answer = Response::from_result(&write()).cached();
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= KEPT && !pages.contains_key(&start) {
            pages.clear();
        }
        pages.insert(start, Page { end, ttl_left, answer: answer.clone() });
        answer
    }
}

/// What clients are told of the time that is left: whole seconds of a longer time, so that answers
/// stay the same for a while. Never more than is left.
pub(super) fn told(left: Duration) -> Duration {
    const LONG: Duration = Duration::from_secs(10);
    if left < LONG {
        Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(left.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_page_is_written_once_for_as_long_as_it_says_the_same() {
        let pages = Pages::default();
        let written = Cell::new(0);
        let page = |start, left| {
            let write = || {
                written.set(written.get() + 1);
                Json::string(&format!("{start} {left:?}"))
            };
            pages.kept_or(start, start + 5, told(left), write).body().as_text().to_owned()
        };
        let second = Duration::from_secs(1);
        assert_eq!(page(0, 60 * second), page(0, 60 * second + second / 3));
        assert_eq!(written.get(), 1);
        assert_ne!(page(0, 60 * second), page(0, 59 * second));
        assert_eq!(page(5, 59 * second), "\"5 59s\"");
        assert_eq!(written.get(), 3);
        (0..10 * KEPT).for_each(|start| drop(page(start, second)));
        assert!(pages.0.lock().unwrap().len() <= KEPT);
    }

    #[test]
    fn short_times_are_told_to_the_millisecond() {
        assert_eq!(told(Duration::from_micros(1500)), Duration::from_millis(1));
        assert_eq!(told(Duration::from_millis(9999)), Duration::from_millis(9999));
        assert_eq!(told(Duration::from_millis(10_999)), Duration::from_secs(10));
    }
}
