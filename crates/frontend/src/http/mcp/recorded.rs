//! Gives the messages of HTTP clients to a recording.

use bytes::Bytes;
use fanlight_http::header_texts;
use fanlight_telemetry::recording::{Captured, Framing, Party, To};
use http::Response;

use super::arrived::Arrived;
use super::headers::protocol_version;
use crate::http::reply::ReplyBody;

impl Arrived<'_> {
    /// Gives the body to the recording.
    pub(super) fn record(&self, text: &Bytes) {
        let Some(tap) = self.endpoint.settings.telemetry.tap() else {
            return;
        };
        tap.capture(|| Captured {
            to: To::Server,
            method: Some("POST"),
            headers: header_texts(&self.head.headers),
            ..self.captured(text.clone())
        });
    }

    /// Gives the response to the recording, if there is one. An event stream goes on doing so.
    pub(super) fn record_reply(&self, response: &mut Response<ReplyBody>) {
        let Some(tap) = self.endpoint.settings.telemetry.tap() else {
            return;
        };
        let exchange = self.recorded.exchange;
        let message = Captured {
            status: Some(response.status().as_u16()),
            headers: match exchange {
                0 => Vec::new(),
                _ => header_texts(response.headers()),
            },
            ..self.captured(Bytes::new())
        };
        response.body_mut().record(tap, message);
    }

    fn captured(&self, text: Bytes) -> Captured {
        let place = self.recorded.place(self.connection.number);
        let endpoint = self.origin.holder.endpoint().full_path().into();
        Captured {
            session: place.session,
            exchange: self.recorded.exchange,
            kind: Framing::Body,
            transport: if place.is_sse { "sse" } else { "http" },
            revision: place.revision.or_else(|| {
                let named = protocol_version(&self.fields)?;
                Some(crate::eras::revision(named)?.name)
            }),
            ..Captured::line(Party::Client { endpoint }, place.connection, text)
        }
    }
}
