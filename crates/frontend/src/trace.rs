//! The span of a request from a client, from its arrival until the last frame of its answer has been sent.

use std::sync::Arc;

use fanlight_canonical::Endpoint;
use fanlight_protocol::{Json, Method, Request, Response, RpcError};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::{Arrival, Carriers, Metrics, ServerSpan, Subject, Telemetry, Verdict};

use crate::eras::params::Params;
use crate::facts::TransportFacts;
use crate::settings::FrontendSettings;

/// Begins the span of `request`.
pub(crate) fn begin(
    settings: &FrontendSettings,
    request: &Request,
    endpoint: &Endpoint,
    facts: &TransportFacts<'_>,
) -> ServerSpan {
    let meta = request.params.as_ref().and_then(|params| params.get("_meta"));
    let subject = Subject::of(&request.method, request.params.as_ref());
    begin_of(settings, request, &subject, meta.as_ref(), endpoint, facts)
}

/// Begins the span of `request`, whose `params` have been read.
pub(crate) fn begin_read(
    settings: &FrontendSettings,
    request: &Request,
    params: &Params,
    endpoint: &Endpoint,
    facts: &TransportFacts<'_>,
) -> ServerSpan {
    let subject = Subject::found(&request.method, |key| match key {
        "name" => params.name(),
        "uri" => params.uri(),
        _ => None,
    });
    begin_of(settings, request, &subject, params.meta.whole(), endpoint, facts)
}

fn begin_of(
    settings: &FrontendSettings,
    request: &Request,
    subject: &Subject,
    meta: Option<&Json>,
    endpoint: &Endpoint,
    facts: &TransportFacts<'_>,
) -> ServerSpan {
    let carriers = Carriers { meta, headers: facts.trace_context, trust: settings.trust_inbound };
    let mut span = settings.telemetry.server(&Arrival {
        method: &request.method,
        target: subject.target(),
        id: Some(&request.id),
        received: facts.received,
        carriers,
    });
    span.set_network(facts.network);
    if let Some(path) = endpoint.path() {
        span.set_endpoint(path);
    }
    span
}

/// The end of a span, once the answer has been sent. If it is dropped before, the answer was given up.
#[derive(Debug)]
pub(crate) struct Ending {
    span: ServerSpan,
    verdict: Verdict,
}

impl Ending {
    /// Of a request for `method` that is answered with `response`.
    pub(crate) fn answered(span: ServerSpan, method: &Method, response: &Response) -> Self {
        Self { verdict: span.verdict(method, response), span }
    }

    /// Of a request that is refused.
    pub(crate) fn refused(span: ServerSpan, error: &RpcError) -> Self {
        Self { span, verdict: Verdict::of_error(error) }
    }

    /// The request is refused after all.
    pub(crate) fn refuse(&mut self, error: &RpcError) {
        self.verdict = Verdict::of_error(error);
    }

    /// The last frame has been sent.
    pub(crate) fn delivered(self) {
        self.span.finish(&self.verdict.outcome());
    }
}

/// Counts one thing in a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct CountGuard {
    metrics: Option<Arc<Metrics>>,
    change: fn(&Metrics, i64),
}

impl CountGuard {
    /// A session of a legacy client.
    pub(crate) fn session(telemetry: &Telemetry) -> Self {
        Self::new(telemetry, Metrics::sessions)
    }

    /// A call that waits for input of its client.
    pub(crate) fn suspended(telemetry: &Telemetry) -> Self {
        Self::new(telemetry, Metrics::suspended_calls)
    }

    fn new(telemetry: &Telemetry, change: fn(&Metrics, i64)) -> Self {
        let metrics = telemetry.metrics().cloned();
        if let Some(metrics) = &metrics {
            change(metrics, 1);
        }
        Self { metrics, change }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            (self.change)(metrics, -1);
        }
    }
}

/// So many bytes of messages came from a client, or went to one.
pub(crate) fn bytes(telemetry: &Telemetry, direction: Direction, count: usize) {
    if let Some(metrics) = telemetry.metrics() {
        metrics.client_bytes(direction, count as u64);
    }
}
