//! The latest events of a session's streams, kept so that a client can resume a stream after the
//! last event it received.
//!
//! Number and size are limited per session, and the size over all sessions. The oldest events go
//! first, on whichever stream. A session without events costs nothing.
//!
//! Source: 2025-11-25 basic/transports, Resumability and Redelivery.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fanlight_protocol::json::Chunks;

/// The size in bytes up to which kept events are copied. A slice would keep its whole message in
/// memory.
const COPIED: usize = 8 << 10;

/// The text of an event in pieces.
pub(crate) type Event = Arc<[Bytes]>;

/// Limits of the kept events.
#[derive(Debug)]
pub(super) struct ReplayLimits {
    /// Events per session.
    pub(crate) events: usize,
    /// Bytes per session.
    pub(crate) bytes: usize,
    /// Bytes of all sessions.
    total: usize,
    used: AtomicUsize,
}

impl ReplayLimits {
    /// Limits without any use so far.
    pub(crate) fn new(events: usize, bytes: usize, total: usize) -> Arc<Self> {
        Arc::new(Self {
            events,
            bytes,
            total,
            used: AtomicUsize::new(0),
        })
    }
}

/// The events of one session. Calls happen under a lock, so nothing here may wait. Positions on a stream begin at 1 and have no gaps.
#[derive(Debug, Default)]
pub(super) struct Replay {
    streams: BTreeMap<u64, KeptEvents>,
    /// The streams of the kept events, oldest event first.
    order: VecDeque<u64>,
    bytes: usize,
    limits: Option<Arc<ReplayLimits>>,
}

#[derive(Debug)]
struct KeptEvents {
    events: VecDeque<Event>,
    /// The position of the first kept event, or of the next event if none is kept.
    first: u64,
}

impl KeptEvents {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl Replay {
    /// Adds the next event of `stream`; returns its position. An event above the session's size
    /// limit is kept only if no reader has read it (`is_read`): the client may resume the stream
    /// for exactly this answer.
    pub(super) fn append(
        &mut self,
        stream: u64,
        event: Event,
        is_read: bool,
        limits: &Arc<ReplayLimits>,
    ) -> u64 {
        let size = size(&event);
        let kept = self.streams.entry(stream).or_insert(KeptEvents {
            events: VecDeque::new(),
            first: 1,
        });
        let position = kept.next();
        if is_read && size > limits.bytes {
            self.skip(stream);
            return position;
        }
        kept.events.push_back(event);
        self.order.push_back(stream);
        self.bytes += size;
        limits.used.fetch_add(size, Ordering::Relaxed);
        self.limits.get_or_insert_with(|| Arc::clone(limits));
        // The newest event stays even if it alone exceeds the session's size limit.
        while self.order.len() > limits.events
            || (self.bytes > limits.bytes && self.order.len() > 1)
        {
            self.evict();
        }
        while limits.used.load(Ordering::Relaxed) > limits.total && !self.order.is_empty() {
            self.evict();
        }
        position
    }

    /// The position of the next event of `stream`.
    pub(super) fn next(&self, stream: u64) -> u64 {
        self.streams.get(&stream).map_or(1, KeptEvents::next)
    }

    /// The event at `position` of `stream`, if it is still there.
    pub(super) fn get(&self, stream: u64, position: u64) -> Option<Event> {
        let kept = self.streams.get(&stream)?;
        let at = usize::try_from(position.checked_sub(kept.first)?).ok()?;
        kept.events.get(at).cloned()
    }

    /// Whether every event after `position` on `stream` is kept. Position 0 is before the first.
    pub(super) fn has_all_after(&self, stream: u64, position: u64) -> bool {
        match self.streams.get(&stream) {
            Some(kept) => position < kept.next() && position + 1 >= kept.first,
            None => position == 0,
        }
    }

    /// Removes the events of `stream`.
    pub(super) fn forget(&mut self, stream: u64) {
        if let Some(kept) = self.streams.remove(&stream) {
            self.order.retain(|owner| *owner != stream);
            self.release(kept.events.iter().map(size).sum());
        }
    }
}

impl Replay {
    /// Drops all events of `stream`, and skips its next event.
    fn skip(&mut self, stream: u64) {
        let next = self.next(stream) + 1;
        self.forget(stream);
        self.streams.insert(
            stream,
            KeptEvents {
                events: VecDeque::new(),
                first: next,
            },
        );
    }

    fn evict(&mut self) {
        let Some(stream) = self.order.pop_front() else {
            return;
        };
        let Some(kept) = self.streams.get_mut(&stream) else {
            return;
        };
        if let Some(event) = kept.events.pop_front() {
            kept.first += 1;
            self.release(size(&event));
        }
    }

    fn release(&mut self, size: usize) {
        self.bytes -= size;
        if let Some(limits) = &self.limits {
            limits.used.fetch_sub(size, Ordering::Relaxed);
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let left = self.bytes;
        self.release(left);
    }
}

/// Converts a message to its kept form.
pub(super) fn to_event(text: Chunks) -> Event {
    if text.len() > COPIED {
        return text.into_parts().collect();
    }
    match text.parts() {
        [one] => [Bytes::copy_from_slice(one)].into(),
        // Joining the pieces copies them.
        _ => [text.into_bytes()].into(),
    }
}

fn size(event: &Event) -> usize {
    event.iter().map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(text: &str) -> Event {
        [Bytes::copy_from_slice(text.as_bytes())].into()
    }

    /// The events after `position` on `stream`.
    fn after(replay: &Replay, stream: u64, position: u64) -> Vec<String> {
        let positions = position + 1..replay.next(stream);
        let text = |at| String::from_utf8(replay.get(stream, at).unwrap().concat()).unwrap();
        positions.map(text).collect()
    }

    #[test]
    fn oldest_event_is_dropped_first_on_any_stream() {
        let limits = ReplayLimits::new(3, 1000, 1000);
        let mut replay = Replay::default();
        for (stream, text, position) in [
            (1, "a", 1),
            (2, "b", 1),
            (1, "c", 2),
            (2, "d", 2),
            (1, "e", 3),
        ] {
            assert_eq!(replay.append(stream, event(text), true, &limits), position);
        }
        assert_eq!(
            (after(&replay, 1, 1), after(&replay, 2, 1)),
            (vec!["c".into(), "e".into()], vec!["d".into()])
        );
        assert!(!replay.has_all_after(1, 0) && !replay.has_all_after(2, 0));
        assert!(
            replay.has_all_after(2, 2)
                && !replay.has_all_after(2, 3)
                && !replay.has_all_after(3, 1)
        );
        assert!(!replay.has_all_after(2, u64::MAX));
        replay.forget(1);
        assert_eq!(
            (replay.order.len(), replay.bytes, replay.next(1)),
            (1, 1, 1)
        );
    }

    #[test]
    fn replay_size_is_bounded_per_session_and_in_total() {
        let limits = ReplayLimits::new(100, 10, 25);
        let (mut one, mut other) = (Replay::default(), Replay::default());
        for text in ["1234", "5678", "90ab"] {
            one.append(1, event(text), true, &limits);
        }
        assert_eq!(after(&one, 1, 1), ["5678", "90ab"]);
        // Larger than all: not kept after it was read; otherwise kept alone.
        one.append(1, event("0123456789ab"), true, &limits);
        assert!(one.has_all_after(1, 4) && !one.has_all_after(1, 3));
        assert_eq!(
            (
                one.bytes,
                one.append(1, event("0123456789ab"), false, &limits)
            ),
            (0, 5)
        );
        assert_eq!(after(&one, 1, 4), ["0123456789ab"]);
        other.append(1, event("0123456789abcd"), false, &limits);
        assert_eq!((other.bytes, limits.used.load(Ordering::Relaxed)), (0, 12));
        drop(one);
        assert_eq!(limits.used.load(Ordering::Relaxed), 0);
    }

    proptest! {
        /// A stream may be cut anywhere: received and replayed events make up the whole, each once.
        #[test]
        fn received_and_replayed_events_make_up_the_whole(
            said in proptest::collection::vec((1..4u64, "[a-z]{0,9}"), 0..60),
            cut in 0..60usize,
            events in 1..40usize,
        ) {
            let limits = ReplayLimits::new(events, 100, 1000);
            let mut replay = Replay::default();
            let mut whole: BTreeMap<u64, Vec<String>> = BTreeMap::new();
            for (stream, text) in &said {
                let position = replay.append(*stream, event(text), true, &limits);
                let stream = whole.entry(*stream).or_default();
                stream.push(text.clone());
                prop_assert_eq!(position, stream.len() as u64);
            }
            prop_assert!(replay.order.len() <= events && replay.bytes <= 100);
            for (stream, whole) in &whole {
                let cut = cut % (whole.len() + 1);
                if replay.has_all_after(*stream, cut as u64) && cut < whole.len() {
                    let healed = [&whole[..cut], &after(&replay, *stream, cut as u64)].concat();
                    prop_assert_eq!(&healed, whole);
                } else {
                    // A refusal means that the very next event is gone, or nothing follows.
                    prop_assert!(cut == whole.len() || replay.get(*stream, cut as u64 + 1).is_none());
                }
            }
            drop(replay);
            prop_assert_eq!(limits.used.load(Ordering::Relaxed), 0);
        }
    }
}
