//! Gives the messages of HTTP clients to a recording.

use bytes::Bytes;
use fanlight_canonical::Endpoint;
use fanlight_http::header_texts;
use fanlight_telemetry::recording::{Captured, Framing, Party, To};
use http::Response;

use super::super::arrived::Arrived;
use super::super::reply::ReplyBody;
use super::headers::protocol_version;
use crate::ingress::Origin;
use crate::settings::FrontendSettings;

impl Arrived<'_> {
    /// Gives the body to the recording.
    pub(in crate::http) fn record(
        &self,
        settings: &FrontendSettings,
        origin: &Origin<'_>,
        text: &Bytes,
    ) {
        let tap = settings.telemetry.tap();
        let Some(tap) = tap else { return };
        tap.capture(|| Captured {
            to: To::Server,
            method: Some("POST"),
            headers: header_texts(&self.head.headers),
            ..self.captured(origin.holder.endpoint(), text.clone())
        });
    }

    /// Gives the response to the recording, if there is one. An event stream goes on doing so.
    pub(in crate::http) fn record_reply(
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
                _ => header_texts(response.headers()),
            },
            ..self.captured(endpoint, Bytes::new())
        };
        response.body_mut().record(tap, message);
    }

    fn captured(&self, endpoint: &Endpoint, text: Bytes) -> Captured {
        let place = self.recorded.place(self.connection.number);
        let endpoint = endpoint.full_path().into();
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
