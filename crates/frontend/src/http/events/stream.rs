//! An event stream on one connection: its events, the priming event, and comments that keep the
//! connection alive.
//!
//! Source: 2025-11-25 basic/transports, Sending Messages to the Server, Resumability and
//! Redelivery; 2026-07-28 streamable-http, Receiving Messages.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::StreamSignal;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{EventBatch, EventBatchBuilder};
use crate::call::{Answer, ResponseItem, ResponseStream};
use crate::settings::FrontendSettings;
use crate::streams::{Read, StreamReader};

/// An SSE comment.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// An event stream on one connection.
pub(crate) struct EventStream {
    /// `None` after the end.
    content: Option<Content>,
    keep_alive: KeepAlive,
    /// The default delay after which a disconnected client should resume the stream.
    retry: Duration,
}

/// The times of an event stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTimes {
    /// The longest silence before a comment is sent.
    pub(crate) keep_alive: Duration,
    /// The default delay after which a disconnected client should resume the stream; a server may
    /// set another.
    pub(crate) retry: Duration,
}

/// The time after which a client that has lost its stream should resume it, if the server gives none.
const SSE_RETRY: Duration = Duration::from_secs(1);

impl From<&FrontendSettings> for StreamTimes {
    fn from(settings: &FrontendSettings) -> Self {
        Self {
            keep_alive: settings.keep_alive,
            retry: SSE_RETRY,
        }
    }
}

enum Content {
    /// Responses that end with the connection.
    Responses(Box<dyn ResponseStream<Answer>>),
    /// A session's stream.
    Reader(StreamReader),
}

impl EventStream {
    /// A stream that ends with its connection.
    pub(crate) fn from_responses(
        responses: Box<dyn ResponseStream<Answer>>,
        times: StreamTimes,
    ) -> Self {
        Self::new(Content::Responses(responses), times)
    }

    /// A session's stream.
    pub(crate) fn read(reader: StreamReader, times: StreamTimes) -> Self {
        Self::new(Content::Reader(reader), times)
    }

    fn new(content: Content, StreamTimes { keep_alive, retry }: StreamTimes) -> Self {
        Self {
            content: Some(content),
            keep_alive: KeepAlive::new(keep_alive),
            retry,
        }
    }

    /// The bytes before the first message. If the client's revision has it, this is the event with
    /// the id to resume from: "The server SHOULD immediately send an SSE event consisting of an
    /// event ID and an empty `data` field". Earlier clients would take it for a message.
    ///
    /// Otherwise, if the first message may take long (`quiet`), it is a comment, so that the client
    /// and proxies receive the head at once.
    pub(crate) fn opening(&self, quiet: bool) -> Option<Bytes> {
        let id = match &self.content {
            Some(Content::Reader(reader)) if reader.revision().pauses_streams => {
                reader.last_event_id()
            }
            _ => None,
        };
        let Some(id) = id else {
            return quiet.then_some(COMMENT);
        };
        let mut event = b"id: ".to_vec();
        id.write(|piece| event.extend_from_slice(piece));
        event.extend_from_slice(
            format!("\nretry: {}\ndata: \n\n", self.retry.as_millis()).as_bytes(),
        );
        Some(event.into())
    }

    /// The events that are ready; `None` after the end of the stream.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<EventBatch>> {
        let mut events = EventBatchBuilder::default();
        while let Some(content) = self.content.as_mut().filter(|_| !events.is_full()) {
            match content.poll_put(&mut events, self.retry, cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => self.content = None,
                Poll::Pending => {
                    if !events.is_empty() {
                        self.keep_alive.note();
                    }
                    // Always poll, so that the timer is registered.
                    if self.keep_alive.poll(cx).is_ready() {
                        events.put_text(&COMMENT);
                    }
                    return if events.is_empty() {
                        Poll::Pending
                    } else {
                        Poll::Ready(Some(events.finish()))
                    };
                }
            }
        }
        self.keep_alive.note();
        Poll::Ready((!events.is_empty()).then(|| events.finish()))
    }
}

impl Content {
    /// Adds the next event to `events`; returns whether there may be more.
    fn poll_put(
        &mut self,
        events: &mut EventBatchBuilder,
        usual_retry: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        match self {
            Self::Responses(responses) => match ready!(responses.poll_next(cx)) {
                Some(ResponseItem::Message(text)) => events.put(None, text.parts()),
                Some(ResponseItem::Response(Answer { text, ending, .. })) => {
                    events.put(None, text.parts());
                    events.end(ending);
                }
                Some(ResponseItem::Stream(_)) => {}
                None => return Poll::Ready(false),
            },
            Self::Reader(reader) => match ready!(reader.poll_next(cx)) {
                Some(ResponseItem::Message(read) | ResponseItem::Response(read)) => {
                    let Read { id, parts, ending } = read;
                    events.put(id, &parts);
                    events.end(ending);
                }
                // "it SHOULD send an SSE event with a standard retry field before closing the
                // connection"
                Some(ResponseItem::Stream(StreamSignal::Paused { retry, .. })) => {
                    events.put_text(
                        format!("retry: {}\n\n", retry.unwrap_or(usual_retry).as_millis())
                            .as_bytes(),
                    );
                    return Poll::Ready(false);
                }
                Some(ResponseItem::Stream(StreamSignal::Begun)) => {}
                None => return Poll::Ready(false),
            },
        }
        Poll::Ready(true)
    }
}

/// Decides when a silent stream needs a comment. The timer starts with the first silence and looks
/// at the last event only when it fires. So an event costs no more than a store.
#[derive(Debug)]
struct KeepAlive {
    interval: Duration,
    last: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            last: Instant::now(),
            timer: None,
        }
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

    #[tokio::test(start_paused = true)]
    async fn keep_alive_is_due_after_silence_only() {
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
