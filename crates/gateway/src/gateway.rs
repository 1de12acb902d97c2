//! stub: signatures only, being written
use std::sync::Arc;

use fanlight_backend::Call;
use fanlight_protocol::param_header::ParamHeader;
use fanlight_protocol::Response;

/// Several backends behind one face.
pub struct Gateway;

impl Gateway {
    /// Answers one request in canonical form. Never fails: what goes wrong is an error response.
    /// `Method::Discover` asks for the (merged) description: its result is an object in the shape
    /// of an `initialize` result or of a `server/discover` result, or a merged one that has
    /// `capabilities`, `serverInfo`, `instructions`, `_meta`; the client's edge renders it.
    /// Dropping the future cancels the request at the backend.
    pub async fn handle(&self, _call: Call) -> Response {
        unimplemented!()
    }

    /// The parameters of the tool that clients know as `name` that modern HTTP clients must mirror
    /// into headers. Empty for an unknown tool.
    pub async fn param_headers(&self, _name: &str) -> Arc<[ParamHeader]> {
        Arc::new([])
    }
}
