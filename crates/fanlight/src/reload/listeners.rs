//! The listeners of the configuration in force: their sockets, and the settings that a reload changes.
//!
//! Addresses that have changed are bound before anything else of a configuration takes effect, so that one that cannot be
//! bound changes nothing. An address that has not changed keeps its socket, and two listeners can exchange theirs.

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_admin::LiveSettings;
use fanlight_config::Config;
use fanlight_frontend::{
    FrontendSettings, ListeningSocket, LiveGuard, LiveLimits, LiveProtection, SocketReceiver, SocketSender, sockets,
};
use fanlight_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Unusable;
use crate::wiring::{client_guard, frontend_settings};
use crate::{admin, files, protection};

/// The listeners for clients and operators.
pub(crate) struct Listeners {
    /// `None` where the client is on standard input and output.
    pub(crate) clients: Option<Listener>,
    pub(crate) operators: Listener,
    /// The hosts and origins that clients may name.
    pub(crate) guard: LiveGuard,
    /// What clients need to use the endpoints.
    pub(crate) protection: LiveProtection,
    /// The limits of clients over HTTP.
    pub(crate) limits: Option<Arc<LiveLimits>>,
    /// The settings of the admin listener.
    pub(crate) admin: LiveSettings,
    /// The limit of open files, if it is known.
    pub(crate) files: Option<u64>,
    pub(crate) telemetry: Telemetry,
}

/// One listener.
pub(crate) struct Listener {
    /// The option with its address.
    pub(crate) option: &'static str,
    /// Where the configuration wants it to listen.
    pub(crate) configured: Option<SocketAddr>,
    /// Whether the command line or the service manager says where it listens.
    pub(crate) is_fixed: bool,
    /// Whether it listens only if the configuration names the address.
    pub(crate) needs_address: bool,
    pub(crate) sockets: SocketSender,
}

/// What a changed configuration does to one listener.
enum Step {
    Keep,
    /// Listen here instead, or nowhere.
    Take(Option<Arc<ListeningSocket>>),
}

/// The sockets of a changed configuration, not yet in use.
pub(crate) struct Change {
    clients: Step,
    operators: Step,
}

/// A listener that listens somewhere else now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The option with its address.
    pub(crate) option: &'static str,
    /// `None` if it does not listen any more.
    pub(crate) to: Option<SocketAddr>,
}

impl Listener {
    /// One that begins with `socket`, and its sockets.
    pub(crate) fn new(
        option: &'static str,
        socket: Option<ListeningSocket>,
        configured: Option<SocketAddr>,
        is_fixed: bool,
    ) -> (Self, SocketReceiver) {
        let (sockets, receiver) = sockets(socket.map(Arc::new));
        (Self { option, configured, is_fixed, needs_address: false, sockets }, receiver)
    }

    /// Its address, if it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.sockets.current().and_then(|socket| socket.local_address().ok())
    }

    /// The address that it is to have instead of its own, if another.
    fn next_address(&self, configured: Option<SocketAddr>) -> Option<Option<SocketAddr>> {
        let is_new = !self.is_fixed && configured != self.configured && configured != self.address();
        is_new.then_some(configured)
    }
}

impl Listeners {
    /// Where clients connect, if over HTTP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.clients.as_ref().and_then(Listener::address)
    }

    /// The URL of clients, up to the path of their endpoint.
    pub(crate) fn url(&self) -> Option<String> {
        let address = self.address()?;
        let public = self.guard.load().public_url().map(ToString::to_string);
        Some(public.unwrap_or_else(|| format!("http://{address}")))
    }

    /// Binds the addresses of `config` that are new.
    pub(crate) fn prepare(&self, config: &Config) -> Result<Change, Unusable> {
        let clients = self.clients.as_ref().and_then(|clients| clients.next_address(Some(config.listen)));
        let operators = self.operators.next_address(self.admin_address(config));
        let admin_address = operators.unwrap_or_else(|| self.operators.address());
        if let Some(address) = admin_address.filter(|address| !config.admin.may_listen(*address)) {
            return Err(Unusable::Other(format!(
                "the admin listener at {address} can be reached from other machines, and there is no token: set \
                 `admin.token`"
            )));
        }
        // Others can share an address only with sockets that allow it.
        let made_shared: Vec<_> = if config.reuse_port { self.sockets().collect() } else { Vec::new() };
        let made_shared: Vec<_> = made_shared.into_iter().filter(|socket| !socket.shares_port()).collect();
        made_shared.iter().for_each(|socket| share(socket, true));
        let change = self.bind(config, clients, operators);
        if change.is_err() {
            made_shared.iter().for_each(|socket| share(socket, false));
        }
        change
    }

    fn bind(
        &self,
        config: &Config,
        clients: Option<Option<SocketAddr>>,
        operators: Option<Option<SocketAddr>>,
    ) -> Result<Change, Unusable> {
        // A socket that one of them leaves is free for the other.
        let left_by = |listener: Option<&Listener>, next: &Option<_>| {
            next.and(listener).and_then(|listener| listener.sockets.current())
        };
        let (of_clients, of_operators) =
            (left_by(self.clients.as_ref(), &clients), left_by(Some(&self.operators), &operators));
        let step = |option, next, left: &Option<Arc<ListeningSocket>>| -> Result<Step, Unusable> {
            let address = match next {
                None => return Ok(Step::Keep),
                Some(None) => return Ok(Step::Take(None)),
                Some(Some(address)) => address,
            };
            let is_there = |socket: &&Arc<ListeningSocket>| socket.local_address().is_ok_and(|own| own == address);
            if let Some(left) = left.as_ref().filter(is_there) {
                return Ok(Step::Take(Some(Arc::clone(left))));
            }
            match ListeningSocket::bind(address, config.reuse_port) {
                Ok(socket) => Ok(Step::Take(Some(Arc::new(socket)))),
                Err(error) => Err(self.cannot_bind(option, address, &error)),
            }
        };
        let clients = step("listen", clients, &of_operators)?;
        let operators = step("admin.listen", operators, &of_clients)?;
        Ok(Change { clients, operators })
    }

    fn cannot_bind(&self, option: &str, address: SocketAddr, error: &std::io::Error) -> Unusable {
        let own = self.sockets().filter_map(|socket| socket.local_address().ok()).find(|own| overlap(*own, address));
        let help = match own {
            Some(own) if error.kind() == std::io::ErrorKind::AddrInUse => format!(
                "Fanlight itself listens on {own}, which overlaps with it: restart Fanlight, or set `reusePort: true`, \
                 with which both can be open at the same time"
            ),
            _ => format!("choose another address for `{option}`"),
        };
        Unusable::Other(format!("cannot listen on {address} (`{option}`): {error}; {help}"))
    }

    /// Has the sockets and the settings of `config` take effect. Returns which listeners listen somewhere else now; their
    /// connections have `timeouts.drain` or `timeouts.adminDrain` to end.
    pub(crate) async fn commit(&mut self, change: Change, config: &Config) -> Vec<Moved> {
        let Change { clients, operators } = change;
        let mut moved = Vec::new();
        let address = match &clients {
            Step::Keep => self.address(),
            Step::Take(socket) => socket.as_ref().and_then(|socket| socket.local_address().ok()),
        };
        self.guard.replace(client_guard(config, address.unwrap_or(config.listen)));
        self.protection.replace(protection::settings(config));
        if let Some(limits) = &self.limits {
            limits.replace(&self.frontend_settings(config));
        }
        // Until operators are asked for what the new settings require, nothing is served: the old address may be reached
        // by others than the new one.
        if let Step::Take(_) = &operators {
            self.operators.sockets.exchange(None).await;
        }
        if let (Step::Take(socket), Some(listener)) = (clients, &self.clients) {
            moved.push(take(listener, socket).await);
        }
        let configured = self.admin_address(config);
        let operators = match operators {
            Step::Keep => None,
            Step::Take(socket) => Some(socket),
        };
        let address = match &operators {
            None => self.operators.address(),
            Some(socket) => socket.as_ref().and_then(|socket| socket.local_address().ok()),
        };
        let mut fitted = config.clone();
        files::lower(&mut fitted.limits, self.files);
        self.admin.replace(admin::settings(&fitted, address));
        if let Some(socket) = operators {
            moved.push(take(&self.operators, socket).await);
        }
        self.sockets().filter(|socket| socket.shares_port() != config.reuse_port).for_each(|socket| {
            share(&socket, config.reuse_port);
        });
        self.operators.configured = configured;
        if let Some(clients) = &mut self.clients {
            clients.configured = Some(config.listen);
        }
        moved
    }

    /// `config` with the addresses and limits that came to be in force.
    pub(crate) fn in_force(&self, config: &mut Config) {
        config.listen = self.address().unwrap_or(config.listen);
        config.admin.listen = self.operators.address();
        files::lower(&mut config.limits, self.files);
    }

    fn frontend_settings(&self, config: &Config) -> FrontendSettings {
        let mut config = config.clone();
        files::fit(&mut config.limits, self.files);
        frontend_settings(&config, &self.telemetry, &CancellationToken::new())
    }

    fn admin_address(&self, config: &Config) -> Option<SocketAddr> {
        config.admin.listen.filter(|_| !(self.operators.needs_address && config.admin.is_default))
    }

    /// The sockets in use, but for those of the service manager.
    fn sockets(&self) -> impl Iterator<Item = Arc<ListeningSocket>> {
        let listeners = self.clients.iter().chain([&self.operators]);
        listeners.filter_map(|listener| listener.sockets.current()).filter(|socket| !socket.is_passed())
    }
}

async fn take(listener: &Listener, socket: Option<Arc<ListeningSocket>>) -> Moved {
    let (option, from) = (listener.option, listener.address());
    let to = socket.as_ref().and_then(|socket| socket.local_address().ok());
    if !listener.sockets.exchange(socket).await {
        warn!(option, "listening address not changed: Fanlight is ending");
        return Moved { option, to: None };
    }
    info!(option, ?from, ?to, "listening address changed");
    if option == "listen" {
        to.into_iter().for_each(warn_if_remote);
    }
    Moved { option, to }
}

/// Warns of a listener for clients that other machines can reach.
pub(crate) fn warn_if_remote(address: SocketAddr) {
    if !address.ip().is_loopback() {
        warn!(%address, "listening beyond this machine without authentication of clients: put an authenticating proxy in front");
    }
}

fn share(socket: &ListeningSocket, shares: bool) {
    if let Err(error) = socket.set_shares_port(shares) {
        warn!(%error, "`reusePort` of an open socket not changed");
    }
}

/// Whether two sockets at these addresses would get the same connections.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() == other.port() && (a == b || a.is_unspecified() || b.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_with_all_addresses_of_their_port() {
        let overlap = |one: &str, other: &str| overlap(one.parse().unwrap(), other.parse().unwrap());
        assert!(overlap("0.0.0.0:80", "127.0.0.1:80") && overlap("127.0.0.1:80", "[::]:80"));
        assert!(overlap("127.0.0.1:80", "[::ffff:127.0.0.1]:80"));
        assert!(!overlap("0.0.0.0:80", "127.0.0.1:81") && !overlap("127.0.0.2:80", "127.0.0.1:80"));
    }
}
