//! What the client edge asks of the core.

use std::sync::Arc;

use fanlight_protocol::{Notification, Response, RpcError};

use crate::call::CallContext;
use crate::caller::SessionKey;
use crate::endpoint::Endpoint;
use crate::listen::{Interest, Listening};
use crate::messages::ServerMessages;
use crate::operation::{Decidable, Decided, Detail, ResolvedOperation, Unresolved};

/// The core behind a client edge: the gateway, or something simpler in tests.
///
/// Whatever a client asks for is resolved by the servers and endpoints as they are now, which the resolved value keeps; it
/// is decided about by that value, and nothing but that value is carried out.
pub trait Core: Send + Sync + 'static {
    /// A request as this core carries it out.
    type Resolved: ResolvedOperation;
    /// Listening as this core carries it out.
    type ResolvedListen: Decidable + 'static;
    /// A notification as this core passes it on.
    type ResolvedNotice: Decidable + 'static;

    /// Resolves a request. The servers and endpoints are kept until it has ended: whatever is replaced meanwhile,
    /// [`Self::run`] does what this value says. Sends servers no more than requests for lists, and those only for
    /// [`Detail::Tool`]. A request that cannot be carried out is answered with an error when it runs.
    fn resolve(
        &self,
        request: Unresolved,
        detail: Detail,
    ) -> impl Future<Output = Self::Resolved> + Send;

    /// Carries out an operation; `messages` takes what the server sends before its response. Dropping the future cancels
    /// the request. Another run carries out the same operation again, for the next round of input.
    fn run(
        &self,
        operation: &mut Self::Resolved,
        messages: ServerMessages,
    ) -> impl Future<Output = Response> + Send;

    /// Whether a request that began earlier, and has waited for something since, may go on by the policy as it is now. It is
    /// asked for the client of `context`.
    ///
    /// # Errors
    ///
    /// The answer to a request that may not: it must be ended.
    fn may_go_on(&self, decided: &Decided, context: &CallContext) -> Result<(), RpcError>;

    /// The endpoint at this path of an HTTP request; `None` if there is none.
    fn endpoint(&self, path: &str) -> Option<Endpoint>;

    /// Resolves what a client wants to listen to, by the names that it knows. Asks no server.
    fn resolve_listen(&self, interest: Interest, context: Arc<CallContext>)
    -> Self::ResolvedListen;

    /// Begins to listen to what servers send outside of calls, until the result is dropped; `messages` takes it. When
    /// servers are replaced it goes on with the new ones, as far as the endpoint then shows them.
    fn listen(
        &self,
        operation: Self::ResolvedListen,
        messages: ServerMessages,
    ) -> impl Future<Output = Result<Listening, RpcError>> + Send;

    /// Resolves a notification of a client's session that the client edge does not know. Asks no server.
    fn resolve_notice(
        &self,
        notification: Notification,
        context: Arc<CallContext>,
    ) -> Self::ResolvedNotice;

    /// Passes a notification on. Must not block.
    fn notify(&self, notice: Self::ResolvedNotice);

    /// Whether sessions at this endpoint can be continued by another process: none of its servers is a process of this one,
    /// which would have the session's state.
    fn sessions_may_move(&self, endpoint: &Endpoint) -> bool {
        let _ = endpoint;
        false
    }

    /// The session goes on here, with the sessions at servers that another process has opened for it. Must not block.
    fn continue_session(&self, client: &Arc<CallContext>) {
        let _ = client;
    }

    /// The session has ended, and no more calls of it arrive. Must not block.
    fn end_session(&self, session: SessionKey);
}
