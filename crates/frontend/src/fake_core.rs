//! A core for tests of listening, which answers it as the test says.

use std::sync::Arc;

use fanlight_canonical::{Call, Core, Listen, Listening, Principal, SessionKey};
use fanlight_protocol::{Json, Response, Revision, RpcError};

use crate::legacy::Opening;
use crate::session::Session;

type Answer = dyn Fn(Listen) -> Result<Listening, RpcError> + Send + Sync;

/// See the module.
pub(crate) struct Listened(Box<Answer>);

impl Listened {
    /// A core that answers whoever wants to listen by `answer`.
    pub(crate) fn by(answer: impl Fn(Listen) -> Result<Listening, RpcError> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Box::new(answer)))
    }

    /// A session of a client that can come back to its streams.
    pub(crate) fn session(self: &Arc<Self>) -> Session {
        let revision = Revision::V2025_11_25;
        let opening = Opening { revision, client_info: None, capabilities: Json::empty_object() };
        Session::new(Principal::anonymous(), opening, Arc::default(), 1, self)
    }
}

impl Core for Listened {
    async fn handle(&self, _: Call) -> Response {
        Response::from_result(&Json::empty_object())
    }

    async fn tool(&self, _: &str, _: &fanlight_telemetry::Parent) -> Option<Arc<Json>> {
        None
    }

    async fn listen(&self, listen: Listen) -> Result<Listening, RpcError> {
        (self.0)(listen)
    }

    fn end_session(&self, _: SessionKey) {}
}
