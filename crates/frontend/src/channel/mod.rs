//! Clients whose messages all go through one ordered channel: stdio, and the deprecated HTTP+SSE
//! transport of 2024-11-05.

mod connection;
pub(crate) mod stdio;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Era;
use fanlight_telemetry::clients::{Clients, ClientsView, Counts, SessionView};
use tokio_util::sync::CancellationToken;

use crate::streams::SessionStreams;
use crate::trace::Ending;
pub(crate) use connection::ChannelConnection;

/// The number of messages that wait for the client. A constant, since a full queue makes senders
/// wait: it bounds memory and loses nothing.
pub(crate) const QUEUE: usize = 16;

/// A message to the client, and the end of its span.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) text: Bytes,
    pub(crate) ending: Option<Box<Ending>>,
}

/// The differences between the kinds of channels.
#[derive(Default)]
pub(crate) struct ChannelOptions {
    /// The era of requests that are served; `None` for both.
    pub(crate) only: Option<Era>,
    /// How long the queue may stay full before the client is disconnected; `None` for no limit.
    pub(crate) write_timeout: Option<Duration>,
    /// Cancelling this token ends everything without answers.
    pub(crate) cut: CancellationToken,
    /// Makes a guard for each running request.
    pub(crate) running: Option<RunningHook>,
}

/// Makes a guard for a running request.
pub(crate) type RunningHook = Box<dyn Fn() -> Box<dyn Any + Send> + Send + Sync>;

impl ChannelConnection {
    /// The client's session, if it has one. Its connection counts as the session's stream.
    pub(crate) fn session_view(&self, id: &str, transport: &'static str) -> Option<SessionView> {
        let session = self.current_session()?;
        Some(SessionView {
            streams: 1,
            ..session.view(id, transport)
        })
    }
}

/// The client on standard input and output. Its session has no id.
impl Clients for ChannelConnection {
    fn view(&self) -> ClientsView {
        let view = |session: Arc<SessionStreams>| SessionView {
            digest: String::new(),
            streams: 0,
            ..session.view("", "stdio")
        };
        ClientsView {
            sessions: self.current_session().map(view).into_iter().collect(),
            suspended: self.ingress.suspended_calls.views(),
            streams: self.ingress.subscriptions.count(),
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            sessions: usize::from(self.current_session().is_some()),
            suspended: self.ingress.suspended_calls.count(),
            streams: self.ingress.subscriptions.count(),
        }
    }

    /// Always false: the session of standard input and output ends with the process.
    fn end_session(&self, _: &str) -> bool {
        false
    }
}
