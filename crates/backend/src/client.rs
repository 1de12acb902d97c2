//! What the core asks of a backend, in the one canonical form that has no era and no transport.
//!
//! Must not know: how a backend is reached.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Era, Json, Method, Notification, Response};
use fanlight_telemetry::Parent;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::BackendError;
use crate::listen::{Listen, Listening};
pub use crate::messages::{Inbox, ServerMessages};

/// The future of a backend's answer. Dropping it cancels the request at the backend.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// One MCP server, whatever its era and transport.
pub trait BackendClient: Send + Sync + 'static {
    /// The name the configuration gives it.
    fn name(&self) -> &str;

    /// What the server says of itself, connecting first if needed. The view holds the text of its
    /// `initialize` or `server/discover` result.
    fn describe(&self) -> Pending<'_, ServerDescription>;

    /// Sends one request and waits for its answer, which may be a JSON-RPC error of the backend.
    /// Results are views over the text received ([`Response::view`]). Notifications that belong to
    /// the request, and questions of the server to the client, go to [`Call::messages`] before this
    /// resolves. A call that may have run is
    /// never sent a second time.
    fn request(&self, call: Call) -> Pending<'_, Response>;

    /// Begins to listen to what the server sends outside of calls. Resolves once it is known what of
    /// the interest is honoured; messages may have arrived before. Listening survives the loss of a
    /// connection: it is set up anew, and since something may have been missed meanwhile, list
    /// changes and updates that it is interested in are announced then.
    fn listen(&self, listen: Listen) -> Pending<'_, Listening>;

    /// The client's session has ended: whatever the backend keeps for it can go.
    fn end_session(&self, session: SessionKey);

    /// How the backend is doing, without waiting for anything.
    fn status(&self) -> BackendStatus;
}

/// A request in canonical form.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// `params` as the client sent them, but for names that the core has translated. Per-hop keys
    /// of `_meta` may still be in it: the edge towards the backend replaces them with its own.
    pub params: Option<Json>,
    /// What the backend may learn of the client.
    pub context: Arc<CallContext>,
    /// Where what the server sends for this request before its answer goes.
    pub messages: ServerMessages,
}

/// Tells sessions of clients apart within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// What the edges need to know of the client behind a call.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// Tells clients apart: calls with the same key come from the same session or connection, so
    /// what is meant for one may be shown to the other. Unique per modern request. 0 is Fanlight
    /// itself.
    pub client_key: u64,
    /// The client's session, if it has one. A legacy server gets a session of its own for each, so
    /// that state and capabilities of one client never leak to another. Ends with
    /// [`BackendClient::end_session`].
    pub session: Option<SessionKey>,
    /// `Implementation` object of the client, if it gave one.
    pub client_info: Option<Json>,
    /// `ClientCapabilities` object: what the server may ask of the client during this call.
    pub capabilities: Json,
    /// The least severe log message the client asked for; `None` if it asked for none in
    /// particular.
    pub log_level: Option<LogLevel>,
    /// Whether the client gave a progress token.
    pub wants_progress: bool,
    /// How the client speaks of tasks; `None` if it does not.
    pub tasks: Option<TaskDialect>,
    /// The span that the request belongs to: what is done for it stands under it.
    pub trace: Parent,
}

/// The two ways of speaking of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskDialect {
    /// The requestor asks for a task (2025-11-25 basic/utilities/tasks).
    Requested,
    /// The server decides (extension `io.modelcontextprotocol/tasks`).
    Extension,
}

impl CallContext {
    /// The context of the requests by which lists are read that are shown to clients of all kinds: a
    /// server may list some entries only for clients that can be asked something. `trace` is of the
    /// request that has them read, if there is one.
    #[must_use]
    pub fn for_lists(trace: &Parent) -> Arc<Self> {
        let capabilities = Json::literal(crate::declared::ALL_MODERN);
        Arc::new(Self { capabilities, ..(*Self::within(trace)).clone() })
    }

    /// Whether the request is Fanlight's own.
    pub(crate) fn is_internal(&self) -> bool {
        self.client_key == 0 && self.session.is_none()
    }

    /// The context of a request that Fanlight makes on its own behalf.
    #[must_use]
    pub fn internal() -> Arc<Self> {
        Self::within(&Parent::default())
    }

    /// The same while Fanlight does what `trace` is about.
    #[must_use]
    pub fn within(trace: &Parent) -> Arc<Self> {
        Arc::new(Self {
            client_key: 0,
            session: None,
            client_info: None,
            capabilities: Json::empty_object(),
            log_level: None,
            wants_progress: false,
            tasks: None,
            trace: trace.clone(),
        })
    }
}

/// What a server sends for the client of one call before it answers the call.
#[derive(Debug)]
pub enum ServerMessage {
    /// A notification that belongs to the call. `notifications/progress` carries the token that
    /// Fanlight made for its hop; the client's edge puts the client's own token in its place.
    Notification(Notification),
    /// A question to the client (elicitation, sampling, roots): a request of a legacy server.
    Request(ServerRequest),
    /// The server has asked the client of the call something, and was refused without the client
    /// being asked, which lacks a capability for it.
    Refused(MissingCapability),
    /// The server has closed the stream of the call and will be asked for the rest of it after
    /// `retry` (2025-11-25 basic/transports, Sending Messages to the Server). The backend's edge
    /// does that; the client's edge may have its client do the same, or ignore this.
    Pause {
        /// The delay that the server asks for, if it does.
        retry: Option<Duration>,
    },
}

/// A question that a server asks the client of a call while the call runs.
#[derive(Debug)]
pub struct ServerRequest {
    /// The method, such as `elicitation/create`.
    pub method: Method,
    /// `params` as the server sent them.
    pub params: Option<Json>,
    /// The span of the question.
    pub trace: Parent,
    /// Where the client's answer goes: a result or an error, whose id does not matter. Dropped
    /// without one, the server is told that the client cannot be asked. Closed once the server
    /// does not wait for it any more.
    pub answer: oneshot::Sender<Response>,
    /// When whoever asks gives up: an answer after this is for nobody.
    pub deadline: Instant,
}

/// How a backend is doing.
#[derive(Clone, Debug)]
pub struct BackendStatus {
    /// Whether the first attempt to connect has ended, well or badly.
    pub attempted: bool,
    /// Whether requests can be sent at once.
    pub state: BackendState,
    /// The era found, once it is known.
    pub era: Option<Era>,
    /// The revision in use, once it is known.
    pub revision: Option<&'static str>,
    /// `stdio`, `http`, or `sse` for the deprecated HTTP+SSE transport.
    pub transport: &'static str,
}

/// Whether requests can be sent at once.
#[derive(Clone, Debug)]
pub enum BackendState {
    /// Not connected; the next request connects.
    Idle,
    /// A connection is being made.
    Connecting,
    /// Requests can be sent.
    Ready,
    /// The last attempt failed; the next is due after this long at the latest.
    Down {
        /// Why.
        error: BackendError,
        /// Until the next attempt.
        retry_in: Duration,
    },
}
