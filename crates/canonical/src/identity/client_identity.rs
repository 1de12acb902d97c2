//! An authenticated client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

use crate::identity::Principal;

/// A client whose credentials have been verified. Another token of the same client gives another
/// identity with the same principal.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The principal, which owns everything that is made for the client.
    pub principal: Principal,
    /// The name for operators and logs: a subject, or the name of a key. Not unique.
    pub name: Arc<str>,
    /// The kind of credentials that proved the identity.
    pub source: Source,
    /// The client's groups.
    pub groups: Arc<[Arc<str>]>,
    /// The client's scopes.
    pub scopes: Scopes,
    /// Other claims of the credentials: texts by claim name.
    pub claims: Claims,
    /// The paths of the endpoints that it may use; `None` for all.
    pub endpoints: Option<Arc<[Arc<str>]>>,
    /// The time until which the identity is valid.
    pub validity: Validity,
}

impl Identity {
    /// The identity of clients without authentication.
    pub fn anonymous() -> Self {
        Self {
            principal: Principal::anonymous(),
            name: Arc::from("anonymous"),
            source: Source::Anonymous,
            groups: Arc::from([]),
            scopes: Scopes::All,
            claims: Claims::default(),
            endpoints: None,
            validity: Validity::default(),
        }
    }

    /// Whether the client may use the endpoint at `path`.
    pub fn may_use(&self, path: &str) -> bool {
        self.endpoints
            .as_ref()
            .is_none_or(|paths| paths.iter().any(|one| **one == *path))
    }
}

fanlight_protocol::named! {
    /// The kind of credentials that proved an identity.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Source {
        /// None: the client is not authenticated.
        Anonymous = "none",
        /// An OAuth access token.
        Token = "token",
        /// A key of the configured file of keys.
        Key = "key",
        /// A TLS client certificate.
        Certificate = "certificate",
        /// A header of a trusted proxy.
        Proxy = "proxy",
        /// The operating system, for a client on a Unix socket.
        Socket = "socket",
    }
}

/// OAuth scopes (RFC 6749, 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scopes {
    /// Every scope, so that nothing restricts the client.
    All,
    /// The client has only these scopes.
    Only(Arc<BTreeSet<Arc<str>>>),
}

impl Scopes {
    /// Parses a space-separated list.
    pub fn parse(list: &str) -> Self {
        list.split(' ').filter(|scope| !scope.is_empty()).collect()
    }

    /// Whether `scope` is included.
    #[must_use]
    pub fn contains(&self, scope: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(scopes) => scopes.contains(scope),
        }
    }
}

impl<'a> FromIterator<&'a str> for Scopes {
    fn from_iter<T: IntoIterator<Item = &'a str>>(scopes: T) -> Self {
        Self::Only(Arc::new(scopes.into_iter().map(Arc::from).collect()))
    }
}

/// Claims by name. Each has its texts; a list has several.
pub type Claims = Arc<BTreeMap<Box<str>, Box<[Box<str>]>>>;

/// The time until which an identity may be used.
#[derive(Clone, Debug, Default)]
pub struct Validity {
    /// The time when the credentials expire; `None` if they do not.
    pub expires: Option<SystemTime>,
    /// Cancelled when the credentials are revoked, or when the configuration no longer accepts
    /// them.
    pub revoked: CancellationToken,
}

impl Validity {
    /// Whether the identity may be used at `now`.
    #[must_use]
    pub fn holds_at(&self, now: SystemTime) -> bool {
        !self.revoked.is_cancelled() && self.expires.is_none_or(|expires| now < expires)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn scopes_are_those_of_the_list() {
        let scopes = Scopes::parse("mcp:read  mcp:call ");
        assert!(scopes.contains("mcp:read") && scopes.contains("mcp:call"));
        assert!(
            !scopes.contains("")
                && !scopes.contains("mcp")
                && !scopes.contains("mcp:read mcp:call")
        );
        assert!(Scopes::All.contains("anything") && !Scopes::parse("").contains("anything"));
    }

    #[test]
    fn validity_ends_with_expiry_or_revocation() {
        let now = SystemTime::now();
        let validity = Validity {
            expires: Some(now),
            ..Validity::default()
        };
        assert!(validity.holds_at(now - Duration::from_secs(1)) && !validity.holds_at(now));
        let validity = Validity::default();
        assert!(validity.holds_at(now));
        validity.revoked.cancel();
        assert!(!validity.holds_at(now));
    }

    #[test]
    fn identity_without_endpoints_may_use_all() {
        let mut identity = Identity::anonymous();
        assert!(identity.may_use("/mcp"));
        identity.endpoints = Some(Arc::from([Arc::from("/mcp/readers")]));
        assert!(identity.may_use("/mcp/readers") && !identity.may_use("/mcp"));
    }
}
