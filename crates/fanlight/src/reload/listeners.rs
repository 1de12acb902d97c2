//! The listeners of the configuration in force: their sockets, and the settings that a reload
//! changes.
//!
//! New addresses are bound before anything else of a configuration takes effect, so a failure to
//! bind changes nothing. A listener with the same address keeps its socket, and two listeners can
//! exchange theirs.

use std::sync::Arc;

use fanlight_admin::LiveSettings;
use fanlight_cli::failure::Unusable;
use fanlight_cli::listeners::{check_clients, check_operators};
use fanlight_config::Config;
use fanlight_config::scheme;
use fanlight_config::settings::is_loopback;
use fanlight_frontend::{
    FrontendSettings, ListenAddress, ListeningSocket, LiveGuard, LiveLimits, LiveProtection,
    LiveTls, SocketReceiver, SocketSender, sockets,
};
use fanlight_http::{LoadedTls, TlsMarks};
use fanlight_replicas::{Renewed, ReplicaCertificates};
use fanlight_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use crate::admin;
use crate::files;
use crate::listening;
use crate::protection;
use crate::wiring::{client_guard, frontend_settings};

/// The listeners for clients and operators.
pub(crate) struct Listeners {
    /// The clients' listener; `None` if the client uses standard input and output.
    pub(crate) clients: Option<Listener>,
    pub(crate) operators: Listener,
    /// The hosts and origins that clients may name.
    pub(crate) guard: LiveGuard,
    /// The clients' requirements for using the endpoints.
    pub(crate) protection: LiveProtection,
    /// The limits of clients over HTTP.
    pub(crate) limits: Option<Arc<LiveLimits>>,
    /// The certificates of replicas, if there are others.
    pub(crate) replicas: Option<ReplicaCertificates>,
    /// The settings of the admin listener.
    pub(crate) admin: LiveSettings,
    /// The limit of open files, if known.
    pub(crate) files: Option<u64>,
    pub(crate) telemetry: Telemetry,
}

/// One listener.
pub(crate) struct Listener {
    /// The option with the listener's address.
    pub(crate) option: &'static str,
    /// The address in the configuration.
    pub(crate) configured: Option<ListenAddress>,
    /// Whether the command line or the service manager has set the address.
    pub(crate) is_fixed: bool,
    /// Whether it listens only if the configuration has the address.
    pub(crate) needs_address: bool,
    pub(crate) sockets: SocketSender,
    /// The listener's TLS, shared with its tasks.
    pub(crate) tls: LiveTls,
    /// The digests of the files of its TLS.
    tls_marks: Option<TlsMarks>,
}

/// The effect of a changed configuration on a listener.
enum Step {
    Keep,
    /// Use this socket instead, or none.
    Take(Option<Arc<ListeningSocket>>),
}

/// The sockets of a changed configuration, not yet in use.
pub(crate) struct Change {
    clients: Step,
    operators: Step,
    tls_of_clients: Option<LoadedTls>,
    tls_of_operators: Option<LoadedTls>,
    replicas: Renewed,
}

/// A listener that changed its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The option with the listener's address.
    pub(crate) option: &'static str,
    /// The new address; `None` if it no longer listens.
    pub(crate) to: Option<ListenAddress>,
}

impl Listener {
    /// A listener that starts with `socket` and `tls`, and the receiver of its sockets.
    pub(crate) fn new(
        option: &'static str,
        socket: Option<ListeningSocket>,
        configured: Option<ListenAddress>,
        is_fixed: bool,
        tls: Option<LoadedTls>,
    ) -> (Self, SocketReceiver) {
        let (sockets, receiver) = sockets(socket.map(Arc::new));
        let tls_marks = tls.as_ref().map(|tls| tls.marks);
        let tls = LiveTls::new(tls.map(|tls| tls.server));
        (
            Self {
                option,
                configured,
                is_fixed,
                needs_address: false,
                sockets,
                tls,
                tls_marks,
            },
            receiver,
        )
    }

    /// The listener's address, if it listens.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        self.sockets
            .current()
            .and_then(|socket| socket.address().ok())
    }

    /// The listener's new address, if it changes.
    fn next_address(&self, configured: Option<ListenAddress>) -> Option<Option<ListenAddress>> {
        let is_new =
            !self.is_fixed && configured != self.configured && configured != self.address();
        is_new.then_some(configured)
    }

    /// The step if TLS changes. If client certificates have new requirements, the listener counts
    /// as moved, so that connections under the old ones end.
    fn step_for(&self, step: Step, tls: Option<&LoadedTls>) -> Step {
        let demands = |marks: TlsMarks| marks.clients;
        let is_demanding_else = self.tls_marks.map(demands) != tls.map(|tls| demands(tls.marks));
        match step {
            Step::Keep if is_demanding_else => self
                .sockets
                .current()
                .map_or(Step::Keep, |own| Step::Take(Some(own))),
            step => step,
        }
    }

    /// Sets the TLS of new connections.
    fn set_tls(&mut self, tls: Option<LoadedTls>) {
        let marks = tls.as_ref().map(|tls| tls.marks);
        if marks == self.tls_marks {
            return;
        }
        info!(
            option = self.option,
            is_on = tls.is_some(),
            "TLS of the listener changed, since its files or options did"
        );
        self.tls_marks = marks;
        self.tls.replace(tls.map(|tls| tls.server));
    }
}

impl Listeners {
    /// The address that clients connect to, if over HTTP.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        self.clients.as_ref().and_then(Listener::address)
    }

    /// The base URL for clients, without the path of their endpoint.
    pub(crate) fn url(&self, config: &Config) -> Option<String> {
        let address = self.address()?;
        let public = self.guard.load().public_url().map(ToString::to_string);
        Some(public.unwrap_or_else(|| match address {
            ListenAddress::Ip(address) => format!("{}://{address}", scheme(&config.tls)),
            ListenAddress::Unix(_) => address.to_string(),
        }))
    }

    /// Binds the new addresses of `config`, and reads the files of its TLS.
    pub(crate) fn prepare(&self, config: &Config) -> Result<Change, Unusable> {
        let clients = self
            .clients
            .as_ref()
            .and_then(|clients| clients.next_address(Some(config.listen.clone())));
        let operators = self.operators.next_address(self.admin_address(config));
        if let Some(address) = clients.clone().unwrap_or_else(|| self.address()) {
            check_clients(config, &address).map_err(Unusable::Other)?;
        }
        if let Some(address) = operators
            .clone()
            .unwrap_or_else(|| self.operators.address())
        {
            check_operators(config, &address).map_err(Unusable::Other)?;
        }
        let tls_of_clients = match self.clients {
            Some(_) => listening::tls_of_clients(config).map_err(Unusable::Other)?,
            None => None,
        };
        let tls_of_operators = listening::tls_of_operators(config).map_err(Unusable::Other)?;
        let replicas = self
            .replicas
            .as_ref()
            .map(|own| own.prepare(config))
            .transpose();
        let replicas = replicas.map_err(Unusable::Other)?.unwrap_or_default();
        let (clients, operators) = self.bind(clients, operators)?;
        Ok(Change {
            clients: self.clients.as_ref().map_or(Step::Keep, |own| {
                own.step_for(clients, tls_of_clients.as_ref())
            }),
            operators: self
                .operators
                .step_for(operators, tls_of_operators.as_ref()),
            tls_of_clients,
            tls_of_operators,
            replicas,
        })
    }

    fn bind(
        &self,
        clients: Option<Option<ListenAddress>>,
        operators: Option<Option<ListenAddress>>,
    ) -> Result<(Step, Step), Unusable> {
        // A socket that one listener gives up is free for the other.
        let left_by = |listener: Option<&Listener>, next: &Option<_>| {
            next.as_ref()
                .and(listener)
                .and_then(|listener| listener.sockets.current())
        };
        let (of_clients, of_operators) = (
            left_by(self.clients.as_ref(), &clients),
            left_by(Some(&self.operators), &operators),
        );
        let step = |option, next, left: &Option<Arc<ListeningSocket>>| -> Result<Step, Unusable> {
            let address = match next {
                None => return Ok(Step::Keep),
                Some(None) => return Ok(Step::Take(None)),
                Some(Some(address)) => address,
            };
            let is_there =
                |socket: &&Arc<ListeningSocket>| socket.address().is_ok_and(|own| own == address);
            if let Some(left) = left.as_ref().filter(is_there) {
                return Ok(Step::Take(Some(Arc::clone(left))));
            }
            match ListeningSocket::bind(&address) {
                Ok(socket) => Ok(Step::Take(Some(Arc::new(socket)))),
                Err(error) => Err(self.cannot_bind(option, &address, &error)),
            }
        };
        let clients = step("listen", clients, &of_operators)?;
        let operators = step("admin.listen", operators, &of_clients)?;
        Ok((clients, operators))
    }

    fn cannot_bind(
        &self,
        option: &str,
        address: &ListenAddress,
        error: &std::io::Error,
    ) -> Unusable {
        let own = self
            .sockets()
            .filter_map(|socket| socket.address().ok())
            .find(|own| overlap(own, address));
        let help = match own {
            Some(own) if error.kind() == std::io::ErrorKind::AddrInUse => {
                format!("Fanlight itself listens on {own}, which overlaps: restart Fanlight")
            }
            _ => format!("choose another address for `{option}`"),
        };
        Unusable::Other(format!(
            "cannot listen on {address} (`{option}`): {error}; {help}"
        ))
    }

    /// Puts the sockets and settings of `config` in force. Returns the listeners that moved; their
    /// connections have `timeouts.drain` to end, operators' connections a second.
    pub(crate) async fn commit(&mut self, change: Change, config: &Config) -> Vec<Moved> {
        let Change {
            clients,
            operators,
            tls_of_clients,
            tls_of_operators,
            replicas,
        } = change;
        let mut moved = Vec::new();
        let address = match &clients {
            Step::Keep => self.address(),
            Step::Take(socket) => socket.as_ref().and_then(|socket| socket.address().ok()),
        };
        self.guard.replace(client_guard(
            config,
            address.as_ref().unwrap_or(&config.listen),
        ));
        self.clients
            .iter_mut()
            .for_each(|clients| clients.set_tls(tls_of_clients.clone()));
        if let Some(own) = &mut self.replicas {
            own.commit(replicas);
        }
        self.protection.replace(protection::settings(config));
        if let Some(limits) = &self.limits {
            limits.replace(&self.frontend_settings(config));
        }
        // Operators are served again only under the new settings, since others may reach the old
        // address.
        let earlier = self.operators.address();
        if let Step::Take(_) = &operators {
            self.operators.sockets.exchange(None).await;
        }
        if let (Step::Take(socket), Some(listener)) = (clients, &self.clients) {
            let taken = take(listener, socket, listener.address()).await;
            taken
                .iter()
                .filter_map(|moved| moved.to.as_ref())
                .for_each(|to| warn_if_open(config, to));
            moved.extend(taken);
        }
        let configured = self.admin_address(config);
        let operators = match operators {
            Step::Keep => None,
            Step::Take(socket) => Some(socket),
        };
        let address = match &operators {
            None => self.operators.address(),
            Some(socket) => socket.as_ref().and_then(|socket| socket.address().ok()),
        };
        let mut fitted = config.clone();
        files::lower(&mut fitted.limits, self.files);
        self.admin
            .replace(admin::settings(&fitted, address.as_ref()));
        self.operators.set_tls(tls_of_operators);
        if let Some(socket) = operators {
            moved.extend(take(&self.operators, socket, earlier).await);
        }
        self.operators.configured = configured;
        if let Some(clients) = &mut self.clients {
            clients.configured = Some(config.listen.clone());
        }
        moved
    }

    /// Changes `config` to the addresses and limits that are in force.
    pub(crate) fn apply_to(&self, config: &mut Config) {
        config.listen = self.address().unwrap_or_else(|| config.listen.clone());
        config.admin.listen = self.operators.address();
        files::lower(&mut config.limits, self.files);
    }

    fn frontend_settings(&self, config: &Config) -> FrontendSettings {
        let mut config = config.clone();
        files::fit(&mut config.limits, self.files);
        frontend_settings(&config, &self.telemetry, &CancellationToken::new())
    }

    fn admin_address(&self, config: &Config) -> Option<ListenAddress> {
        config
            .admin
            .listen
            .clone()
            .filter(|_| !(self.operators.needs_address && config.admin.is_default))
    }

    /// The sockets in use, without the service manager's.
    fn sockets(&self) -> impl Iterator<Item = Arc<ListeningSocket>> {
        let listeners = self.clients.iter().chain([&self.operators]);
        listeners
            .filter_map(|listener| listener.sockets.current())
            .filter(|socket| !socket.is_passed())
    }
}

/// Makes a listener use `socket`. Returns its new address, if it differs from `from`.
async fn take(
    listener: &Listener,
    socket: Option<Arc<ListeningSocket>>,
    from: Option<ListenAddress>,
) -> Option<Moved> {
    let option = listener.option;
    let to = socket.as_ref().and_then(|socket| socket.address().ok());
    if !listener.sockets.exchange(socket).await {
        warn!(
            option,
            "listening address not changed, since Fanlight is shutting down"
        );
        return Some(Moved { option, to: None });
    }
    if from == to {
        return None;
    }
    info!(option, ?from, ?to, "listening address changed");
    Some(Moved { option, to })
}

/// Warns if clients on other machines are not authenticated. With a tunnel or a proxy on this
/// machine they reach a local address, too.
pub(crate) fn warn_if_open(config: &Config, address: &ListenAddress) {
    let url = config.public_url.as_deref();
    let host = url.and_then(|url| Some(Url::parse(url).ok()?.host_str()?.to_owned()));
    let is_public = host.is_some_and(|host| !is_loopback(&host));
    if config.auth.methods().is_none() && (is_public || !address.is_local()) {
        warn!(%address, url, "no authentication: anyone who can reach this address or `publicUrl` \
                              can call every tool; configure `auth`, or put an authenticating \
                              proxy in front");
    }
}

/// Whether two sockets at these addresses would get the same connections.
fn overlap(one: &ListenAddress, other: &ListenAddress) -> bool {
    let (ListenAddress::Ip(one), ListenAddress::Ip(other)) = (one, other) else {
        return one == other;
    };
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() == other.port() && (a == b || a.is_unspecified() || b.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_with_all_addresses_of_their_port() {
        let overlap =
            |one: &str, other: &str| overlap(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(overlap("0.0.0.0:80", "127.0.0.1:80") && overlap("127.0.0.1:80", "[::]:80"));
        assert!(overlap("127.0.0.1:80", "[::ffff:127.0.0.1]:80"));
        assert!(!overlap("0.0.0.0:80", "127.0.0.1:81") && !overlap("127.0.0.2:80", "127.0.0.1:80"));
    }
}
