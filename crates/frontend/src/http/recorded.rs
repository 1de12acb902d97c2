//! Gives the messages of HTTP clients to a recording.

use std::sync::Arc;
use std::sync::OnceLock;

use bytes::Bytes;
use fanlight_canonical::Endpoint;
use fanlight_telemetry::recording::{Captured, Framing, Party, Tap, To};
use http::{HeaderMap, Response};

use super::arrived::Arrived;
use super::reply::ReplyBody;
use crate::ingress::Origin;
use crate::session::Session;
use crate::settings::FrontendSettings;

/// The places of a request's messages in a recording.
#[derive(Debug, Default)]
pub(crate) struct RecordedRequest {
    /// The number of the exchange; 0 if nothing records it.
    pub(crate) exchange: u64,
    pub(super) place: OnceLock<Place>,
}

/// The connection of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    connection: u64,
    session: Option<u64>,
    revision: Option<&'static str>,
    is_sse: bool,
}

impl Arrived<'_> {
    /// Notes the session of the request, for a recording.
    pub(super) fn note_session(&self, session: &Session) {
        let _ = self.recorded.place.set(Place {
            connection: self.connection.number,
            session: Some(session.key().0),
            revision: Some(session.revision().name),
            is_sse: false,
        });
    }

    /// Notes that the request belongs to the session of the deprecated transport with this number.
    pub(super) fn note_channel(&self, number: u64) {
        let _ = self.recorded.place.set(Place {
            connection: number,
            is_sse: true,
            ..Place::default()
        });
    }

    /// Gives the body to the recording.
    pub(super) fn record(&self, settings: &FrontendSettings, origin: &Origin<'_>, text: &Bytes) {
        let tap = settings.telemetry.tap();
        let Some(tap) = tap else { return };
        tap.capture(Captured {
            to: To::Server,
            method: Some("POST"),
            headers: texts_of(&self.head.headers),
            ..self.captured(origin.holder.endpoint(), vec![text.clone()])
        });
    }

    /// Gives the response to the recording, if there is one. An event stream goes on doing so.
    pub(super) fn record_reply(
        &self,
        settings: &FrontendSettings,
        origin: &Origin<'_>,
        response: &mut Response<ReplyBody>,
    ) {
        let Some(tap) = settings.telemetry.tap() else {
            return;
        };
        let exchange = self.recorded.exchange;
        let endpoint = origin.holder.endpoint();
        let message = Captured {
            status: Some(response.status().as_u16()),
            headers: match exchange {
                0 => Vec::new(),
                _ => texts_of(response.headers()),
            },
            ..self.captured(endpoint, Vec::new())
        };
        response.body_mut().record(tap, message);
    }

    fn captured(&self, endpoint: &Endpoint, text: Vec<Bytes>) -> Captured {
        let number = self.connection.number;
        let place = self.recorded.place.get().copied().unwrap_or(Place {
            connection: number,
            ..Place::default()
        });
        Captured {
            peer: Party::Client {
                endpoint: endpoint.full_path().into(),
            },
            connection: place.connection,
            session: place.session,
            exchange: self.recorded.exchange,
            to: To::Client,
            kind: Framing::Body,
            transport: if place.is_sse { "sse" } else { "http" },
            revision: place.revision.or_else(|| {
                let named = super::mcp::protocol_version(&self.fields)?;
                Some(crate::eras::revision(named)?.name)
            }),
            method: None,
            status: None,
            headers: Vec::new(),
            text,
            cause: 0,
        }
    }
}

/// An event stream to a client, which a recording gets.
#[derive(Debug)]
pub(super) struct RecordedStream {
    tap: Arc<Tap>,
    /// The facts of each message.
    message: Captured,
}

impl RecordedStream {
    pub(super) fn new(tap: &Arc<Tap>, message: Captured) -> Self {
        let tap = Arc::clone(tap);
        Self {
            tap,
            message: Captured {
                kind: Framing::Event,
                ..message
            },
        }
    }

    /// Gives events to the recording, if there is one.
    #[inline]
    pub(super) fn record(&self, pieces: &[Bytes]) {
        if !self.tap.is_on() {
            return;
        }
        let mut message = self.message.clone();
        if message.exchange == 0 {
            // The stream is older than the recording.
            message.exchange = message.connection;
        }
        message.text = pieces.to_vec();
        self.tap.capture(message);
    }
}

/// All headers of a message.
fn texts_of(headers: &HeaderMap) -> Vec<(Box<str>, Bytes)> {
    let all = headers.iter();
    all.map(|(name, value)| {
        (
            name.as_str().into(),
            Bytes::copy_from_slice(value.as_bytes()),
        )
    })
    .collect()
}
