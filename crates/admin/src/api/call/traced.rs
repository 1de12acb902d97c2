//! The span of an operator's call, and the answer with its id.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use fanlight_canonical::{CallContext, Caller, Endpoint, Holder, Principal};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::{Arrival, Carriers, ClientName, Network, Parent, ServerSpan};

use super::OperatorCall;
use crate::Subject;
use crate::values::{millis, to_json};

/// The span of an operator's call.
pub(super) struct TracedCall {
    span: ServerSpan,
    method: Method,
    began: Instant,
}

impl TracedCall {
    pub(super) fn begin(subject: &Subject, call: &OperatorCall) -> Self {
        let began = Instant::now();
        let about = fanlight_telemetry::Subject::new(&call.method, Some(&call.params));
        let meta = call.params.get("_meta");
        let mut span = subject.telemetry.server(&Arrival {
            method: &call.method,
            target: about.target(),
            id: None,
            received: call.received,
            carriers: Carriers {
                meta: meta.as_ref(),
                ..Carriers::default()
            },
        });
        span.set_network(Network::Http {
            version: "1.1",
            client: None,
        });
        span.set_client(|| ClientName::new(Some(&own_info(subject)), None));
        span.keep_content(&call.method, Some(&call.params));
        if let Some(path) = call.endpoint.path() {
            span.set_endpoint(path);
        }
        Self {
            span,
            method: call.method.clone(),
            began,
        }
    }

    /// The span as the parent of all work for the call.
    pub(super) fn parent(&self) -> Parent {
        self.span.parent()
    }

    /// The id of the trace; `None` if nothing is recorded.
    pub(super) fn trace_id(&self) -> Option<String> {
        self.span.parent().ids().map(|ids| ids.trace_id.to_string())
    }

    /// The context of a client of `endpoint` that declares these capabilities.
    pub(super) fn context(
        &self,
        subject: &Subject,
        endpoint: Endpoint,
        capabilities: Json,
        wants_progress: bool,
    ) -> Arc<CallContext> {
        let internal = CallContext::internal();
        Arc::new(CallContext {
            caller: Caller::request_of(Holder::new(Principal::operator(), endpoint)),
            client_info: Some(own_info(subject)),
            capabilities,
            wants_progress,
            trace: self.span.parent(),
            ..(*internal).clone()
        })
    }

    /// The result or error, byte for byte, with the trace's id. The trace has then ended, so that
    /// the reader of the answer can read it.
    pub(super) fn finish(self, response: &Response, required: Option<Json>) -> Json {
        let trace = self.trace_id();
        let verdict = self.span.verdict(&self.method, response);
        self.span.finish(&verdict.outcome());
        let mut answer = ObjectBuilder::new();
        answer
            .member("traceId", &to_json(&trace))
            .member("durationMs", &to_json(&millis(self.began.elapsed())));
        if let Some(required) = required {
            answer.member("requiredCapabilities", &required);
        }
        answer.member(
            if response.is_error() {
                "error"
            } else {
                "result"
            },
            &response.body(),
        );
        answer.finish()
    }
}

/// The `Implementation` object of this client.
fn own_info(subject: &Subject) -> Json {
    let mut info = ObjectBuilder::new();
    info.string("name", "fanlight-admin")
        .string("version", subject.version);
    info.finish()
}

/// Waits until an operator has cancelled the call in the list of running ones; its span has then
/// ended as cancelled.
pub(super) async fn cancelled(call: &Parent) {
    poll_fn(|cx| call.poll_cancelled_by_operator(cx)).await;
    call.cancel();
}
