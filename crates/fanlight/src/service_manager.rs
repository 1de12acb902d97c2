//! The dialogue with the service manager that started Fanlight (systemd): readiness, reloads, the
//! watchdog (sd_notify(3)), and passed sockets (sd_listen_fds(3)). Without a service manager,
//! nothing happens.

use std::net::TcpListener as StdListener;

use fanlight_frontend::ListeningSocket;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use fanlight_cli::failure::{Failure, Result};

/// Reports that clients are served.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that the configuration is being reloaded; [`ready`] follows.
pub(crate) fn reloading() {
    // systemd identifies the reload by its time.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Reports that Fanlight is ending.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Reports regularly that the main thread works, until the result is dropped.
#[must_use]
pub(crate) fn watchdog() -> Option<DropGuard> {
    let limit = sd_notify::watchdog_enabled()?;
    let end = CancellationToken::new();
    let alive = async move {
        let mut ticks = interval(limit / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            notify(&[NotifyState::Watchdog]);
        }
    };
    drop(tokio::spawn(end.clone().run_until_cancelled_owned(alive)));
    Some(end.drop_guard())
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "service manager not notified");
    }
}

/// Sockets that the service manager has opened: the first for clients, the second for operators.
pub(crate) struct Sockets(ListenFd);

impl Sockets {
    /// Takes over the sockets.
    pub(crate) fn take() -> Self {
        Self(ListenFd::from_env())
    }

    /// The socket for clients, if there is one.
    pub(crate) fn clients(&mut self) -> Result<Option<ListeningSocket>> {
        self.socket(0, "listen")
    }

    /// The socket for operators, if there is one.
    pub(crate) fn operators(&mut self) -> Result<Option<ListeningSocket>> {
        self.socket(1, "admin.listen")
    }

    fn socket(&mut self, number: usize, replaced: &str) -> Result<Option<ListeningSocket>> {
        let unusable = |error| {
            Failure::other(format!(
                "socket {number} of the service manager cannot be used: {error}"
            ))
        };
        if number >= self.0.len() {
            return Ok(None);
        }
        // A socket that is not TCP is left where it is.
        let socket = match self.0.take_tcp_listener(number) {
            Ok(None) => return Ok(None),
            Ok(Some(socket)) => {
                ListeningSocket::from_service_manager(tokio_listener(socket).map_err(unusable)?)
            }
            Err(_) => match self.0.take_unix_listener(number).map_err(unusable)? {
                Some(socket) => ListeningSocket::passed_unix(socket).map_err(unusable)?,
                None => return Ok(None),
            },
        };
        let address = socket.address().map_err(unusable)?;
        info!(%address, "listening on a socket of the service manager instead of `{replaced}`");
        Ok(Some(socket))
    }
}

fn tokio_listener(socket: StdListener) -> std::io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}
