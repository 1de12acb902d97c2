//! The operators' listener: opened before anything runs, served until the end.

use crate::listening;
use fanlight_admin::{LiveSettings, Subject, serve_admin};
use fanlight_cli::failure::Failure;
use fanlight_config::Config;
use fanlight_frontend::{ListenAddress, ListeningSocket, SocketReceiver};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::reload::Listener;

/// The operators' listener, open but not yet served.
pub(super) struct Operators {
    pub(super) listener: Listener,
    pub(super) live: LiveSettings,
    pub(super) sockets: SocketReceiver,
}

impl Operators {
    /// Creates the listener with this socket, if it listens; `configured` is its address in the
    /// configuration.
    pub(super) fn new(
        socket: Option<ListeningSocket>,
        configured: Option<ListenAddress>,
        has_flag: bool,
        config: &Config,
    ) -> Result<Self, Failure> {
        let is_fixed = has_flag || socket.as_ref().is_some_and(ListeningSocket::is_passed);
        let tls = listening::tls_of_operators(config).map_err(Failure::usage)?;
        let (listener, sockets) = Listener::new("admin.listen", socket, configured, is_fixed, tls);
        let live = LiveSettings::new(admin::settings(config, listener.address().as_ref()));
        let live = live.with_tls(listener.tls.clone());
        Ok(Self {
            listener,
            live,
            sockets,
        })
    }
}

/// The running listener for operators.
pub(super) struct AdminListener {
    task: JoinHandle<()>,
    end: CancellationToken,
}

impl AdminListener {
    pub(super) fn start(sockets: SocketReceiver, subject: Subject, live: LiveSettings) -> Self {
        let end = CancellationToken::new();
        Self {
            task: tokio::spawn(serve_admin(sockets, subject, live, end.clone())),
            end,
        }
    }

    pub(super) async fn stop(self) {
        self.end.cancel();
        // It has nothing to drain, and an error no longer matters.
        let _ = self.task.await;
    }
}
