//! The settings of each authentication method.

use std::sync::Arc;

use fanlight_config::Key;
use http::HeaderName;
use ipnet::IpNet;

use crate::oauth_settings::OAuthSettings;

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

pub(crate) fn texts(list: &[String]) -> Arc<[Arc<str>]> {
    list.iter().map(|text| text.as_str().into()).collect()
}
