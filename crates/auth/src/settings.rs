//! The settings of each authentication method.

use std::collections::BTreeSet;
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
    /// TLS client certificates.
    pub certificates: Option<CertificateSettings>,
    /// The headers of a proxy.
    pub proxy: Option<ProxySettings>,
    /// Users of this machine.
    pub socket: Option<SocketSettings>,
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

/// TLS client certificates, which the listener has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSettings {
    /// The part of a certificate that names the principal.
    pub principal: CertificateName,
    /// The groups and scopes of these clients.
    pub grant: Grant,
}

/// The part of a certificate that names the principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The URI of its subject alternative names.
    SanUri,
    /// The DNS name of its subject alternative names.
    SanDns,
    /// The subject, in the form of RFC 4514.
    Subject,
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
    /// The scopes of these clients.
    pub scopes: Option<Vec<String>>,
}

/// Users of this machine, over a Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    /// The scopes of these clients.
    pub scopes: Option<Vec<String>>,
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
        scopes(self.scopes.as_deref())
    }
}

/// The scopes in a list; all without a list.
pub(crate) fn scopes(list: Option<&[String]>) -> Scopes {
    let only = |list: &[String]| {
        Scopes::Only(Arc::new(
            list.iter()
                .map(|scope| scope.as_str().into())
                .collect::<BTreeSet<_>>(),
        ))
    };
    list.map_or(Scopes::All, only)
}

pub(crate) fn texts(list: &[String]) -> Arc<[Arc<str>]> {
    list.iter().map(|text| text.as_str().into()).collect()
}
