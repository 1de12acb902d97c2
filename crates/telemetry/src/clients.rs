//! What an operator may see of the clients, at one moment: who has a session, which calls are
//! parked. Plain data between whoever has clients and whoever shows them.
//!
//! Must not know: how clients arrive, who asks, or how it is shown.

use std::time::Duration;

use fanlight_protocol::Json;

/// Who can be asked about the clients. Asked for each request, so it must not wait for anything.
pub trait Clients: Send + Sync + 'static {
    /// The clients now.
    fn seen(&self) -> Seen;

    /// How many there are; asked every second while somebody looks.
    fn counts(&self) -> Counts;
}

/// How many clients there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions of legacy clients.
    pub sessions: usize,
    /// Calls that wait for a client to come back.
    pub parked: usize,
    /// Event streams that are open.
    pub streams: usize,
}

/// The clients at one moment.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Sessions of legacy clients, in no particular order.
    pub sessions: Vec<SessionView>,
    /// Calls that wait for a client to come back.
    pub parked: Vec<ParkedView>,
    /// Event streams that are open: what legacy sessions have, and subscriptions of modern clients.
    pub streams: usize,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The first 16 hexadecimal digits of the SHA-256 digest of its id, as spans have it: whoever has
    /// the id is the client. Empty where the transport has no ids.
    pub digest: String,
    /// What both sides speak; `None` before that is settled.
    pub revision: Option<&'static str>,
    /// `http`, `sse` for the deprecated HTTP+SSE transport, or `stdio`.
    pub transport: &'static str,
    /// `Implementation` object of the client, as it wrote it.
    pub client_info: Option<Json>,
    /// Requests that run.
    pub running: usize,
    /// Questions of servers that the client has not answered.
    pub questions: usize,
    /// Event streams that it has or can resume.
    pub streams: usize,
    /// How long it has had no request; `None` if it has one now, or cannot expire.
    pub idle: Option<Duration>,
}

/// A parked call.
#[derive(Clone, Debug)]
pub struct ParkedView {
    /// Its method.
    pub method: String,
    /// The tool or prompt, where it names one.
    pub name: Option<String>,
    /// The methods of what the client is asked.
    pub asked: Vec<String>,
    /// How often it has been parked.
    pub round: u32,
    /// How long it has waited.
    pub waiting: Duration,
    /// How long it will still wait.
    pub left: Duration,
}
