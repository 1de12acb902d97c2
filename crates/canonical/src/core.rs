//! The interface between the client edge and the core.

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
/// Each request is resolved by the current servers and endpoints, which the resolved value keeps.
/// The decision about it is based on that value, and only that value is carried out.
pub trait Core: Send + Sync + 'static {
    /// A request as this core carries it out.
    type Resolved: ResolvedOperation;
    /// A request to listen as this core carries it out.
    type ResolvedListen: Decidable + 'static;
    /// A notification as this core forwards it.
    type ResolvedNotice: Decidable + 'static;

    /// Resolves a request. The resolved value keeps its servers and endpoints until the request has
    /// ended. So a replacement meanwhile does not change what [`Self::run`] does.
    ///
    /// Servers get only requests for lists, and those only for [`Detail::Tool`]. A request that
    /// cannot be carried out gets an error when it runs.
    fn resolve(
        &self,
        request: Unresolved,
        detail: Detail,
    ) -> impl Future<Output = Self::Resolved> + Send;

    /// Carries out an operation. `messages` takes what the server sends before its response.
    /// Dropping the future cancels the request. Another run carries out the same operation again,
    /// for the next round of input.
    fn run(
        &self,
        operation: &mut Self::Resolved,
        messages: ServerMessages,
    ) -> impl Future<Output = Response> + Send;

    /// Whether a request that has waited for something may go on under the current policy. The
    /// client is the one of `context`.
    ///
    /// # Errors
    ///
    /// The answer to a request that may not go on and has to be ended.
    fn may_go_on(&self, decided: &Decided, context: &CallContext) -> Result<(), RpcError>;

    /// The endpoint at this path of an HTTP request; `None` if there is none.
    fn endpoint(&self, path: &str) -> Option<Endpoint>;

    /// Resolves a request to listen by the names that the client knows. Asks no server.
    fn resolve_listen(&self, interest: Interest, context: Arc<CallContext>)
    -> Self::ResolvedListen;

    /// Listens for messages that servers send outside of calls until the result is dropped.
    /// `messages` takes them. When servers are replaced, listening goes on with the new ones that
    /// the endpoint shows.
    fn listen(
        &self,
        operation: Self::ResolvedListen,
        messages: ServerMessages,
    ) -> impl Future<Output = Result<Listening, RpcError>> + Send;

    /// Resolves a notification that the client edge does not know. Asks no server.
    fn resolve_notice(
        &self,
        notification: Notification,
        context: Arc<CallContext>,
    ) -> Self::ResolvedNotice;

    /// Forwards a notification. Must not block.
    fn notify(&self, notice: Self::ResolvedNotice);

    /// Whether another replica can continue sessions at this endpoint. It cannot if one of the
    /// servers is a process on this machine, which would have the session's state.
    fn sessions_may_move(&self, endpoint: &Endpoint) -> bool {
        let _ = endpoint;
        false
    }

    /// Continues a client's session that another replica opened, with its sessions at servers. Must
    /// not block.
    fn continue_session(&self, client: &Arc<CallContext>) {
        let _ = client;
    }

    /// Ends a session, of which no more calls arrive. Must not block.
    fn end_session(&self, session: SessionKey);
}
