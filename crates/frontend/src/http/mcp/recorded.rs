//! Gives the messages of HTTP clients to a recording.

use bytes::Bytes;
use fanlight_canonical::Endpoint;
use fanlight_telemetry::recording::{Captured, Framing, Party, To};
use http::{HeaderMap, Response};

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
        tap.capture(Captured {
            to: To::Server,
            method: Some("POST"),
            headers: texts_of(&self.head.headers),
            ..self.captured(origin.holder.endpoint(), vec![text.clone()])
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
                _ => texts_of(response.headers()),
            },
            ..self.captured(endpoint, Vec::new())
        };
        response.body_mut().record(tap, message);
    }

    fn captured(&self, endpoint: &Endpoint, text: Vec<Bytes>) -> Captured {
        let place = self.recorded.place(self.connection.number);
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
                let named = protocol_version(&self.fields)?;
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
