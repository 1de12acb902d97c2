//! The settings of each authentication method.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::identity::{Identity, Principal, Scopes, Source, Validity};
use fanlight_config::{Claims, Introspection, Key};
use fanlight_fair::limit;
use http::HeaderName;
use ipnet::IpNet;

/// The authentication methods of clients; `None` means off.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// OAuth access tokens.
    pub oauth: Option<OAuthSettings>,
    /// The keys in the configured file.
    pub keys: Option<Vec<Key>>,
    /// Whether TLS client certificates are accepted.
    pub certificates: bool,
    /// The headers in which a proxy names the user.
    pub proxy: Option<ProxySettings>,
    /// Whether users of this machine are identified by their Unix socket.
    pub socket: bool,
}

/// The headers in which a proxy names the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The header with the user's name.
    pub header: HeaderName,
    /// The header with the user's groups.
    pub groups: Option<HeaderName>,
    /// The addresses of the proxy.
    pub from: Vec<IpNet>,
}

/// A user with a name, without groups.
pub(crate) fn user(issuer: &str, name: &str, source: Source, validity: Validity) -> Identity {
    Identity {
        principal: Principal::new(issuer, name),
        name: name.into(),
        source,
        groups: Arc::default(),
        scopes: Scopes::All,
        claims: Arc::default(),
        endpoints: None,
        validity,
    }
}

pub(crate) fn texts(list: &[String]) -> Arc<[Arc<str>]> {
    list.iter().map(|text| text.as_str().into()).collect()
}

/// The settings for access tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthSettings {
    /// The accepted issuers, each with a different identifier.
    pub issuers: Vec<IssuerSettings>,
    /// The URL under which clients reach this server, without a path. With an endpoint's path it is
    /// that endpoint's identifier (RFC 8707), for issuers without a configured audience.
    pub public_url: Option<String>,
    /// Limits on memory and time.
    pub limits: OAuthLimits,
}

/// An issuer of access tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The issuer's identifier: exactly the `iss` of its tokens.
    pub issuer: String,
    /// The URL of its keys; discovered if absent.
    pub jwks_uri: Option<String>,
    /// The accepted audiences, of which a token must have one. If empty, the endpoint's identifier.
    pub audience: Vec<String>,
    /// The places of the claims.
    pub claims: Claims,
    /// Required claims. Each must be, or contain, one of the values.
    pub require: Vec<(String, Vec<String>)>,
    /// Certificate authorities in PEM, trusted for it besides the system's.
    pub authorities: Option<Vec<u8>>,
    /// Token introspection; if absent, signatures are verified.
    pub introspection: Option<Introspection>,
}

/// Limits on memory and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OAuthLimits {
    /// The limit of wrong tokens from one peer per second.
    pub failures: usize,
    /// The limit of simultaneous introspection requests to one issuer.
    pub introspections: usize,
    /// The time limit of a request to an issuer.
    pub request: Duration,
    /// The age at which keys in use are refreshed in the background.
    pub refresh: Duration,
    /// The age at which keys that could not be refreshed are no longer used.
    pub stale: Duration,
    /// The least time between two readings of keys caused by tokens with unknown keys.
    pub unknown_key: Duration,
    /// How long an issuer's answer about an active token is remembered at most.
    pub introspection: Duration,
    /// The allowed difference between clocks.
    pub leeway: Duration,
}

impl Default for OAuthLimits {
    fn default() -> Self {
        Self {
            failures: 20,
            introspections: 32,
            request: Duration::from_secs(5),
            refresh: Duration::from_secs(15 * 60),
            stale: Duration::from_secs(24 * 3600),
            unknown_key: limit("unknownKey", Duration::from_secs(60)),
            introspection: limit("introspection", Duration::from_secs(60)),
            leeway: Duration::from_secs(30),
        }
    }
}
