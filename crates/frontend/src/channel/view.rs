//! The operators' view of a client on a channel.

use std::sync::Arc;

use fanlight_telemetry::clients::{Clients, ClientsView, Counts, SessionView};

use super::ChannelConnection;
use crate::streams::SessionStreams;

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
