//! The clients at one moment, for operators: sessions and suspended calls. The frontend supplies
//! this data to the admin listener.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::Json;

/// A source of views of the clients. Each request of an operator calls it, so it must not block.
pub trait Clients: Send + Sync + 'static {
    /// The clients at this moment.
    fn view(&self) -> ClientsView;

    /// How many clients there are. While an operator watches, this is called every second.
    fn counts(&self) -> Counts;

    /// Ends the session whose id has this digest ([`SessionView::digest`]). Returns whether such a
    /// session exists and can be ended.
    fn end_session(&self, digest: &str) -> bool;
}

/// Numbers of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many sessions legacy clients have.
    pub sessions: usize,
    /// How many calls are suspended.
    pub suspended: usize,
    /// How many event streams are open.
    pub streams: usize,
}

/// The clients at one moment.
#[derive(Clone, Debug, Default)]
pub struct ClientsView {
    /// The sessions of legacy clients, in no particular order.
    pub sessions: Vec<SessionView>,
    /// The calls that wait for input of a modern client.
    pub suspended: Vec<SuspendedCallView>,
    /// How many event streams are open: of legacy sessions, and of subscriptions of modern clients.
    pub streams: usize,
}

/// A session of a client.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The first 16 hexadecimal digits of the SHA-256 digest of the session id, as in spans. The id
    /// itself is a secret. Empty if the transport has no session ids.
    pub digest: String,
    /// The negotiated revision. `None` before `initialize`.
    pub revision: Option<&'static str>,
    /// The path of the endpoint that the session uses. `None` for the default one.
    pub endpoint: Option<Arc<str>>,
    /// The name of the principal that opened the session, and how the client proved it: by `token`,
    /// `key`, `certificate`, `proxy` or `socket`. `None` if the client is not authenticated.
    pub identity: Option<(Arc<str>, &'static str)>,
    /// The transport: `http`, `stdio`, or `sse` for the deprecated HTTP+SSE transport.
    pub transport: &'static str,
    /// The `Implementation` object of the client, with its original bytes.
    pub client_info: Option<Json>,
    /// How many requests are running.
    pub running: usize,
    /// How many requests of servers the client has not answered.
    pub server_requests: usize,
    /// How many event streams are open.
    pub streams: usize,
    /// How long the session has been idle. `None` while a request runs, or if the session cannot
    /// expire.
    pub idle: Option<Duration>,
}

/// A suspended call.
#[derive(Clone, Debug)]
pub struct SuspendedCallView {
    /// The method of the call.
    pub method: String,
    /// The tool or prompt, if the method has one.
    pub name: Option<String>,
    /// The methods of the requests that the client must answer.
    pub requests: Vec<String>,
    /// How often the call has been suspended.
    pub round: u32,
    /// How long the call has waited.
    pub waiting: Duration,
    /// The time until the call expires.
    pub left: Duration,
}
