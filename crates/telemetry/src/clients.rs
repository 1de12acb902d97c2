//! What operators may see of the clients at one moment: sessions and suspended calls. Plain data from the frontend for
//! the admin listener.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::Json;

/// A source of views of the clients. Called for each request of an operator, so it must not block.
pub trait Clients: Send + Sync + 'static {
    /// The clients now.
    fn view(&self) -> ClientsView;

    /// How many clients there are; called every second while an operator watches.
    fn counts(&self) -> Counts;

    /// Ends the session whose id has this digest ([`SessionView::digest`]); returns whether there is one that can be ended.
    fn end_session(&self, digest: &str) -> bool;
}

/// How many clients there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions of legacy clients.
    pub sessions: usize,
    /// Suspended calls.
    pub suspended: usize,
    /// Open event streams.
    pub streams: usize,
}

/// The clients at one moment.
#[derive(Clone, Debug, Default)]
pub struct ClientsView {
    /// Sessions of legacy clients, in no particular order.
    pub sessions: Vec<SessionView>,
    /// Calls that wait for input of a modern client.
    pub suspended: Vec<SuspendedCallView>,
    /// Open event streams: of legacy sessions, and subscriptions of modern clients.
    pub streams: usize,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The first 16 hexadecimal digits of the SHA-256 digest of its id, as in spans; the id itself is a secret. Empty
    /// where the transport has no session ids.
    pub digest: String,
    /// The negotiated revision; `None` before `initialize`.
    pub revision: Option<&'static str>,
    /// The path of its endpoint; `None` for the default one.
    pub endpoint: Option<Arc<str>>,
    /// The name of the principal that opened it, and what has shown that: `token`, `key`, `certificate`, `proxy` or `socket`.
    /// `None` if the client is not authenticated.
    pub identity: Option<(Arc<str>, &'static str)>,
    /// `http`, `sse` for the deprecated HTTP+SSE transport, or `stdio`.
    pub transport: &'static str,
    /// The `Implementation` object of the client, byte for byte.
    pub client_info: Option<Json>,
    /// Running requests.
    pub running: usize,
    /// Requests of servers that the client has not answered.
    pub server_requests: usize,
    /// Event streams that are open.
    pub streams: usize,
    /// How long it has been idle; `None` while a request runs, or if it cannot expire.
    pub idle: Option<Duration>,
}

/// A suspended call.
#[derive(Clone, Debug)]
pub struct SuspendedCallView {
    /// Its method.
    pub method: String,
    /// The tool or prompt, if the method has one.
    pub name: Option<String>,
    /// The methods of the requests that the client must answer.
    pub requests: Vec<String>,
    /// How often it has been suspended.
    pub round: u32,
    /// How long it has waited.
    pub waiting: Duration,
    /// The time until it expires.
    pub left: Duration,
}
