//! A request that has arrived, but for its body.

use fanlight_http_edge::{ConcurrencyLimit, Permit};
use fanlight_protocol::{RpcError, code};
use fanlight_telemetry::{Headers, Moment, Network};
use http::StatusCode;
use http::request::Parts;

use super::fields::{Field, Fields};
use super::reply::Refusal;
use super::serve::Arrival;
use crate::facts::TransportFacts;

/// A request, but for its body.
pub(super) struct Arrived<'a> {
    pub(super) head: &'a Parts,
    pub(super) fields: Fields<'a>,
    pub(super) arrival: Arrival<'a>,
    pub(super) received: Moment,
}

impl<'a> Arrived<'a> {
    /// What is known of the messages in its body.
    pub(super) fn facts(&self) -> TransportFacts<'a> {
        let version = if self.head.version == http::Version::HTTP_2 { "2" } else { "1.1" };
        let network = Network::Http { version, client: self.arrival.peer };
        let trace_context = trace_context(&self.fields);
        TransportFacts { received: self.received, network, trace_context, headers: Some(&self.head.headers) }
    }
}

/// The trace context of a request. A `traceparent` that is there more than once counts as none, and so
/// do lists in several fields, since they are rare and nothing depends on them.
fn trace_context<'a>(fields: &Fields<'a>) -> Headers<'a> {
    let one = |field: Field<'a>| field.only().ok().flatten().map(|(_, text)| text);
    Headers { traceparent: one(fields.traceparent), tracestate: one(fields.tracestate), baggage: one(fields.baggage) }
}

/// A permit for a listen-only stream.
pub(super) fn stream_permit(streams: &ConcurrencyLimit) -> Result<Permit, Box<Refusal>> {
    streams.try_acquire().ok_or_else(|| {
        let limit = streams.most();
        if streams.is_warning_due() {
            tracing::warn!(limit, "event stream refused: too many listen-only streams (limits.streams)");
        }
        let message = format!("busy: {limit} event streams are open, the limit here; close one, or try later");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::new(code::INTERNAL, message))
    })
}
