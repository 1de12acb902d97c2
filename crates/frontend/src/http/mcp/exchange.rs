//! An HTTP POST request, and the [`Transport`] of the message in it.
use std::sync::Arc;

use crate::forwarding::Replicas;
use fanlight_canonical::{Decidable, Keeper, ProcessRun};
use fanlight_protocol::accept::Accepts;
use fanlight_protocol::{Json, Method, Request, Revision, RpcError};
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::fields::Fields;
use super::{Endpoint, NamedSession, headers};
use crate::call::DetachedCalls;
use crate::eras::params::{Meta, Params};
use crate::ingress::{AboutTask, Origin, Refusal, Transport};
use crate::streams::ActiveSession;

/// A POST request.
pub(super) struct Exchange<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) fields: &'a Fields<'a>,
    pub(super) session: NamedSession,
    pub(super) passing: Passing<'a>,
    pub(super) accepts: Accepts,
    /// Cancelled when the connection must end.
    pub(super) shutdown: &'a CancellationToken,
}

/// How a request may be forwarded between replicas before it begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Passing<'a> {
    /// The request may be forwarded to these replicas.
    On(&'a Arc<dyn Replicas>),
    /// Another replica forwarded the request to this one.
    Here,
    /// The request's session exists, here or elsewhere. If the request is about a task, these
    /// replicas may have the task; `None` if the replica that was asked no longer has it.
    Task(Option<&'a Arc<dyn Replicas>>),
    /// There are no other replicas, or the one that was asked no longer has the subject of the
    /// request.
    Nowhere,
}

impl Transport for Exchange<'_> {
    const HAS_HEADERS: bool = true;

    fn version_header(&self) -> Option<&str> {
        headers::protocol_version(self.fields)
    }

    fn takes_messages(&self) -> bool {
        self.accepts.events
    }

    fn revision(&self, meta: &Meta) -> Result<Revision, RpcError> {
        headers::check_version(self.fields, meta)
    }

    fn check_headers(
        &self,
        revision: Revision,
        method: &Method,
        params: &Params,
    ) -> Result<(), RpcError> {
        headers::check_standard(self.fields, revision, method, params)
    }

    fn check_mirrored(&self, operation: &dyn Decidable, params: &Params) -> Result<(), RpcError> {
        let called = operation.definition().zip(params.name());
        let Some((tool, name)) = called.filter(|_| !operation.is_indirect()) else {
            return Ok(());
        };
        let mirrored = self
            .endpoint
            .mirrored_params
            .find(&name.as_str().unwrap_or_default(), tool)?;
        headers::check_params(self.fields, mirrored.as_deref().unwrap_or_default(), params)
    }

    async fn session(&self, _origin: &Origin<'_>) -> Result<Option<ActiveSession>, Box<Refusal>> {
        super::require_session(self.session.clone()).map(Some)
    }

    /// The destination of a request about a task. The session comes first: only the replica that
    /// keeps it knows whether it lives.
    fn task_elsewhere(&self, origin: &Origin<'_>, request: &Request) -> Option<AboutTask> {
        let is_about_task = request.method.is_about_task();
        let may_read = matches!(request.method, Method::ReadResource | Method::CallTool);
        if may_read && self.session.is_none() && matches!(self.passing, Passing::Here) {
            return Some(AboutTask::Here);
        }
        if !is_about_task || matches!(self.passing, Passing::Nowhere) {
            return None;
        }
        let id = request.param("taskId");
        let id = id.as_ref().and_then(Json::as_str).unwrap_or_default();
        let keeper = self.endpoint.handles.keeper_of_task(&id, &origin.holder);
        if keeper == Keeper::Nobody {
            return None;
        }
        match &self.session {
            Some(Ok(session)) => match (self.passing, keeper) {
                (Passing::On(_) | Passing::Here | Passing::Task(Some(_)), Keeper::Another(run)) => {
                    let tasks = session.session.revision().tasks;
                    tasks.map(|_| AboutTask::PassOn(run))
                }
                _ => None,
            },
            Some(Err(_)) => match (self.passing, keeper) {
                (Passing::Task(Some(_)), Keeper::Another(run)) => Some(AboutTask::PassOn(run)),
                (Passing::Task(_), _) => Some(AboutTask::Here),
                _ => None,
            },
            // It was forwarded without its session, which the forwarding replica has found.
            None => match (self.passing, keeper) {
                (Passing::Here, Keeper::ThisRun) => Some(AboutTask::Here),
                _ => None,
            },
        }
    }

    fn passes_results(&self) -> bool {
        matches!(self.passing, Passing::On(_))
    }

    fn session_id(&self) -> Option<&str> {
        super::session_id(self.fields)
    }

    /// A load balancer uses open connections until it notices that they end. So an ending process
    /// lets another replica open new sessions.
    fn opens_sessions(&self) -> Option<ProcessRun> {
        match self.passing {
            Passing::On(replicas) if self.endpoint.ending.is_cancelled() => replicas.find_other(),
            _ => None,
        }
    }

    fn closing(&self) -> &CancellationToken {
        self.shutdown
    }

    /// The tracker of calls that outlive their connection, used only for the legacy era:
    /// "Disconnection SHOULD NOT be interpreted as the client cancelling its request". In the
    /// modern era a disconnection cancels the request (2026-07-28 streamable-http, Cancellation) by
    /// dropping the call.
    fn detached_calls(&self) -> Option<&Arc<DetachedCalls>> {
        Some(&self.endpoint.detached)
    }

    fn listen(&self, session: &ActiveSession) -> Option<BoxFuture<'static, ()>> {
        let opened = session.listen_in_background(&self.endpoint.policy)?;
        let limit = self.endpoint.settings.stream_after;
        // If the core takes longer, the request continues; until then, messages wait at the server.
        Some(Box::pin(async move {
            drop(timeout(limit, opened.cancelled()).await);
        }))
    }
}
