//! What an operator may see of a client on a channel.
//!
//! Must not know: who looks.

use std::sync::Arc;

use fanlight_telemetry::clients::{Clients, ClientsView, Counts, SessionView};

use super::Connection;
use crate::session::Session;
use fanlight_canonical::Core;

impl<C: Core> Connection<C> {
    /// What an operator may see of its session, if it has one. Its stream is the connection.
    pub(crate) fn shown(&self, id: &str, transport: &'static str) -> Option<SessionView> {
        let session = self.current_session()?;
        Some(SessionView { streams: 1, ..session.shown(id, transport) })
    }
}

/// What an operator sees of a client on standard input and output, which has a transport to itself and
/// so no id.
impl<C: Core> Clients for Connection<C> {
    fn view(&self) -> ClientsView {
        let session = self.current_session();
        let view =
            |session: Arc<Session>| SessionView { digest: String::new(), streams: 0, ..session.shown("", "stdio") };
        ClientsView {
            sessions: session.map(view).into_iter().collect(),
            suspended: self.parking.shown(),
            streams: self.subscriptions.open(),
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            sessions: usize::from(self.current_session().is_some()),
            suspended: self.parking.count(),
            streams: self.subscriptions.open(),
        }
    }
}
