//! The audit log's entry for the end of an allowed request, even if no client waits for the answer
//! any more. Without an audit log, a request costs one look at it.

use std::sync::Arc;

use fanlight_canonical::{CallContext, Decidable as _, Verdict};
use fanlight_gateway::Operation;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use fanlight_record::{Acknowledged, NotRecorded, Record, RecordedRequest, RequestEnd};
use tokio::time::Instant;

use crate::settings::FrontendSettings;

/// The name of the gate.
pub(crate) const RECORD: &str = "record";

/// The recording of an allowed request until its end.
#[derive(Debug)]
pub(crate) struct Recording {
    record: Arc<dyn Record>,
    context: Arc<CallContext>,
    method: Method,
    shown: Option<Box<str>>,
    verdict: Option<Verdict>,
    params: Option<Json>,
    definition: Option<Arc<Json>>,
    bytes: usize,
    began: Option<Instant>,
    is_ended: bool,
}

/// Whether the definition of a called tool is needed: it tells the secret arguments, and the name
/// in an announcement.
pub(super) fn needs_tool(settings: &FrontendSettings) -> bool {
    let kept = settings.record.keeps_requests();
    kept.is_some_and(|kept| kept.definitions || kept.announced)
}

impl Recording {
    /// The recording of `operation`; `None` if the audit log has no requests.
    pub(crate) fn for_operation(
        settings: &FrontendSettings,
        operation: &Operation,
    ) -> Option<Box<Self>> {
        let kept = settings.record.keeps_requests()?;
        let (context, params) = (operation.context(), operation.params());
        let mut recording = Self::new(settings, context, operation.method(), params);
        let shown = operation.shown_name();
        recording.shown = shown.map(|name| fanlight_record::cut(&name).into());
        recording.verdict = operation.verdict().cloned();
        recording.params = params.filter(|_| kept.arguments).cloned();
        recording.definition = operation.definition().filter(|_| kept.definitions).cloned();
        Some(recording)
    }

    /// The recording of listening, which ends with the stream; `None` if the audit log has no
    /// requests.
    pub(crate) fn for_listening(
        settings: &FrontendSettings,
        context: &Arc<CallContext>,
        params: Option<&Json>,
    ) -> Option<Box<Self>> {
        settings.record.keeps_requests()?;
        Some(Self::new(settings, context, &Method::Listen, params))
    }

    fn new(
        settings: &FrontendSettings,
        context: &Arc<CallContext>,
        method: &Method,
        params: Option<&Json>,
    ) -> Box<Self> {
        Box::new(Self {
            record: Arc::clone(&settings.record),
            context: Arc::clone(context),
            method: method.clone(),
            shown: None,
            verdict: None,
            params: None,
            definition: None,
            bytes: params.map_or(0, |params| params.bytes().len()),
            began: None,
            is_ended: false,
        })
    }

    /// Announces the request in the audit log, if configured, and marks its start.
    ///
    /// # Errors
    ///
    /// If the audit log fails; the request must not run then.
    pub(super) async fn begin_request(&mut self) -> Result<(), RpcError> {
        if let Some(acknowledged) = self.announce()? {
            acknowledged.await.map_err(|error| not_recorded(&error))?;
        }
        self.begin();
        Ok(())
    }

    /// Announces the request in the audit log, if configured. The request runs once the
    /// announcement is acknowledged.
    ///
    /// # Errors
    ///
    /// If the audit log fails; the request must not run then.
    pub(crate) fn announce(&self) -> Result<Option<Acknowledged>, RpcError> {
        self.record
            .begins(&self.request())
            .map_err(|error| not_recorded(&error))
    }

    /// Marks the start of the request.
    pub(crate) fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// Records the end of the request with its answer, also if it has not run.
    pub(crate) fn end(&mut self, response: &Response) {
        self.finish(&match self.began {
            Some(_) => RequestEnd::Answered(response),
            None => RequestEnd::NotRun(Some(response)),
        });
    }

    fn finish(&mut self, end: &RequestEnd<'_>) {
        if !std::mem::replace(&mut self.is_ended, true) {
            let duration = self.began.map(|began| began.elapsed()).unwrap_or_default();
            self.record.record_end(&self.request(), end, duration);
        }
    }

    fn request(&self) -> RecordedRequest<'_> {
        RecordedRequest {
            context: &self.context,
            method: &self.method,
            shown: self.shown.as_deref(),
            verdict: self.verdict.as_ref(),
            params: self.params.as_ref(),
            definition: self.definition.as_deref(),
            bytes: self.bytes,
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.finish(&if self.began.is_some() {
            RequestEnd::Cancelled
        } else {
            RequestEnd::NotRun(None)
        });
    }
}

/// The error for a request that the audit log could not record.
pub(crate) fn not_recorded(error: &NotRecorded) -> RpcError {
    RpcError::new(code::INTERNAL, error.to_string())
}
