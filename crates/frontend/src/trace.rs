//! The span of a request from a client, from its arrival until the final frame of its answer has gone.
//!
//! Must not know: transports, or how an answer came about.

use std::sync::Arc;

use fanlight_protocol::{Json, Method, Request, Response, RpcError};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::{
    Arrival, Carriers, Headers, Metrics, Moment, Network, ServerSpan, Subject, Telemetry, Verdict,
};

use crate::params::Params;
use crate::settings::FrontendSettings;

/// How a request came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came<'a> {
    pub(crate) received: Moment,
    pub(crate) network: Network,
    pub(crate) headers: Headers<'a>,
}

/// Begins the span of `request`.
pub(crate) fn begin(settings: &FrontendSettings, request: &Request, came: &Came<'_>) -> ServerSpan {
    let meta = request.params.as_ref().and_then(|params| params.get("_meta"));
    let subject = Subject::of(&request.method, request.params.as_ref());
    begin_of(settings, request, &subject, meta.as_ref(), came)
}

/// The same, where `params` have been read, so that nothing is looked for twice.
pub(crate) fn begin_read(
    settings: &FrontendSettings,
    request: &Request,
    params: &Params,
    came: &Came<'_>,
) -> ServerSpan {
    let subject = Subject::found(&request.method, |key| match key {
        "name" => params.name(),
        "uri" => params.uri(),
        _ => None,
    });
    begin_of(settings, request, &subject, params.meta.whole(), came)
}

fn begin_of(
    settings: &FrontendSettings,
    request: &Request,
    subject: &Subject,
    meta: Option<&Json>,
    came: &Came<'_>,
) -> ServerSpan {
    let carriers = Carriers { meta, headers: came.headers, trust: settings.trust_inbound };
    let mut span = settings.telemetry.server(&Arrival {
        method: &request.method,
        target: subject.target(),
        id: Some(&request.id),
        received: came.received,
        carriers,
    });
    span.set_network(came.network);
    span
}

/// The end of a span that waits for the answer to have gone. Dropped before, the answer was given up.
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

    /// The final frame has gone.
    pub(crate) fn delivered(self) {
        self.span.finish(&self.verdict.outcome());
    }
}

/// One of the things that are counted while they are there. Counted no more when this is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    metrics: Option<Arc<Metrics>>,
    change: fn(&Metrics, i64),
}

impl Counted {
    /// A session of a legacy client.
    pub(crate) fn session(telemetry: &Telemetry) -> Self {
        Self::new(telemetry, Metrics::sessions)
    }

    /// A call that waits for its client to come back.
    pub(crate) fn parked(telemetry: &Telemetry) -> Self {
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

impl Drop for Counted {
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
