//! The identity and rights of a client, which are the same for every listener, the core and the
//! server edge.
//!
//! Principals, which own everything that is made for a client.
//!
//! An authenticated client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

/// The prefix of Fanlight's own issuers.
const OWN: &str = "fanlight:";

/// The owner of state: sessions, connections to servers, tasks, subscriptions, suspended calls and
/// kept results. Nothing that belongs to one principal may reach another.
///
/// All clients without authentication are [`Principal::anonymous`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Fanlight itself, for requests that no client has made.
    Gateway,
    /// Any operator, for calls from the operators' page.
    Operator,
    /// Every client without authentication.
    Anonymous,
    /// An authenticated client.
    Named(Arc<Name>),
}

/// The pair is unique: the same subject of two issuers is two principals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Name {
    issuer: Box<str>,
    subject: Box<str>,
}

impl Principal {
    /// Fanlight itself, for requests that no client has made.
    pub const fn gateway() -> Self {
        Self(Kind::Gateway)
    }

    /// Every client without authentication.
    pub const fn anonymous() -> Self {
        Self(Kind::Anonymous)
    }

    /// The client that `issuer` knows as `subject`.
    pub fn new(issuer: &str, subject: &str) -> Self {
        Self(Kind::Named(Arc::new(Name {
            issuer: issuer.into(),
            subject: subject.into(),
        })))
    }

    /// Any operator, for calls from the operators' page.
    pub const fn operator() -> Self {
        Self(Kind::Operator)
    }

    /// Whether this principal represents all clients without authentication. Then only sessions
    /// distinguish clients.
    pub fn is_anonymous(&self) -> bool {
        matches!(self.0, Kind::Anonymous)
    }

    /// Whether this is an authenticated client. Private data are for such a client alone.
    pub fn is_named(&self) -> bool {
        matches!(self.0, Kind::Named(_))
    }

    /// The issuer and the subject of an authenticated client; otherwise `None`. Fanlight's own
    /// issuers are `key`, `certificate`, `proxy` and `socket`.
    pub fn issuer_and_subject(&self) -> Option<(&str, &str)> {
        match &self.0 {
            Kind::Named(name) => Some((
                name.issuer.strip_prefix(OWN).unwrap_or(&name.issuer),
                &name.subject,
            )),
            _ => None,
        }
    }

    /// The name in policies and in the audit log: the issuer, `#`, and the subject. `None` unless
    /// it is an authenticated client.
    pub fn id(&self) -> Option<String> {
        self.issuer_and_subject()
            .map(|(issuer, subject)| format!("{issuer}#{subject}"))
    }

    /// The principal with these [bytes](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match (kind, rest) {
            (0, []) => Some(Self::gateway()),
            (1, []) => Some(Self::operator()),
            (2, []) => Some(Self::anonymous()),
            (3, _) => {
                let (length, rest) = rest.split_first_chunk::<8>()?;
                let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
                let (issuer, subject) = rest.split_at_checked(length)?;
                Some(Self::new(
                    std::str::from_utf8(issuer).ok()?,
                    std::str::from_utf8(subject).ok()?,
                ))
            }
            _ => None,
        }
    }

    /// A description for operators.
    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::Gateway => "Fanlight itself".to_owned(),
            Kind::Operator => "operators".to_owned(),
            Kind::Anonymous => "everyone, since clients are not authenticated".to_owned(),
            Kind::Named(name) => format!("{} ({})", name.subject, name.issuer),
        }
    }

    /// The principal's bytes, which differ for each principal and are equal in every process. Seals
    /// for a client are bound to them.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Kind::Gateway => vec![0],
            Kind::Operator => vec![1],
            Kind::Anonymous => vec![2],
            Kind::Named(name) => {
                let length = name.issuer.len() as u64;
                [
                    &[3][..],
                    &length.to_be_bytes(),
                    name.issuer.as_bytes(),
                    name.subject.as_bytes(),
                ]
                .concat()
            }
        }
    }
}

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
mod client_identity_tests {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_differ_by_issuer_and_subject() {
        let ann = Principal::new("https://a.example", "ann");
        assert_eq!(ann, Principal::new("https://a.example", "ann"));
        assert_ne!(ann, Principal::new("https://b.example", "ann"));
        assert_ne!(ann, Principal::new("https://a.example", "bob"));
        assert_ne!(ann, Principal::anonymous());
        assert_ne!(Principal::operator(), Principal::anonymous());
        assert!(ann.is_named());
        assert_eq!(ann.id().as_deref(), Some("https://a.example#ann"));
        assert_eq!(
            Principal::new("fanlight:key", "ci").id().as_deref(),
            Some("key#ci")
        );
        assert_eq!(Principal::anonymous().id(), None);
        assert!(
            ![
                Principal::operator(),
                Principal::anonymous(),
                Principal::gateway()
            ]
            .iter()
            .any(Principal::is_named)
        );
        let bytes = |issuer, subject| Principal::new(issuer, subject).to_bytes();
        assert_eq!(bytes("a", "bc"), bytes("a", "bc"));
        assert!(
            bytes("a", "bc") != bytes("ab", "c")
                && bytes("", "") != Principal::anonymous().to_bytes()
        );
    }

    #[test]
    fn principal_bytes_differ_as_principals_do() {
        let principals = [
            Principal::anonymous(),
            Principal::operator(),
            Principal::new("a", "bc"),
            Principal::new("ab", "c"),
            Principal::new("", "abc"),
        ];
        for (one, other) in principals
            .iter()
            .flat_map(|one| principals.iter().map(move |other| (one, other)))
        {
            assert_eq!(
                one.to_bytes() == other.to_bytes(),
                one == other,
                "{one:?} {other:?}"
            );
        }
        for principal in &principals {
            assert_eq!(
                Principal::from_bytes(&principal.to_bytes()).as_ref(),
                Some(principal)
            );
        }
        for bytes in [
            &b""[..],
            &[4],
            &[2, 0],
            &[3, 0, 0],
            &[3, 0, 0, 0, 0, 0, 0, 0, 9, 1],
        ] {
            assert_eq!(Principal::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
