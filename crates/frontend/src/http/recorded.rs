//! The place of a client's messages in a recording.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fanlight_telemetry::recording::{Captured, Framing, Tap};

use crate::session::Session;

/// The places of a request's messages in a recording.
#[derive(Debug, Default)]
pub(crate) struct RecordedRequest {
    /// The number of the exchange; 0 if nothing records it.
    pub(crate) exchange: u64,
    pub(super) place: OnceLock<Place>,
}

/// The connection of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) connection: u64,
    pub(crate) session: Option<u64>,
    pub(crate) revision: Option<&'static str>,
    pub(crate) is_sse: bool,
}

impl RecordedRequest {
    /// Notes the session of the request, for a recording.
    pub(super) fn note_session(&self, connection: u64, session: &Session) {
        let _ = self.place.set(Place {
            connection,
            session: Some(session.key().0),
            revision: Some(session.revision().name),
            is_sse: false,
        });
    }

    /// Notes that the request belongs to the session of the deprecated transport with this number.
    pub(super) fn note_channel(&self, number: u64) {
        let _ = self.place.set(Place {
            connection: number,
            is_sse: true,
            ..Place::default()
        });
    }

    /// The place of the messages; of the connection with this number, unless they belong to a session.
    pub(super) fn place(&self, connection: u64) -> Place {
        self.place.get().copied().unwrap_or(Place {
            connection,
            ..Place::default()
        })
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
        self.tap.capture(|| {
            let mut message = self.message.clone();
            if message.exchange == 0 {
                // The stream is older than the recording.
                message.exchange = message.connection;
            }
            message.text = pieces.to_vec();
            message
        });
    }
}
