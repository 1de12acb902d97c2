//! What the client edge asks of the core.

use std::sync::Arc;

use fanlight_protocol::{Json, Notification, Response, RpcError};
use fanlight_telemetry::Parent;

use crate::call::{Call, CallContext};
use crate::caller::SessionKey;
use crate::endpoint::Endpoint;
use crate::listen::{Listen, Listening};

/// A tool, as rights know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolItem {
    /// The server, by the name that the configuration gives it.
    pub server: String,
    /// The server's own name for the tool.
    pub name: String,
}

/// The core behind a client edge: the gateway, or something simpler in tests.
pub trait Core: Send + Sync + 'static {
    /// Answers one request in canonical form. Dropping the future cancels the request.
    fn handle(&self, call: Call) -> impl Future<Output = Response> + Send;

    /// The endpoint at this path of an HTTP request; `None` if there is none.
    fn endpoint(&self, path: &str) -> Option<Endpoint>;

    /// The definition of the tool called `name`, as `tools/list` of an endpoint has it; `None` if that does not have
    /// it. While the list is unchanged, the same `Arc` is returned each time, so that what was made of a
    /// definition can be kept with it. Lists that have to be read for it are read as part of `trace`.
    fn tool(&self, name: &str, endpoint: &Endpoint, trace: &Parent) -> impl Future<Output = Option<Arc<Json>>> + Send;

    /// The server whose tool clients of an endpoint know as `name`, and that server's own name for it; `None` if no list
    /// tells. Rights are decided on this pair: the name that clients see depends on the other servers.
    fn tool_item(
        &self,
        name: &str,
        endpoint: &Endpoint,
        trace: &Parent,
    ) -> impl Future<Output = Option<ToolItem>> + Send;

    /// Begins to listen to what servers send outside of calls. Names are those the client knows.
    fn listen(&self, listen: Listen) -> impl Future<Output = Result<Listening, RpcError>> + Send;

    /// Passes on a notification of a client's session that the client edge does not know. Must not block.
    fn notify(&self, notification: Notification, context: Arc<CallContext>) {
        drop((notification, context));
    }

    /// The session has ended, and no more calls of it arrive. Must not block.
    fn end_session(&self, session: SessionKey);
}
