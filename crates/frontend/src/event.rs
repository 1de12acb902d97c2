//! What a client is sent during a call, whatever its era.
//!
//! Must not know: transports, or how any of it came about.

use std::time::Duration;

use fanlight_protocol::Response;
use fanlight_protocol::json::Chunks;

/// What the client is sent, in order.
#[derive(Debug)]
pub(crate) enum Event {
    /// A notification or a question of the server, as the client is to have it.
    Message(Chunks),
    /// The server will say more after a while: a connection that only waits may be closed until
    /// then, and the client come back after this long, if the server says how long.
    Pause(Option<Duration>),
    /// The answer. Nothing comes after it.
    Response(Response),
    /// The client cancelled the request; there will be no answer.
    Cancelled,
}
