//! An arrived request without its body.

use std::net::SocketAddr;

use crate::forwarding::Opened;
use bytes::Bytes;
use fanlight_canonical::{Endpoint, Peer};
use fanlight_credentials::ConnectionFacts;
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::{Headers, Moment, Network};
use http::StatusCode;
use http::request::Parts;
use hyper::body::Incoming;

use super::activity::ActiveRequest;
use super::body::{self, BodyLimits};
use super::events::listeners::{ListenOnlyStreams, StreamPermit};
use super::fields::{Field, Fields};
use super::recorded::RecordedRequest;
use super::reply::Refusal;
use crate::facts::TransportFacts;
use crate::settings::FrontendSettings;
use crate::trace;

/// An arrived request without its body.
pub(super) struct Arrived<'a> {
    pub(super) head: &'a Parts,
    pub(super) fields: Fields<'a>,
    pub(super) connection: &'a ConnectionFacts,
    /// The client's address, which a trusted proxy may have named. Used only for shares of limits,
    /// traces and logs.
    pub(super) client: Option<SocketAddr>,
    pub(super) received: Moment,
    /// The request's guard on its connection.
    pub(super) active: &'a ActiveRequest,
    /// The places of its messages in a recording.
    pub(super) recorded: RecordedRequest,
    /// The forwarded request that this one was made from, if another replica forwarded it.
    pub(super) forwarded: Option<&'a Opened>,
}

impl RecordedRequest {
    /// A request to this endpoint.
    #[inline]
    pub(super) fn new(settings: &FrontendSettings, endpoint: &Endpoint) -> Self {
        let tap = settings.telemetry.tap().filter(|tap| tap.is_on());
        Self {
            exchange: tap.map_or(0, |tap| tap.exchange_at(endpoint.full_path())),
            ..Self::default()
        }
    }
}

impl<'a> Arrived<'a> {
    /// Facts about the messages in the body.
    pub(super) fn facts(&self) -> TransportFacts<'a> {
        let version = if self.head.version == http::Version::HTTP_2 {
            "2"
        } else {
            "1.1"
        };
        let own = self.connection.socket.map(|socket| socket.user);
        let is_forwarded = self.forwarded.is_some();
        TransportFacts {
            received: self.received,
            exchange: self.recorded.exchange,
            network: Network::Http {
                version,
                client: self.client,
            },
            user: self
                .forwarded
                .map_or(own, |opened| opened.request.client.user),
            is_forwarded,
            is_proxied: is_forwarded || self.fields.is_proxied,
            trace_context: trace_context(&self.fields),
        }
    }

    /// Reads the body with a message of `peer`. For a forwarded request this is the body that the
    /// other replica sealed.
    pub(super) async fn read(
        &self,
        body: &mut Incoming,
        settings: &FrontendSettings,
        peer: &Peer,
    ) -> Result<Bytes, Box<Refusal>> {
        let text = body::read(body, BodyLimits::new(settings, peer, self.active)).await?;
        if let Some(opened) = self.forwarded {
            let refused = |error: crate::forwarding::Refused| {
                Refusal::invalid(StatusCode::MISDIRECTED_REQUEST, error.to_string())
            };
            opened.check_body(&text).map_err(refused)?;
        }
        trace::bytes(&settings.telemetry, Direction::Receive, text.len());
        Ok(text)
    }
}

/// The request's trace context. A repeated `traceparent` is ignored. So are lists in several
/// fields, which are rare and unimportant.
fn trace_context<'a>(fields: &Fields<'a>) -> Headers<'a> {
    let one = |field: Field<'a>| field.single_value().ok().flatten().map(|(_, text)| text);
    Headers {
        traceparent: one(fields.traceparent),
        tracestate: one(fields.tracestate),
        baggage: one(fields.baggage),
    }
}

/// A permit for a listen-only stream of `peer`.
pub(super) fn stream_permit(
    streams: &ListenOnlyStreams,
    peer: &Peer,
) -> Result<StreamPermit, Box<Refusal>> {
    streams
        .acquire(peer)
        .map_err(|refused| Refusal::busy(refused.to_string()))
}
