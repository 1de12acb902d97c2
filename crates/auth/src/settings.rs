//! The settings of each authentication method.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::Scopes;
use http::HeaderName;
use ipnet::IpNet;

use crate::oauth_settings::OAuthSettings;

/// The methods by which clients are authenticated; those that are `None` are off.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// OAuth access tokens.
    pub oauth: Option<OAuthSettings>,
    /// Keys of the configured file.
    pub keys: Option<Vec<KeySettings>>,
    /// TLS client certificates.
    pub certificates: Option<CertificateSettings>,
    /// The header of a proxy.
    pub proxy: Option<ProxySettings>,
    /// Users of this machine.
    pub socket: Option<SocketSettings>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySettings {
    /// Its name, which is the principal's: several keys may have one name, so that a key can be renewed.
    pub name: String,
    /// The SHA-256 digest of the key.
    pub digest: [u8; 32],
    /// When it expires, if it does.
    pub expires: Option<SystemTime>,
    /// What its clients may do.
    pub grant: Grant,
    /// The paths of the endpoints that it is for; `None` for all.
    pub endpoints: Option<Vec<String>>,
}

/// TLS client certificates, which the listener has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSettings {
    /// The part of a certificate that names the principal.
    pub principal: CertificateName,
    /// What these clients may do.
    pub grant: Grant,
}

/// The part of a certificate that names the principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The URI of its subject alternative names.
    SanUri,
    /// The DNS name of its subject alternative names.
    SanDns,
    /// Its subject, as RFC 4514 writes it.
    Subject,
}

/// Headers in which a proxy names the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// The header with the user's name.
    pub header: HeaderName,
    /// The header with the user's groups.
    pub groups: Option<HeaderName>,
    /// The addresses of the proxy.
    pub from: Vec<IpNet>,
    /// What these clients may do.
    pub scopes: Option<Vec<String>>,
}

/// Users of this machine, on a Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    /// What these clients may do.
    pub scopes: Option<Vec<String>>,
}

/// Groups and scopes that the configuration gives to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Their groups.
    pub groups: Vec<String>,
    /// Their scopes; `None` for all.
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

/// The scopes of a list; all without one.
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
