//! The events of one response, as they are written: ids, the priming event, comments that keep the
//! connection alive.
//!
//! Source: 2025-11-25 basic/transports, Sending Messages to the Server, Resumability and
//! Redelivery; 2026-07-28 streamable-http, Receiving Messages. Must not know: where events come
//! from.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::json::Chunks;
use smallvec::smallvec;
use tokio::time::{Instant, Sleep, sleep_until};

use super::old::OldStream;
use super::reply::{self, Pieces};
use crate::channel::OutLine;
use crate::source::{Said, Source};
use crate::streams::Place;
use crate::streams::tap::{Read, Tap, is_pausable};
use crate::trace::Ending;

/// A line that says nothing.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// When a client that has lost its connection is to come back, unless a server says.
const RETRY: Duration = Duration::from_secs(1);

/// The pieces of what comes next, and the end of a span if it is an answer.
pub(crate) type Next = (Pieces, Option<Box<Ending>>);

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
        Self { carried: Some(Carried::Plain(source)), keep_alive: KeepAlive::new(keep_alive) }
    }

    /// A stream that `tap` reads.
    pub(crate) fn tapped(tap: Tap, keep_alive: Duration) -> Self {
        Self { carried: Some(Carried::Tapped(tap)), keep_alive: KeepAlive::new(keep_alive) }
    }

    /// The stream of a client of the HTTP+SSE transport.
    pub(super) fn old(stream: OldStream, keep_alive: Duration) -> Self {
        Self { carried: Some(Carried::Old(stream)), keep_alive: KeepAlive::new(keep_alive) }
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

    /// The pieces of what comes next; `None` once it is over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Next>> {
        let pieces = loop {
            let Some(carried) = &mut self.carried else { return Poll::Ready(None) };
            let next = match carried {
                Carried::Plain(source) => match source.poll_next(cx) {
                    Poll::Ready(Some(Said::Message(text))) => Poll::Ready(Some((event(None, text), None))),
                    Poll::Ready(Some(Said::Answer(text, _, ending))) => Poll::Ready(Some((event(None, text), ending))),
                    Poll::Ready(Some(Said::Pause(_))) => continue,
                    Poll::Ready(None) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                },
                Carried::Tapped(tap) => match tap.poll_next(cx) {
                    Poll::Ready(Some(Read::Event(place, parts, ending))) => {
                        let mut text = Chunks::default();
                        parts.iter().for_each(|part| text.push(part.clone()));
                        Poll::Ready(Some((event(place, text), ending)))
                    }
                    // "it SHOULD send an SSE event with a standard retry field before closing the
                    // connection"
                    Poll::Ready(Some(Read::Pause(retry))) => {
                        self.carried = None;
                        let millis = retry.unwrap_or(RETRY).as_millis();
                        Poll::Ready(Some((smallvec![format!("retry: {millis}\n\n").into()], None)))
                    }
                    Poll::Ready(None) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                },
                Carried::Old(stream) => stream.poll_next(cx).map(|line| {
                    line.map(|OutLine { text, ending }| {
                        let mut chunks = Chunks::default();
                        chunks.push(text);
                        (event(None, chunks), ending.map(Box::new))
                    })
                }),
            };
            break next;
        };
        match pieces {
            Poll::Ready(Some(pieces)) => {
                self.keep_alive.note();
                Poll::Ready(Some(pieces))
            }
            Poll::Ready(None) => {
                self.carried = None;
                Poll::Ready(None)
            }
            Poll::Pending => self.keep_alive.poll(cx).map(|()| Some((smallvec![COMMENT], None))),
        }
    }
}

/// The pieces of the event that carries `text`.
fn event(place: Option<Place>, text: Chunks) -> Pieces {
    let mut pieces = reply::event(text);
    if let Some(place) = place {
        let id = format!("id: {}\n", place.to_id());
        match pieces.as_mut_slice() {
            [one] => *one = [id.as_bytes(), one].concat().into(),
            _ => pieces.insert(0, id.into()),
        }
    }
    pieces
}

impl Place {
    /// The id of the event at this place: "globally unique across all streams within that session",
    /// with "sufficient information to identify the originating stream".
    pub(crate) fn to_id(self) -> String {
        let kind = if self.outside { "get" } else { "post" };
        format!("{kind}{}-{}", self.stream, self.position)
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
