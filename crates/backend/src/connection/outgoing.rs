//! Requests in the form in which they are sent, for calls, for tasks of 2025-11-25 and for
//! Fanlight's own purposes.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, SameClient, SentAs};
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::{Parent, Propagation};
use tokio::time::timeout;

use super::Connection;
use super::tools::MirroredMembers;
use crate::request::deadline::CallProgress;
use crate::request::dialect::{Mirror, MirroredParam, request_subject};
use crate::request::{
    ActiveRequest, OutgoingRequest, OwnRequest, Reply, RequestSpan, SentMessage, params_with,
    span_outcome,
};
use crate::subscriptions::{ExpectedTask, WaitGuard};

impl Connection {
    /// The span of a call's next request, with the request's id, and its trace context.
    pub(super) fn sending_of(
        &self,
        call: &Call,
        progress: &CallProgress,
        mirrored: &MirroredMembers,
    ) -> (RequestSpan, Propagation) {
        let id = self.context.next_id();
        progress.id.store(id, Ordering::Relaxed);
        let attempt = progress.earlier + progress.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let departing = SentMessage {
            method: &call.method,
            params: call.params.as_ref(),
            name: mirrored.name.as_ref(),
            id,
            attempt,
        };
        let (mut sending, propagation) = self.sending(&call.context.trace, departing);
        sending.timed_by(&progress.deadline);
        if self.context.outlet.is_of_one_client()
            && call.context.caller.client() != Some(SameClient::Connection)
            && let Some(span) = sending.span()
        {
            let told_by = call.context.caller.client();
            span.set_told_by(told_by.map_or("request", SameClient::as_str));
        }
        (sending, propagation)
    }

    /// A call's request in the form in which it is sent now.
    pub(super) fn outgoing_request<'a>(
        &self,
        call: &'a Call,
        progress: &'a CallProgress,
        mirrored: MirroredMembers,
        propagation: Propagation,
        sending: &'a RequestSpan,
    ) -> OutgoingRequest<'a> {
        let id = progress.id.load(Ordering::Relaxed);
        let params = params_with(
            &propagation,
            call.params.as_ref(),
            self.transport.has_headers(),
        );
        let params = params.as_deref();
        let token = (call.context.wants_progress && progress.carries_on.is_none()).then_some(id);
        if let Some(request) = &call.context.request {
            request.sent_to(
                &self.context.name,
                SentAs {
                    id,
                    token: token.or(progress.carries_on),
                },
            );
        }
        let headers = mirrored.headers.as_deref().unwrap_or_default();
        OutgoingRequest {
            request: ActiveRequest {
                id,
                token: progress.carries_on.unwrap_or(id),
                method: &call.method,
                context: &call.context,
                messages: &call.messages,
                deadline: &progress.deadline,
                cancellable: true,
                sending,
            },
            task: awaited_task(call),
            text: self.dialect.request_text_with_token(
                id,
                token,
                &call.method,
                params,
                &call.context,
            ),
            mirror: self.mirror(&call.method, params, mirrored.name.as_ref(), headers),
            propagation,
        }
    }

    /// The span of a message that is about to be sent, and its trace context.
    pub(super) fn sending(
        &self,
        within: &Parent,
        departing: SentMessage<'_>,
    ) -> (RequestSpan, Propagation) {
        let (mut sending, propagation) =
            RequestSpan::begin(&self.context.telemetry, within, departing);
        if let Some(span) = sending.span() {
            span.set_revision(self.dialect.revision());
            if let Some(session) = self.transport.session() {
                span.set_session(session);
            }
        }
        (sending, propagation)
    }

    /// The values that headers repeat from a request: its subject (`name`) and parameters.
    pub(super) fn mirror(
        &self,
        method: &Method,
        params: Option<&Json>,
        name: Option<&Json>,
        headers: &[MirroredParam],
    ) -> Option<Mirror> {
        if self.transport.is_http() {
            self.dialect.mirror(method, name, params, headers)
        } else {
            None
        }
    }

    /// Sends a request for Fanlight's own purposes; `None` without an answer.
    pub(crate) async fn ask(&self, method: &Method, params: Option<&Json>) -> Option<Response> {
        self.ask_within(&self.context.root, method, params).await
    }

    /// Like [`Connection::ask`], as part of the span `within`.
    pub(super) async fn ask_within(
        &self,
        within: &Parent,
        method: &Method,
        params: Option<&Json>,
    ) -> Option<Response> {
        match self.try_ask(within, method, params).await {
            Ok(Reply::Answer { response, .. }) => Some(response),
            _ => None,
        }
    }

    /// Like [`Connection::ask_within`]; the error says why there is no answer.
    pub(super) async fn try_ask(
        &self,
        within: &Parent,
        method: &Method,
        params: Option<&Json>,
    ) -> Result<Reply, BackendError> {
        self.ask_for(self.context.timeouts.own_message, within, method, params)
            .await
    }

    /// Like [`Connection::try_ask`], with another time limit.
    pub(super) async fn ask_for(
        &self,
        limit: Duration,
        within: &Parent,
        method: &Method,
        params: Option<&Json>,
    ) -> Result<Reply, BackendError> {
        let own = OwnRequest::new(&self.context, within);
        let departing = SentMessage {
            method,
            params,
            name: None,
            id: own.id,
            attempt: 1,
        };
        let (mut sending, propagation) = self.sending(within, departing);
        let params = params_with(&propagation, params, self.transport.has_headers());
        let params = params.as_deref();
        let outgoing = OutgoingRequest {
            request: own.active(method, &sending),
            task: None,
            text: self
                .dialect
                .request_text(own.id, method, params, &own.context),
            mirror: self.mirror(
                method,
                params,
                request_subject(method, params).as_ref(),
                &[],
            ),
            propagation,
        };
        let expired = BackendError::Timeout {
            after: limit,
            sent: true,
        };
        let outcome = timeout(limit, self.transport.exchange(outgoing))
            .await
            .unwrap_or(Err(expired));
        sending.end(method, span_outcome(&outcome));
        outcome
    }
}

fn awaited_task(call: &Call) -> Option<String> {
    let id = if call.method == Method::TaskResult {
        call.params.as_ref()?.get("taskId")?
    } else {
        return None;
    };
    id.as_str().map(Cow::into_owned)
}

/// The task that a request is about, until the answer.
pub(super) enum TaskRequest<'a> {
    /// The request may make a task.
    Makes(ExpectedTask<'a>),
    /// The request waits for a task's result.
    Awaits { task: String, _guard: WaitGuard<'a> },
}

impl Connection {
    /// Begins to follow the progress of the request's task. The request already has its id.
    pub(super) fn follow_task(
        &self,
        call: &Call,
        progress: &CallProgress,
    ) -> Option<TaskRequest<'_>> {
        let (tasks, caller) = (
            &self.context.outlet.registry.task_progress,
            &call.context.caller,
        );
        let sent_as = |token| (self.context.outlet.process, token);
        match call.method {
            Method::CallTool if call.context.wants_progress => {
                call.params.as_ref()?.peek("task")?;
                let own = call.context.request.as_ref()?.progress_token()?;
                tasks
                    .expect(sent_as(progress.id.load(Ordering::Relaxed)), caller, own)
                    .map(TaskRequest::Makes)
            }
            Method::TaskResult => {
                let task = call.params.as_ref()?.text_at("taskId")?;
                let guard = tasks.wait(
                    caller,
                    task.clone(),
                    progress.carries_on.map(sent_as),
                    &call.messages,
                );
                Some(TaskRequest::Awaits {
                    task,
                    _guard: guard,
                })
            }
            _ => None,
        }
    }

    /// Handles the answer to a request about a task.
    pub(super) fn task_answered(&self, call: &Call, request: TaskRequest<'_>, response: &Response) {
        match request {
            TaskRequest::Makes(expected) => {
                let task = response
                    .result()
                    .and_then(|result| result.get("task")?.text_at("taskId"));
                if let Some(task) = task {
                    expected.made(&task);
                }
            }
            // The result has arrived, so the task has ended.
            TaskRequest::Awaits { task, .. } if !response.is_error() => {
                self.context
                    .outlet
                    .registry
                    .task_progress
                    .ended(&call.context.caller, &task);
            }
            TaskRequest::Awaits { .. } => {}
        }
    }
}
