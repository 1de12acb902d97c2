//! Settings of the listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fanlight_config::AdminRoles;
use fanlight_credentials::ConnectionFacts;
use fanlight_fair::limit;
use fanlight_http::{AcceptLimits, Admissions, Guard, Http1Limits, LiveTls, Origins, PublicUrl};
use http::header::SET_COOKIE;
use http::{HeaderValue, Response};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::operator::{Cookies, Digest, Purpose, SessionLimits, SignInIssuer};

/// Connections beyond [`AdminSettings::max_connections`] that serve only health checks. Otherwise
/// an orchestrator would get no answer and restart the gateway. Orchestrators ask one at a time.
const HEALTH_CONNECTIONS: usize = 8;

/// The limit of connections that wait until another one ends.
const WAITING_CONNECTIONS: usize = 32;

/// The limit of sessions. Beyond it, the peer with the most sessions loses its least recently used
/// one.
const SESSIONS: usize = 1024;

/// The limit of sessions of one peer. Beyond it, a new sign-in ends the least recently used
/// session.
const PEER_SESSIONS: usize = 64;

/// How long a session may be unused.
const SESSION_IDLE: Duration = Duration::from_secs(3600);

/// The limit of the head of a request, in bytes.
const HEAD: usize = 64 << 10;

/// How long a client may stop reading a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(75);

/// The time limit for the head of a request. A connection may also be idle for this long.
fn header_timeout() -> Duration {
    limit("header", Duration::from_secs(10))
}

/// The interval at which the listener checks for changes that event streams show.
pub(crate) fn event_interval() -> Duration {
    limit("adminEvents", Duration::from_secs(1))
}

/// Settings of the listener. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// The address of the listener, if it listens.
    pub address: Option<SocketAddr>,
    /// The token that gives the role `operator`, if any.
    pub token: Option<String>,
    /// The roles of identities.
    pub roles: AdminRoles,
    /// Sets of methods whose different subjects are different people.
    pub comparable: Vec<Vec<String>>,
    /// The issuers at which operators sign in.
    pub sign_in: Vec<SignInIssuer>,
    /// The origin at which operators open the page, if the listener has another one.
    pub public_url: Option<PublicUrl>,
    /// How many wrong credentials a peer may send in a minute.
    pub max_sign_in_failures: usize,
    /// How long a session may last.
    pub session_lifetime: Duration,
    /// How long a sign-in at the issuer may take.
    pub sign_in_timeout: Duration,
    /// Hosts that are served in addition to loopback: `host` (any port), `host:port`, or `*`.
    pub allowed_hosts: Vec<String>,
    /// The limit of open connections.
    pub max_connections: usize,
    /// The limit of open streams of `/api/events`.
    pub max_followers: usize,
    /// The limit of an operator's running calls with questions and progress.
    pub max_calls: usize,
    /// How long an operator may take to answer a server.
    pub answer_timeout: Duration,
    /// The limit of a request body.
    pub max_body: usize,
    /// How long a stream of events may be silent before the listener sends a comment.
    pub keep_alive: Duration,
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            address: Some(([127, 0, 0, 1], 0).into()),
            token: None,
            roles: AdminRoles::default(),
            comparable: Vec::new(),
            sign_in: Vec::new(),
            public_url: None,
            max_sign_in_failures: 10,
            session_lifetime: Duration::from_secs(12 * 3600),
            sign_in_timeout: Duration::from_secs(600),
            allowed_hosts: Vec::new(),
            max_connections: 128,
            max_followers: limit("adminFollowers", 32),
            max_calls: 8,
            answer_timeout: limit("clientAnswer", Duration::from_secs(600)),
            max_body: 16 << 20,
            keep_alive: Duration::from_secs(25),
        }
    }
}

/// The settings of the listener, which can change while it serves.
#[derive(Clone)]
pub struct LiveSettings {
    now: Arc<ArcSwap<InForce>>,
    admissions: Arc<Admissions>,
    tls: LiveTls,
}

/// The settings in force, and values derived from them.
pub(crate) struct InForce {
    pub(crate) settings: AdminSettings,
    pub(crate) guard: Guard,
    pub(crate) token: Option<Digest>,
    /// A permit for each event stream that may be open.
    pub(crate) followers: Arc<Semaphore>,
    /// Cancelled when other settings take effect. Event streams that these settings allowed then
    /// end.
    pub(crate) ended: CancellationToken,
}

impl LiveSettings {
    /// Live settings that begin with `settings`.
    pub fn new(settings: AdminSettings) -> Self {
        let admissions = Arc::new(Admissions::new(accept_limits(&settings)));
        Self {
            now: Arc::new(ArcSwap::from_pointee(InForce::new(settings))),
            admissions,
            tls: LiveTls::default(),
        }
    }

    /// Adds TLS, with the settings in `tls`.
    #[must_use]
    pub fn with_tls(self, tls: LiveTls) -> Self {
        Self { tls, ..self }
    }

    /// Replaces the settings for all further requests. If they differ, event streams end, so their
    /// clients have to be authorized again.
    pub fn replace(&self, settings: AdminSettings) {
        if self.load().settings == settings {
            return;
        }
        self.admissions.set_limits(accept_limits(&settings));
        self.now
            .swap(Arc::new(InForce::new(settings)))
            .ended
            .cancel();
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
    /// Derives the values from the settings. A listener that other machines can reach serves any
    /// host: it requires credentials, which a page of another site cannot send.
    fn new(settings: AdminSettings) -> Self {
        let mut hosts = if is_local(&settings) {
            settings.allowed_hosts.clone()
        } else {
            vec!["*".to_owned()]
        };
        let public = settings
            .public_url
            .as_ref()
            .and_then(|url| url.parts().0.split_once("://"));
        hosts.extend(public.map(|(_, host)| host.to_owned()));
        Self {
            guard: Guard::new(&hosts, Origins::Own),
            token: settings
                .token
                .as_ref()
                .map(|token| Digest::compute(token.as_bytes())),
            followers: Arc::new(Semaphore::new(
                settings.max_followers.clamp(1, Semaphore::MAX_PERMITS),
            )),
            ended: CancellationToken::new(),
            settings,
        }
    }

    /// Whether everybody who reaches the listener may do everything. This is the case only if no
    /// credentials are configured and the listener is local.
    pub(crate) fn is_open(&self) -> bool {
        let AdminSettings { token, roles, .. } = &self.settings;
        token.is_none() && roles.is_empty() && is_local(&self.settings)
    }

    /// Whether a bearer token can identify an operator.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.token.is_some() || !self.settings.roles.is_empty()
    }

    /// The URL to which an issuer sends browsers back, if operators can sign in there.
    pub(crate) fn redirect_uri(&self) -> Option<String> {
        let public_url = self.settings.public_url.as_ref()?;
        Some(public_url.join("/sign-in/callback"))
    }

    /// The cookies of a connection.
    pub(crate) fn cookies(&self, connection: &ConnectionFacts) -> Cookies {
        let public = self.settings.public_url.as_ref();
        let is_public_secure = public.is_some_and(PublicUrl::is_https);
        let path = public.map_or("", |url| url.parts().1).to_owned();
        // The port that browsers see, which replicas behind a load balancer have in common.
        let public = public.and_then(|url| Url::parse(url.as_str()).ok()?.port_or_known_default());
        let own = || self.settings.address.map_or(0, |address| address.port());
        let port = public.unwrap_or_else(own);
        Cookies {
            is_secure: is_public_secure || connection.is_tls,
            path,
            port,
        }
    }

    /// Adds a header to the response that removes a cookie.
    pub(crate) fn forget<B>(
        &self,
        purpose: Purpose,
        connection: &ConnectionFacts,
        response: &mut Response<B>,
    ) {
        set_cookie(&self.cookies(connection).remove(purpose), response);
    }

    pub(crate) fn session_limits(&self) -> SessionLimits {
        SessionLimits {
            all: SESSIONS,
            per_peer: PEER_SESSIONS,
            idle: SESSION_IDLE,
            lifetime: self.settings.session_lifetime,
        }
    }

    pub(crate) fn connection_limits(&self) -> Http1Limits {
        Http1Limits {
            head: HEAD,
            head_timeout: header_timeout(),
            write_timeout: WRITE_TIMEOUT,
        }
    }
}

/// Adds a cookie to the response.
pub(crate) fn set_cookie<B>(cookie: &str, response: &mut Response<B>) {
    // The cookie consists of base64 and fixed texts, so it is always a valid header.
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, value);
    }
}

fn is_local(settings: &AdminSettings) -> bool {
    settings
        .address
        .is_none_or(|address| address.ip().to_canonical().is_loopback())
}

fn accept_limits(settings: &AdminSettings) -> AcceptLimits {
    AcceptLimits {
        connections: settings.max_connections,
        waiting: WAITING_CONNECTIONS.min(settings.max_connections.div_ceil(2)),
        longest_wait: header_timeout(),
        reserve: HEALTH_CONNECTIONS,
        per_peer: 0,
        name: "operators'",
    }
}

fanlight_protocol::opaque!(LiveSettings, AdminSettings);
