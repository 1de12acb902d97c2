//! What the client edge asks of the core.

use std::sync::Arc;

use fanlight_protocol::{Notification, Response, RpcError};

use crate::call::CallContext;
use crate::caller::SessionKey;
use crate::endpoint::Endpoint;
use crate::listen::{Listen, Listening};
use crate::messages::ServerMessages;
use crate::operation::{Detail, ResolvedOperation, Unresolved};

/// The core behind a client edge: the gateway, or something simpler in tests.
pub trait Core: Send + Sync + 'static {
    /// A request as this core carries it out.
    type Resolved: ResolvedOperation;

    /// Resolves a request by the servers and endpoints as they are now, which it keeps until it has ended: whatever is
    /// replaced meanwhile, [`Self::run`] does what this value says. Sends servers no more than requests for lists, and
    /// those only for [`Detail::Tool`]. A request that cannot be carried out is answered with an error when it runs.
    fn resolve(&self, request: Unresolved, detail: Detail) -> impl Future<Output = Self::Resolved> + Send;

    /// Carries out an operation; `messages` takes what the server sends before its response. Dropping the future cancels
    /// the request. Another run carries out the same operation again, for the next round of input.
    fn run(&self, operation: &mut Self::Resolved, messages: ServerMessages) -> impl Future<Output = Response> + Send;

    /// The endpoint at this path of an HTTP request; `None` if there is none.
    fn endpoint(&self, path: &str) -> Option<Endpoint>;

    /// Begins to listen to what servers send outside of calls, by the servers and endpoints as they are now. Names are those the client knows.
    fn listen(&self, listen: Listen) -> impl Future<Output = Result<Listening, RpcError>> + Send;

    /// Passes on a notification of a client's session that the client edge does not know. Must not block.
    fn notify(&self, notification: Notification, context: Arc<CallContext>) {
        drop((notification, context));
    }

    /// The session has ended, and no more calls of it arrive. Must not block.
    fn end_session(&self, session: SessionKey);
}
