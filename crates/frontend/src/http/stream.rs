//! The events of one response, as they are written: ids, the priming event, comments that keep the
//! connection alive.
//!
//! Source: 2025-11-25 basic/transports, Sending Messages to the Server, Resumability and
//! Redelivery; 2026-07-28 streamable-http, Receiving Messages. Must not know: where events come
//! from.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, Sleep, sleep_until};

use super::events::{Events, Next};
use super::old::OldStream;
use crate::channel::OutLine;
use crate::source::{Said, Source};
use crate::streams::Place;
use crate::streams::tap::{Read, Tap, is_pausable};

/// A line that says nothing.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// When a client that has lost its connection is to come back, unless a server says.
const RETRY: Duration = Duration::from_secs(1);

/// An event stream on one connection.
#[derive(Debug)]
pub(crate) struct EventStream {
    /// `None` once it is over.
    carried: Option<Carried>,
    keep_alive: KeepAlive,
}

#[derive(Debug)]
enum Carried {
    /// One that ends with its connection.
    Plain(Source),
    /// One that its client can come back to, or that many read.
    Tapped(Tap),
    /// Everything that is said to a client of the HTTP+SSE transport.
    Old(OldStream),
}

impl EventStream {
    /// A stream that ends with its connection.
    pub(crate) fn plain(source: Source, keep_alive: Duration) -> Self {
        Self::of(Carried::Plain(source), keep_alive)
    }

    /// A stream that `tap` reads.
    pub(crate) fn tapped(tap: Tap, keep_alive: Duration) -> Self {
        Self::of(Carried::Tapped(tap), keep_alive)
    }

    /// The stream of a client of the HTTP+SSE transport.
    pub(super) fn old(stream: OldStream, keep_alive: Duration) -> Self {
        Self::of(Carried::Old(stream), keep_alive)
    }

    fn of(carried: Carried, keep_alive: Duration) -> Self {
        Self { carried: Some(carried), keep_alive: KeepAlive::new(keep_alive) }
    }

    /// What goes before the first message: the event that tells a client where to come back to, if
    /// its revision knows it ("The server SHOULD immediately send an SSE event consisting of an
    /// event ID and an empty `data` field"; earlier clients take it for a message). Else, if there
    /// is nothing to send yet (`quiet`), a comment, so that everybody on the way sees a beginning.
    pub(crate) fn opening(&self, quiet: bool) -> Option<Bytes> {
        let primed = match &self.carried {
            Some(Carried::Tapped(tap)) if is_pausable(tap.revision()) => tap.place(),
            _ => None,
        };
        match primed {
            Some(place) => Some(format!("id: {}\nretry: {}\ndata: \n\n", place.to_id(), RETRY.as_millis()).into()),
            None => quiet.then_some(COMMENT),
        }
    }

    /// What comes next, all that is there of it; `None` once it is over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Next>> {
        let mut events = Events::default();
        while let Some(carried) = self.carried.as_mut().filter(|_| !events.are_enough()) {
            match carried.poll_put(&mut events, cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => self.carried = None,
                Poll::Pending => {
                    if !events.is_empty() {
                        self.keep_alive.note();
                    }
                    // In any case, since it is what the timer wakes.
                    if self.keep_alive.poll(cx).is_ready() {
                        events.put_text(&COMMENT);
                    }
                    return if events.is_empty() { Poll::Pending } else { Poll::Ready(Some(events.finish())) };
                }
            }
        }
        self.keep_alive.note();
        Poll::Ready((!events.is_empty()).then(|| events.finish()))
    }
}

impl Carried {
    /// Puts the next event into `events`; says whether there may be more.
    fn poll_put(&mut self, events: &mut Events, cx: &mut Context<'_>) -> Poll<bool> {
        match self {
            Self::Plain(source) => match ready!(source.poll_next(cx)) {
                Some(Said::Message(text)) => events.put(None, text.parts()),
                Some(Said::Answer(text, _, ending)) => {
                    events.put(None, text.parts());
                    events.end(ending);
                }
                Some(Said::Pause(_)) => {}
                None => return Poll::Ready(false),
            },
            Self::Tapped(tap) => match ready!(tap.poll_next(cx)) {
                Some(Read::Event(place, parts, ending)) => {
                    events.put(place, &parts);
                    events.end(ending);
                }
                // "it SHOULD send an SSE event with a standard retry field before closing the
                // connection"
                Some(Read::Pause(retry)) => {
                    events.put_text(format!("retry: {}\n\n", retry.unwrap_or(RETRY).as_millis()).as_bytes());
                    return Poll::Ready(false);
                }
                None => return Poll::Ready(false),
            },
            Self::Old(stream) => match ready!(stream.poll_next(cx)) {
                Some(OutLine { text, ending }) => {
                    events.put(None, &[text]);
                    events.end(ending.map(Box::new));
                }
                None => return Poll::Ready(false),
            },
        }
        Poll::Ready(true)
    }
}

impl Place {
    /// The id of the event at this place: "globally unique across all streams within that session",
    /// with "sufficient information to identify the originating stream".
    pub(crate) fn to_id(self) -> String {
        let kind = if self.outside { "get" } else { "post" };
        format!("{kind}{}-{}", self.stream, self.position)
    }

    /// Appends the line that gives an event this id.
    pub(super) fn put_id(self, out: &mut BytesMut) {
        let (mut stream, mut position) = (itoa::Buffer::new(), itoa::Buffer::new());
        let kind = if self.outside { "get" } else { "post" };
        for text in ["id: ", kind, stream.format(self.stream), "-", position.format(self.position), "\n"] {
            out.extend_from_slice(text.as_bytes());
        }
    }

    /// The place that `id` names, if it is one of these.
    pub(crate) fn from_id(id: &str) -> Option<Self> {
        let (outside, rest) = match id.strip_prefix("get") {
            Some(rest) => (true, rest),
            None => (false, id.strip_prefix("post")?),
        };
        let (stream, position) = rest.split_once('-')?;
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        Some(Self { outside, stream: number(stream)?, position: number(position)? })
    }
}

/// When a silent stream needs a sign of life. The timer is set once the stream is silent for the
/// first time, and looks at what has been sent since only when it fires: an event costs a store.
#[derive(Debug)]
struct KeepAlive {
    interval: Duration,
    last: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    fn new(interval: Duration) -> Self {
        Self { interval, last: Instant::now(), timer: None }
    }

    fn note(&mut self) {
        self.last = Instant::now();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let due = self.last + self.interval;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.last + self.interval <= now {
                self.last = now;
                timer.as_mut().reset(now + self.interval);
                return Poll::Ready(());
            }
            timer.as_mut().reset(self.last + self.interval);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn ids_name_their_place() {
        for (outside, id) in [(true, "get3-17"), (false, "post3-17")] {
            let place = Place { outside, stream: 3, position: 17 };
            assert_eq!((place.to_id().as_str(), Place::from_id(id)), (id, Some(place)));
            let mut line = BytesMut::new();
            place.put_id(&mut line);
            assert_eq!(line, format!("id: {id}\n"));
        }
        for id in ["", "get", "get3", "get3-", "get-3", "get3-+1", "put3-1", "get3-1-1", "post99999999999999999999-1"] {
            assert_eq!(Place::from_id(id), None, "{id}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_shows_that_it_lives_and_no_other() {
        let interval = Duration::from_secs(25);
        let mut keep_alive = KeepAlive::new(interval);
        let start = Instant::now();
        poll_fn(|cx| keep_alive.poll(cx)).await;
        assert_eq!(start.elapsed(), interval);
        tokio::time::advance(interval / 2).await;
        keep_alive.note();
        poll_fn(|cx| keep_alive.poll(cx)).await;
        assert_eq!(start.elapsed(), interval * 5 / 2);
    }
}
