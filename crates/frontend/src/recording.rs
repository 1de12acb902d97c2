//! What comes of a request that was allowed, for the record: how it ended, also where nobody has waited for that.

use std::sync::Arc;

use fanlight_audit::{Acknowledged, NotRecorded, Record, RecordedRequest, RequestEnd};
use fanlight_canonical::{CallContext, ResolvedOperation, SentTo, Verdict};
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use tokio::time::Instant;

use crate::settings::FrontendSettings;

/// A request that was allowed, until it has ended.
#[derive(Debug)]
pub(crate) struct RequestRecording {
    record: Arc<dyn Record>,
    context: Arc<CallContext>,
    method: Method,
    shown: Option<Box<str>>,
    target: Option<SentTo>,
    verdict: Option<Verdict>,
    params: Option<Json>,
    definition: Option<Arc<Json>>,
    /// The client's id of the task that it is about.
    task: Option<Box<str>>,
    bytes: usize,
    began: Option<Instant>,
    is_ended: bool,
}

impl RequestRecording {
    /// That of `operation`; `None` if requests are not recorded.
    pub(crate) fn of(
        settings: &FrontendSettings,
        operation: &impl ResolvedOperation,
    ) -> Option<Box<Self>> {
        let record = &settings.record;
        let kept = record.keeps_requests()?;
        let params = operation.params();
        Some(Box::new(Self {
            record: Arc::clone(record),
            context: Arc::clone(operation.context()),
            method: operation.method().clone(),
            shown: operation
                .shown_name()
                .map(|name| fanlight_audit::cut(&name).into()),
            target: kept.announced.then(|| target(operation)).flatten(),
            verdict: operation.verdict().cloned(),
            params: params.filter(|_| kept.arguments).cloned(),
            definition: operation.definition().filter(|_| kept.definitions).cloned(),
            task: task(operation.method(), params),
            bytes: params.map_or(0, |params| params.bytes().len()),
            began: None,
            is_ended: false,
        }))
    }

    /// That of listening, which has ended when nothing more comes of it; `None` if requests are not recorded.
    pub(crate) fn of_listening(
        settings: &FrontendSettings,
        context: &Arc<CallContext>,
        params: Option<&Json>,
    ) -> Option<Box<Self>> {
        settings.record.keeps_requests()?;
        Some(Box::new(Self {
            record: Arc::clone(&settings.record),
            context: Arc::clone(context),
            method: Method::Listen,
            shown: None,
            target: None,
            verdict: None,
            params: None,
            definition: None,
            task: None,
            bytes: params.map_or(0, |params| params.bytes().len()),
            began: None,
            is_ended: false,
        }))
    }

    /// Puts on record that it is going to run, where that is wanted; it runs once that is acknowledged.
    ///
    /// # Errors
    ///
    /// If it cannot be put on record. Then it does not run.
    pub(crate) fn announce(&self) -> Result<Option<Acknowledged>, RpcError> {
        self.record
            .begins(&self.request())
            .map_err(|error| not_recorded(&error))
    }

    /// It runs from now on.
    pub(crate) fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// It has ended with this answer.
    pub(crate) fn end(&mut self, response: &Response) {
        self.finish(&RequestEnd::Answered(response));
    }

    fn finish(&mut self, end: &RequestEnd<'_>) {
        if !std::mem::replace(&mut self.is_ended, true) {
            let duration = self.began.map(|began| began.elapsed()).unwrap_or_default();
            self.record.ended(&self.request(), end, duration);
        }
    }

    fn request(&self) -> RecordedRequest<'_> {
        RecordedRequest {
            context: &self.context,
            method: &self.method,
            shown: self.shown.as_deref(),
            target: self.target.as_ref(),
            verdict: self.verdict.as_ref(),
            params: self.params.as_ref(),
            definition: self.definition.as_deref(),
            task: self.task.as_deref(),
            bytes: self.bytes,
        }
    }
}

impl Drop for RequestRecording {
    fn drop(&mut self) {
        self.finish(&if self.began.is_some() {
            RequestEnd::Cancelled
        } else {
            RequestEnd::NotRun
        });
    }
}

/// Where an operation is going to be sent, as far as that is known.
fn target(operation: &impl ResolvedOperation) -> Option<SentTo> {
    let server = operation.server()?.into();
    Some(SentTo {
        server,
        item: operation.tool().map(|tool| tool.name.into()),
        canary: None,
    })
}

/// The task that a request is about.
fn task(method: &Method, params: Option<&Json>) -> Option<Box<str>> {
    let is_about_one = method.as_str().starts_with("tasks/");
    let id = params.filter(|_| is_about_one)?.peek("taskId")?.as_str()?;
    Some(fanlight_audit::cut(&id).into())
}

/// The error for a request that could not be put on record.
pub(crate) fn not_recorded(error: &NotRecorded) -> RpcError {
    RpcError::new(code::INTERNAL, error.to_string())
}
