//! What differs between transports in the handling of a message.

use std::pin::Pin;
use std::sync::Arc;

use fanlight_canonical::{Core, Decidable, ProcessRun};
use fanlight_protocol::{Method, Request, Revision, RpcError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Origin, Refusal};
use crate::call::DetachedCalls;
use crate::eras::modern;
use crate::eras::params::{Meta, Params};
use crate::session::RunningRequests;
use crate::streams::ActiveSession;

/// How a request about a task goes on without its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AboutTask {
    /// This run keeps the task.
    PassOn(ProcessRun),
    /// It is answered here, where the task is, or is unknown from now on.
    Here,
}

/// The transport of a message. The defaults are those of a connection that carries all messages of one
/// client, such as stdio.
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

    /// Whether the client can be sent anything before a response.
    fn takes_messages(&self) -> bool {
        true
    }

    /// Checks the revision of a modern request.
    fn revision(&self, meta: &Meta) -> Result<Revision, RpcError> {
        modern::revision(meta)
    }

    /// Checks the other header fields that every modern request of this method repeats parts of its body in.
    fn check_headers(&self, _method: &Method, _params: &Params) -> Result<(), RpcError> {
        Ok(())
    }

    /// Checks the header fields that repeat arguments of the tool that the request calls.
    fn check_mirrored(&self, _operation: &dyn Decidable, _params: &Params) -> Result<(), RpcError> {
        Ok(())
    }

    /// The legacy session that a message belongs to. `None` if its connection has none; an error if the
    /// message must name one, and it does not exist for its principal at its endpoint.
    fn session(
        &self,
        origin: &Origin<'_>,
    ) -> impl Future<Output = Result<Option<ActiveSession>, Box<Refusal>>> + Send;

    /// How a legacy request about a task that Fanlight has made for this client goes on where this run does not keep both the task
    /// and the session of the request; `None` for all other requests.
    fn task_elsewhere(&self, _origin: &Origin<'_>, _request: &Request) -> Option<AboutTask> {
        None
    }

    /// The id of the session, where the message has it.
    fn session_id(&self) -> Option<&str> {
        None
    }

    /// The replica that is to open a session, if this one would end it soon.
    fn opens_sessions(&self) -> Option<ProcessRun> {
        None
    }

    /// Cancelled when streams are to end that would last as long as their client wants.
    fn closing(&self) -> &CancellationToken;

    /// All running requests of the client, if it cancels them by notifications in both eras.
    fn running(&self) -> Option<&Arc<RunningRequests>> {
        None
    }

    /// Bounds the requests of the client that run at once.
    fn permits(&self) -> Option<&Arc<Semaphore>> {
        None
    }

    /// Where legacy calls run on if their connection is lost; `None` if they end with it.
    fn detached(&self) -> Option<&Arc<DetachedCalls>> {
        None
    }

    /// The client of a session is ready for messages outside of calls.
    fn initialized(&self) {}

    /// Begins to listen to messages outside of calls, if that has not been done; the result resolves
    /// after a while or when the core has answered.
    fn listen<C: Core>(
        &self,
        core: &Arc<C>,
        session: &ActiveSession,
    ) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>>;
}
