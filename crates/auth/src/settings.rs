//! The settings of each authentication method.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::Scopes;
use http::HeaderName;
use ipnet::IpNet;

use crate::oauth_settings::OAuthSettings;

/// The authentication methods of clients; `None` means off.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// OAuth access tokens.
    pub oauth: Option<OAuthSettings>,
    /// The keys in the configured file.
    pub keys: Option<Vec<KeySettings>>,
    /// Whether TLS client certificates are accepted.
    pub certificates: bool,
    /// The headers of a proxy.
    pub proxy: Option<ProxySettings>,
    /// Whether users of this machine are.
    pub socket: bool,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySettings {
    /// The name of the key, and of its principal. Several keys may share a name, so that a key can
    /// be replaced.
    pub name: String,
    /// The SHA-256 digest of the key.
    pub digest: [u8; 32],
    /// When the key expires, if ever.
    pub expires: Option<SystemTime>,
    /// The groups and scopes of the key's clients.
    pub grant: Grant,
    /// The paths of the endpoints that the key is valid for; `None` for all.
    pub endpoints: Option<Vec<String>>,
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

/// Configured groups and scopes of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The groups.
    pub groups: Vec<String>,
    /// The scopes; `None` for all.
    pub scopes: Option<Vec<String>>,
}

impl Grant {
    pub(crate) fn groups(&self) -> Arc<[Arc<str>]> {
        texts(&self.groups)
    }

    pub(crate) fn scopes(&self) -> Scopes {
        let only =
            |scopes: &Vec<String>| Scopes::Only(Arc::new(texts(scopes).iter().cloned().collect()));
        self.scopes.as_ref().map_or(Scopes::All, only)
    }
}

pub(crate) fn texts(list: &[String]) -> Arc<[Arc<str>]> {
    list.iter().map(|text| text.as_str().into()).collect()
}
