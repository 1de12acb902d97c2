//! What the core asks of a backend.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Era, Notification, Response};
use tokio::time::Instant;

use crate::call::{Call, CallContext};
use crate::caller::SessionKey;
use crate::canary::CanaryRule;
use crate::error::BackendError;
use crate::listen::{Listen, Listening};
use crate::process::ProcessOutput;

/// The future of a backend's answer. Dropping it cancels the request at the backend.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// One MCP server, whatever its era and transport.
pub trait BackendClient: Send + Sync + 'static {
    /// The name the configuration gives it.
    fn name(&self) -> &str;

    /// The server's description of itself, connecting first if needed: a view of the text of its
    /// `initialize` or `server/discover` result.
    fn describe(&self) -> Pending<'_, ServerDescription>;

    /// The server's description of itself as it gives it to clients like this one: a server that serves more than one
    /// era may describe itself differently in each.
    fn describe_to<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        let _ = client;
        self.describe()
    }

    /// Sends one request and waits for its response, which may be a JSON-RPC error of the backend.
    /// Results are views of the text received ([`Response::view`]). Notifications that belong to the
    /// request, and requests of the server to the client, are sent to [`Call::messages`] before this
    /// resolves. A call that may have run is never sent a second time.
    fn request(&self, call: Call) -> Pending<'_, Response>;

    /// Whether a request does no harm if it runs twice: it reads by its definition, or calls a tool that says so of itself, and
    /// has said so within the last few seconds.
    fn is_safe<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        let _ = call;
        Box::pin(std::future::ready(false))
    }

    /// Begins to listen to what the server sends outside of calls. Resolves once it is known which
    /// part of the interest is honoured; messages may have arrived before. Listening survives the
    /// loss of a connection: it is set up again, and since something may have been missed meanwhile,
    /// list changes and updates within the interest are announced then.
    fn listen(&self, listen: Listen) -> Pending<'_, Listening>;

    /// Sends a notification of a client, if its session has a connection of its own.
    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        let _ = (notification, client);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The client's session goes on here, with the sessions at servers that another process has opened for it: the backend
    /// goes on with those that are its own. Must not block.
    fn continue_session(&self, client: &Arc<CallContext>) {
        let _ = client;
    }

    /// The client's session has ended: the backend may drop all it keeps for it.
    fn end_session(&self, session: SessionKey);

    /// The state of the backend, without waiting for anything.
    fn status(&self) -> BackendStatus;

    /// The endpoints of one that has several.
    fn endpoints(&self) -> Vec<EndpointStatus> {
        Vec::new()
    }

    /// The version of it that serves a share of its clients, if there is one.
    fn canary(&self) -> Option<CanaryStatus> {
        None
    }

    /// The version of it that gets copies of its requests, if there is one.
    fn mirror(&self) -> Option<MirrorStatus> {
        None
    }

    /// Waits until Fanlight's own connection to it, or while that rests a client's, has been made later than `since`; returns
    /// when the last was. What was read before may have changed, since the server may be another process.
    fn connection_made(
        &self,
        since: Option<Instant>,
    ) -> Pin<Box<dyn Future<Output = Instant> + Send + '_>> {
        let _ = since;
        Box::pin(std::future::pending())
    }

    /// How client sessions are served, and why, for operators; `None` where that is configured, or does not matter.
    fn session_choice(&self) -> Pending<'_, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether its process may be ended while nothing uses it. Its lists are then served from memory.
    fn may_rest(&self) -> bool {
        false
    }

    /// Whether each principal reaches it with credentials of its own: then its lists are each principal's as well.
    fn knows_principals(&self) -> bool {
        false
    }

    /// The tool that stands for all others in its list while its user has not signed in, by its own name.
    fn stand_in(&self) -> Option<&'static str> {
        None
    }

    /// What its processes have written besides messages; nothing if it has none.
    fn process_output(&self) -> ProcessOutput {
        ProcessOutput::default()
    }
}

/// The state of a backend.
#[derive(Clone, Debug)]
pub struct BackendStatus {
    /// Whether the first attempt to connect has ended, well or badly, or takes longer than requests wait for it.
    pub attempted: bool,
    /// Whether requests can be sent at once.
    pub state: BackendState,
    /// The era found, once it is known.
    pub era: Option<Era>,
    /// The revision in use, once it is known.
    pub revision: Option<&'static str>,
    /// `stdio`, `http`, or `sse` for the deprecated HTTP+SSE transport.
    pub transport: &'static str,
    /// The attempt to connect that is being made.
    pub starting: Option<Starting>,
    /// Why the last attempt to connect failed, until one succeeds.
    pub failure: Option<BackendError>,
}

/// The state of one of several endpoints of a backend.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Where it is, for operators: scheme, host and port, and the address if the host has several.
    pub place: String,
    /// The zone that it is in, if that is said.
    pub zone: Option<Arc<str>>,
    /// Whether requests can be sent to it.
    pub state: BackendState,
    /// Requests that are running there.
    pub running: usize,
    /// How long its calls have taken lately.
    pub latency: Duration,
    /// It is no longer among the endpoints of the backend, and gets only what belongs to it.
    pub is_leaving: bool,
}

/// The canary of a server, for operators.
#[derive(Clone, Debug)]
pub struct CanaryStatus {
    /// The entry of the configuration that it is.
    pub server: Arc<str>,
    /// Which clients it serves.
    pub rule: Arc<CanaryRule>,
    /// Its state.
    pub status: BackendStatus,
}

/// The mirror of a server, for operators.
#[derive(Clone, Debug)]
pub struct MirrorStatus {
    /// The entry of the configuration that it is.
    pub server: Arc<str>,
    /// The share of requests that are copied, from 0 to 1.
    pub share: f64,
    /// Its state.
    pub status: BackendStatus,
    /// What became of the copies, in the order of [`MirrorOutcome::ALL`](crate::MirrorOutcome::ALL).
    pub counts: [u64; 4],
    /// The last answers that differed, the newest first.
    pub differences: Vec<MirrorDifference>,
}

/// An answer of a mirror that differed from that of its server.
#[derive(Clone, Debug)]
pub struct MirrorDifference {
    /// When it was found.
    pub at: SystemTime,
    /// The method of the request.
    pub method: Box<str>,
    /// What the request named: a tool, or a resource without its query.
    pub item: Option<Box<str>>,
    /// What differs, a line for each difference.
    pub lines: Vec<String>,
    /// The trace of the copy, if it is recorded.
    pub trace: Option<Box<str>>,
}

/// An attempt to connect to a server, or to start its process, that is being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starting {
    /// When it began.
    pub since: SystemTime,
    /// How long it has taken so far.
    pub elapsed: Duration,
    /// What the process wrote last to standard error.
    pub last_line: Option<Arc<str>>,
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
    /// It is connected and answers checks, but no calls: they fail at once until one that is tried is answered.
    Ejected {
        /// Why.
        error: BackendError,
        /// Until a call is tried.
        retry_in: Duration,
    },
    /// The last attempt failed; the next is due after this long at the latest.
    Down {
        /// Why.
        error: BackendError,
        /// Until the next attempt.
        retry_in: Duration,
    },
    /// So many attempts have failed in a row that only a request, after a while, has another made.
    Failed {
        /// Why the last one failed.
        error: BackendError,
    },
}
