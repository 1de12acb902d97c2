//! What a client is sent during a call, whatever its era.
//!
//! Must not know: transports, or how any of it came about.

use fanlight_protocol::{Json, Response};

/// What the client is sent, in order.
#[derive(Debug)]
pub(crate) enum Event {
    /// A notification or a question of the server, as the client is to have it.
    Message(Json),
    /// The answer. Nothing comes after it.
    Response(Response),
    /// The client cancelled the request; there will be no answer.
    Cancelled,
}
