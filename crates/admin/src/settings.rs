//! Settings of the listener.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fanlight_http_edge::{AcceptLimits, Admissions, Guard, Http1Limits, LiveTls, Origins};
use http::HeaderMap;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::token::Token;

/// Connections beyond `limits.adminConnections`, on which only health is told: an orchestrator that gets no answer
/// restarts the gateway. No option: orchestrators ask one at a time.
const HEALTH_CONNECTIONS: usize = 8;

/// Connections that wait for another to end.
const WAITING_CONNECTIONS: usize = 32;

/// Settings of the listener. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// The address of the listener, if it listens.
    pub address: Option<SocketAddr>,
    /// The token that requests need, if any.
    pub token: Option<String>,
    /// Hosts that are served besides loopback: `host` (any port), `host:port`, or `*`.
    pub allowed_hosts: Vec<String>,
    /// Most open connections.
    pub max_connections: usize,
    /// Most open streams of `/api/events`.
    pub max_followers: usize,
    /// The largest request body.
    pub max_body: usize,
    /// The largest request head; at least 8 KiB are always allowed.
    pub max_header: usize,
    /// Levels of arrays and objects in a request body.
    pub nesting: usize,
    /// Time for the head of a request, which is also how long a connection may be idle.
    pub header_timeout: Duration,
    /// Time for a request body.
    pub body_timeout: Duration,
    /// How long a client may read nothing of a response.
    pub write_timeout: Duration,
    /// How long a stream of events may be silent before a comment is sent.
    pub keep_alive: Duration,
    /// Between two checks for changes that event streams show.
    pub event_interval: Duration,
    /// Between two requests of the page for what no event shows, while it shows that.
    pub page_refresh: Duration,
    /// For how long the page uses the lists of the catalogue.
    pub page_lists: Duration,
    /// Time for running requests at shutdown.
    pub drain: Duration,
}

#[cfg(any(test, feature = "test-support"))]
impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            address: Some(([127, 0, 0, 1], 0).into()),
            token: None,
            allowed_hosts: Vec::new(),
            max_connections: 128,
            max_followers: 32,
            max_body: 16 << 20,
            max_header: 64 << 10,
            nesting: 128,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(75),
            keep_alive: Duration::from_secs(25),
            event_interval: Duration::from_secs(1),
            page_refresh: Duration::from_secs(2),
            page_lists: Duration::from_secs(5),
            drain: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "***");
        f.debug_struct("AdminSettings").field("token", &token).finish_non_exhaustive()
    }
}

/// The settings of the listener, which can change while it serves.
#[derive(Clone)]
pub struct LiveSettings {
    now: Arc<ArcSwap<InForce>>,
    admissions: Arc<Admissions>,
    tls: LiveTls,
}

/// The settings in force, and what is made of them.
pub(crate) struct InForce {
    pub(crate) settings: AdminSettings,
    pub(crate) guard: Guard,
    token: Option<Token>,
    /// A permit for each stream of events that may be open.
    pub(crate) followers: Arc<Semaphore>,
    /// Cancelled when other settings are in force: streams end that were allowed by these.
    pub(crate) ended: CancellationToken,
}

impl LiveSettings {
    /// These settings, until they are replaced.
    #[must_use]
    pub fn new(settings: AdminSettings) -> Self {
        let admissions = Arc::new(Admissions::new(accept_limits(&settings)));
        Self { now: Arc::new(ArcSwap::from_pointee(InForce::new(settings))), admissions, tls: LiveTls::default() }
    }

    /// With TLS, as far as `tls` has it.
    #[must_use]
    pub fn with_tls(self, tls: LiveTls) -> Self {
        Self { tls, ..self }
    }

    /// Has these settings take effect, from the next request on. If they differ, streams of events end, so that they are
    /// authorized anew.
    pub fn replace(&self, settings: AdminSettings) {
        if self.load().settings == settings {
            return;
        }
        self.admissions.set_limits(accept_limits(&settings));
        self.now.swap(Arc::new(InForce::new(settings))).ended.cancel();
    }

    pub(crate) fn load(&self) -> Arc<InForce> {
        self.now.load_full()
    }

    pub(crate) fn tls(&self) -> &LiveTls {
        &self.tls
    }

    pub(crate) fn admissions(&self) -> &Admissions {
        &self.admissions
    }
}

impl InForce {
    /// A listener that other machines can reach has a token, which a page of another site does not have, so it serves any
    /// host.
    fn new(settings: AdminSettings) -> Self {
        let is_remote = settings.address.is_some_and(|address| !address.ip().to_canonical().is_loopback());
        let hosts = if is_remote { vec!["*".to_owned()] } else { settings.allowed_hosts.clone() };
        Self {
            guard: Guard::new(&hosts, Origins::Own),
            token: settings.token.as_deref().map(Token::new),
            followers: Arc::new(Semaphore::new(settings.max_followers.clamp(1, Semaphore::MAX_PERMITS))),
            ended: CancellationToken::new(),
            settings,
        }
    }

    /// Whether a request with these headers has the token, or none is needed.
    pub(crate) fn is_authorized(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_in(headers))
    }

    pub(crate) fn connection_limits(&self) -> Http1Limits {
        Http1Limits {
            head: self.settings.max_header,
            head_timeout: self.settings.header_timeout,
            write_timeout: self.settings.write_timeout,
        }
    }
}

fn accept_limits(settings: &AdminSettings) -> AcceptLimits {
    AcceptLimits {
        connections: settings.max_connections,
        waiting: WAITING_CONNECTIONS.min(settings.max_connections.div_ceil(2)),
        longest_wait: settings.header_timeout,
        reserve: HEALTH_CONNECTIONS,
        per_peer: 0,
        name: "limits.adminConnections",
    }
}

impl fmt::Debug for LiveSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().settings.fmt(f)
    }
}
