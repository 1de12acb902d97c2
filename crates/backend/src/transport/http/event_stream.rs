//! An event stream that is read to its end, and resumed if it breaks off (2025-11-25
//! basic/transports, Resumability and Redelivery).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::sse::{self, Event, EventDecoder};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::recording::{Captured, Framing};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use tokio::task::consume_budget;

use super::HttpTransport;
use super::answer::{is_events, retry_after};
use super::client::{HttpError, HttpResponse};
use crate::memory::Arriving;
use crate::request::TransportContext;
use crate::settings::RetryDelays;
use crate::transport::recorded::RecordedExchange;
use fanlight_canonical::BackendError;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A stream that is being read.
pub(super) struct EventStream {
    pub(crate) http: HttpResponse,
    events: EventDecoder,
    arriving: Arriving,
    limit: usize,
    context: Arc<TransportContext>,
    pub(super) received: bool,
    /// `http`, or `sse` for the deprecated transport.
    pub(super) transport: &'static str,
}

/// The position from which a stream can be resumed.
#[derive(Clone, Default)]
pub(super) struct Position {
    /// The id of the last complete event, if the server assigns ids.
    pub(super) last_event: Option<HeaderValue>,
    /// The delay that the server asked for.
    pub(super) retry: Option<Duration>,
}

/// The outcome of requesting a stream.
pub(super) enum Opened {
    Stream(Box<EventStream>),
    Refused {
        status: u16,
        /// The pause that the server asks for.
        pause: Option<Duration>,
    },
}

/// Whether an event has a message. One without data only primes a resumable stream (2025-11-25
/// basic/transports).
pub(super) fn is_message(event: &Event) -> bool {
    (event.name.is_empty() || event.name == "message") && !event.data.is_empty()
}

impl EventStream {
    pub(super) fn new(mut http: HttpResponse, context: &Arc<TransportContext>) -> Self {
        // The headers would keep the head's buffer in memory as long as the stream lasts.
        http.headers = HeaderMap::new();
        let limit = context.limits.message_bytes;
        let arriving = Arriving::messages(&context.memory);
        Self {
            http,
            events: EventDecoder::new(limit),
            arriving,
            limit,
            context: Arc::clone(context),
            received: false,
            transport: "http",
        }
    }

    /// The next event that has already arrived. Waits if the server's messages take up its memory;
    /// the server then has to wait, too.
    pub(super) async fn next_event(&mut self) -> Result<Option<Event>, BackendError> {
        let next = self
            .events
            .next_event()
            .map_err(|_| BackendError::ResponseTooLarge { limit: self.limit })?;
        let Some(mut event) = next else {
            self.arriving.cover(self.events.buffered()).await?;
            return Ok(None);
        };
        event.data = self.arriving.hold(event.data).await?;
        self.record(&event);
        Ok(Some(event))
    }

    /// Gives a message to the recording, if there is one.
    fn record(&self, event: &Event) {
        if !is_message(event) {
            return;
        }
        let RecordedExchange {
            number,
            cause,
            revision,
        } = self.http.recorded;
        self.context.record(&event.data, |message| Captured {
            // A stream that is older than the recording has no number.
            exchange: if number == 0 {
                message.exchange
            } else {
                number
            },
            kind: Framing::Event,
            transport: self.transport,
            revision,
            status: Some(self.http.status.as_u16()),
            cause,
            ..message
        });
    }

    /// Waits for more data; returns whether there was any. Call it once there are no further
    /// events. Cancel safe.
    pub(super) async fn read_more(&mut self) -> Result<bool, HttpError> {
        // One read of the socket may bring many chunks, and a busy server always another read.
        consume_budget().await;
        let Some(chunk) = self.http.chunk().await? else {
            return Ok(false);
        };
        let counters = self.context.telemetry.metrics();
        counters.io(Direction::Receive, chunk.len() as u64);
        self.received |= !chunk.is_empty();
        self.events.push(&chunk);
        Ok(true)
    }

    /// Moves a position to the stream's current one. The server's delay is kept within `bounds`.
    pub(super) fn advance(&self, position: &mut Position, bounds: RetryDelays) {
        if let Some(id) = self.events.last_event_id() {
            position.last_event = HeaderValue::from_bytes(id).ok();
        }
        if let Some(millis) = self.events.retry_millis() {
            position.retry = Some(
                Duration::from_millis(millis)
                    .min(bounds.longest)
                    .max(bounds.shortest),
            );
        }
    }
}

impl HttpTransport {
    /// Requests a stream by GET: messages outside of calls, or the rest of a stream that broke off.
    pub(super) async fn get(
        &self,
        last_event: Option<&HeaderValue>,
    ) -> Result<Opened, BackendError> {
        let get = || {
            let mut headers = self.headers.message_headers();
            headers.remove(header::CONTENT_TYPE);
            headers.insert(header::ACCEPT, HeaderValue::from_static(sse::CONTENT_TYPE));
            if let Some(id) = last_event {
                let _ = headers.try_insert(LAST_EVENT_ID, id.clone());
            }
            self.endpoint.execute_at(
                &self.target(),
                http::Method::GET,
                headers,
                Bytes::new(),
                true,
            )
        };
        let http = self.send_followed(get).await?;
        let status = http.status;
        if status.is_success() && is_events(&http) {
            return Ok(Opened::Stream(Box::new(EventStream::new(
                http,
                &self.context,
            ))));
        }
        // A successful response that is not a stream cannot be read.
        Ok(Opened::Refused {
            pause: retry_after(&http),
            status: if status.is_success() {
                405
            } else {
                status.as_u16()
            },
        })
    }
}
