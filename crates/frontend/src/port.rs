//! What this side asks of the core, and tells it.

#[cfg(test)]
pub(crate) mod fake;

use std::future::Future;
use std::sync::Arc;

use fanlight_gateway::{Call, Gateway, Listen, Listening, SessionKey};
use fanlight_protocol::param_header::ParamHeader;
use fanlight_protocol::{Response, RpcError};
use fanlight_telemetry::Parent;

/// What stands behind the front end. [`Gateway`] does; tests put something simpler there.
pub trait Core: Send + Sync + 'static {
    /// Answers one request in canonical form. Dropping the future cancels the request.
    fn handle(&self, call: Call) -> impl Future<Output = Response> + Send;

    /// The parameters of the tool called `name` that modern HTTP clients must mirror into headers. What
    /// has to be asked for it is asked within `trace`.
    fn param_headers(&self, name: &str, trace: &Parent) -> impl Future<Output = Arc<[ParamHeader]>> + Send;

    /// Begins to listen to what servers send outside of calls; names are those the client knows.
    fn listen(&self, listen: Listen) -> impl Future<Output = Result<Listening, RpcError>> + Send;

    /// The session has ended, and no more calls of it come. Must not wait for anything.
    fn end_session(&self, session: SessionKey);
}

impl Core for Gateway {
    fn handle(&self, call: Call) -> impl Future<Output = Response> + Send {
        Self::handle(self, call)
    }

    fn param_headers(&self, name: &str, trace: &Parent) -> impl Future<Output = Arc<[ParamHeader]>> + Send {
        Self::param_headers(self, name, trace)
    }

    fn listen(&self, listen: Listen) -> impl Future<Output = Result<Listening, RpcError>> + Send {
        Self::listen(self, listen)
    }

    fn end_session(&self, session: SessionKey) {
        Self::end_session(self, session);
    }
}
