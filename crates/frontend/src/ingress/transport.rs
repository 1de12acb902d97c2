//! The differences between transports in the handling of a message.
use std::sync::Arc;

use fanlight_canonical::{Decidable, ProcessRun};
use fanlight_gateway::Gateway;
use fanlight_protocol::{Method, Request, Revision, RpcError};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Origin, Refusal};
use crate::call::DetachedCalls;
use crate::eras::modern;
use crate::eras::params::{Meta, Params};
use crate::session::RunningRequests;
use crate::streams::ActiveSession;

/// How a request about a task continues without its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AboutTask {
    /// This run keeps the task, so the request goes there.
    PassOn(ProcessRun),
    /// This process answers: it has the task, or reports it as unknown.
    Here,
}

/// The transport of a message. The defaults suit a connection with all messages of one client, such
/// as stdio.
pub(crate) trait Transport: Send + Sync {
    /// Whether modern clients repeat parts of their requests in header fields.
    const HAS_HEADERS: bool = false;

    /// The value of `MCP-Protocol-Version`.
    fn version_header(&self) -> Option<&str> {
        None
    }

    /// Whether modern requests are served.
    fn serves_modern(&self) -> bool {
        true
    }

    /// Whether the client can get messages before a response.
    fn takes_messages(&self) -> bool {
        true
    }

    /// Checks the revision of a modern request.
    fn revision(&self, meta: &Meta) -> Result<Revision, RpcError> {
        modern::revision(meta)
    }

    /// Checks the header fields that repeat parts of the body in every modern request of this
    /// method.
    fn check_headers(&self, _method: &Method, _params: &Params) -> Result<(), RpcError> {
        Ok(())
    }

    /// Checks the header fields that repeat arguments of the called tool.
    fn check_mirrored(&self, _operation: &dyn Decidable, _params: &Params) -> Result<(), RpcError> {
        Ok(())
    }

    /// The legacy session of a message; `None` if its connection has none. Fails if the message
    /// must name a session, and its principal has no such session at its endpoint.
    fn session(
        &self,
        origin: &Origin<'_>,
    ) -> impl Future<Output = Result<Option<ActiveSession>, Box<Refusal>>> + Send;

    /// How a legacy request continues that is about a task which Fanlight made for this client.
    /// `None` for all other requests, and if this run keeps both the task and the session.
    fn task_elsewhere(&self, _origin: &Origin<'_>, _request: &Request) -> Option<AboutTask> {
        None
    }

    /// The session's id, if the message has one.
    fn session_id(&self) -> Option<&str> {
        None
    }

    /// The replica that should open a session, because this one is ending.
    fn opens_sessions(&self) -> Option<ProcessRun> {
        None
    }

    /// Cancelled when streams without an end of their own must end.
    fn closing(&self) -> &CancellationToken;

    /// All running requests of the client, if notifications cancel them in both eras.
    fn running(&self) -> Option<&Arc<RunningRequests>> {
        None
    }

    /// Limits the client's concurrent requests.
    fn permits(&self) -> Option<&Arc<Semaphore>> {
        None
    }

    /// Keeps legacy calls running after their connection is lost; `None` if they end with it.
    fn detached(&self) -> Option<&Arc<DetachedCalls>> {
        None
    }

    /// Reports that a session's client is ready for messages outside of calls.
    fn initialized(&self) {}

    /// Starts to listen to messages outside of calls, if not done yet. The result resolves once the
    /// core has answered, or after a while.
    fn listen(
        &self,
        core: &Arc<Gateway>,
        session: &ActiveSession,
    ) -> Option<BoxFuture<'static, ()>>;
}
