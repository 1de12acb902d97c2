//! Callers: the principal that a request is made for, and the session or single request that it
//! comes from.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Identity, Principal, ServerSessions};

/// Identifies a client's session within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

impl SessionKey {
    /// A key that no other session of this process has.
    pub fn generate() -> Self {
        Self(next_key())
    }
}

/// The principal, endpoint and session that a request is made for. Two requests with equal callers
/// come from the same session, so a message for one may be delivered with the other.
#[derive(Clone, Debug)]
pub struct Caller {
    holder: Holder,
    scope: Scope,
    /// Not compared: later requests of a session may present newer credentials.
    identity: Option<Arc<Identity>>,
    /// The sessions at servers, if another replica can continue the client's session.
    server_sessions: Option<Arc<ServerSessions>>,
    /// Not compared: requests of one client differ.
    client: Option<SameClient>,
    headers: ClientHeaders,
}

/// The request's headers that servers may get, by lower-case name; `None` if there are none.
pub type ClientHeaders = Option<Arc<[(Box<str>, Box<str>)]>>;

/// The evidence that requests without a session come from the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SameClient {
    /// The connection, which is standard input.
    Connection,
    /// The principal.
    Principal,
    /// A number for the address on Fanlight's own machine, or for the user if the connection is a
    /// Unix socket.
    Machine(u32),
}

impl SameClient {
    /// The value of the span attribute.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Principal => "principal",
            Self::Machine(_) => "machine",
        }
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        (&self.holder, self.scope) == (&other.holder, other.scope)
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.holder, self.scope).hash(state);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scope {
    /// All requests that Fanlight makes for itself.
    Gateway,
    /// All requests of one session, and the number that it was opened with, perhaps by another
    /// replica. Sessions with the same key have the same number.
    Session(SessionKey, u64),
    /// One request without a session.
    Request(u64),
}

impl Caller {
    fn new(holder: Holder, scope: Scope) -> Self {
        Self {
            holder,
            scope,
            identity: None,
            server_sessions: None,
            client: None,
            headers: None,
        }
    }

    /// Fanlight itself.
    pub fn gateway() -> Self {
        Self::new(Principal::gateway().into(), Scope::Gateway)
    }

    /// A session of `holder` that this process has opened.
    pub fn session_of(holder: impl Into<Holder>, session: SessionKey) -> Self {
        Self::continued_session_of(holder, session, session.0)
    }

    /// A session of `holder` that was opened with this number. Each replica that continues the
    /// session uses the number, and no other session of the holder has it.
    pub fn continued_session_of(
        holder: impl Into<Holder>,
        session: SessionKey,
        opened_as: u64,
    ) -> Self {
        Self::new(holder.into(), Scope::Session(session, opened_as))
    }

    /// One request of `holder` without a session. It equals no other caller of this process.
    pub fn request_of(holder: impl Into<Holder>) -> Self {
        Self::new(holder.into(), Scope::Request(next_key()))
    }

    /// This caller with the `identity` that its request presented.
    #[must_use]
    pub fn with_identity(self, identity: Arc<Identity>) -> Self {
        Self {
            identity: Some(identity),
            ..self
        }
    }

    /// This caller with the sessions at servers that are recorded for its session.
    #[must_use]
    pub fn with_server_sessions(self, server_sessions: Option<Arc<ServerSessions>>) -> Self {
        Self {
            server_sessions,
            ..self
        }
    }

    /// The sessions at servers recorded with the client's session; `None` if no other replica can
    /// continue it.
    pub fn server_sessions(&self) -> Option<&Arc<ServerSessions>> {
        self.server_sessions.as_ref()
    }

    /// This caller with the evidence of which client it is.
    #[must_use]
    pub fn with_client(self, client: Option<SameClient>) -> Self {
        Self { client, ..self }
    }

    /// This caller with the headers of its request that servers may get.
    #[must_use]
    pub fn with_headers(self, headers: ClientHeaders) -> Self {
        Self { headers, ..self }
    }

    /// The headers of the request that servers may get. An answer to a request that has any is for
    /// its client alone.
    #[must_use]
    pub fn headers(&self) -> &[(Box<str>, Box<str>)] {
        self.headers.as_deref().unwrap_or_default()
    }

    /// The evidence of which client a request without a session comes from.
    pub fn client(&self) -> Option<SameClient> {
        self.client
    }

    /// The client's identity and rights; `None` for requests of Fanlight itself and of operators.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// The principal that the request is made for.
    pub fn principal(&self) -> &Principal {
        self.holder.principal()
    }

    /// The endpoint that the request came to.
    pub fn endpoint(&self) -> &Endpoint {
        self.holder.endpoint()
    }

    /// The holder whose handles the request may use.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The client's session, if it has one. A legacy server gets a session of its own for each
    /// client session, so that state and capabilities of one client never reach another.
    pub fn session(&self) -> Option<SessionKey> {
        match self.scope {
            Scope::Session(session, _) => Some(session),
            Scope::Gateway | Scope::Request(_) => None,
        }
    }

    /// The number that the client's session was opened with. It is the same in each replica that
    /// continues the session.
    pub fn session_opened_as(&self) -> Option<u64> {
        match self.scope {
            Scope::Session(_, opened_as) => Some(opened_as),
            Scope::Gateway | Scope::Request(_) => None,
        }
    }

    /// Whether state that was made for `owner` belongs to this caller. Principal and endpoint must
    /// be equal. For unauthenticated clients the session must be equal too, or both must have none.
    #[must_use]
    pub fn owns_what_is_of(&self, owner: &Self) -> bool {
        self.holder == owner.holder
            && (!self.principal().is_anonymous() || self.session() == owner.session())
    }

    /// Whether the request is Fanlight's own.
    pub fn is_gateway(&self) -> bool {
        self.scope == Scope::Gateway
    }
}

fn next_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The unit by which shares of a limit are counted. For authenticated clients it is the principal,
/// otherwise the client's address, or its user on a Unix socket. Behind an untrusted reverse proxy
/// all unauthenticated clients are one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The process that started this one, or Fanlight itself.
    #[default]
    Local,
    /// An address; for IPv6, a network.
    Address(IpAddr),
    /// A user of this machine, by user id.
    User(u32),
    /// An authenticated client.
    Principal(Principal),
}

impl Peer {
    /// The peer of a request of `principal` from `address`.
    pub fn new(principal: &Principal, address: Option<IpAddr>) -> Self {
        match address {
            _ if !principal.is_anonymous() => Self::Principal(principal.clone()),
            Some(address) => Self::Address(address),
            None => Self::Local,
        }
    }

    /// The peer's bytes, which differ for each peer and are equal in every process.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Local => vec![0],
            Self::Address(IpAddr::V4(address)) => [&[1][..], &address.octets()].concat(),
            Self::Address(IpAddr::V6(address)) => [&[2][..], &address.octets()].concat(),
            Self::User(user) => [&[3][..], &user.to_be_bytes()].concat(),
            Self::Principal(principal) => [&[4][..], &principal.to_bytes()].concat(),
        }
    }

    /// Replaces `Local` by the user of a process that is connected by a Unix socket, which has no
    /// address.
    #[must_use]
    pub fn or_user(self, user: Option<u32>) -> Self {
        match (self, user) {
            (Self::Local, Some(user)) => Self::User(user),
            (peer, _) => peer,
        }
    }
}

/// The text for operators.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Address(address) => address.fmt(f),
            Self::User(user) => write!(f, "user {user}"),
            Self::Principal(principal) => f.write_str(&principal.id().unwrap_or_default()),
        }
    }
}

/// The path of the default endpoint.
pub const DEFAULT_PATH: &str = "/mcp";

/// The endpoint of a request, which decides what the client sees of the servers. Only the gateway
/// knows the configured endpoints and their contents. An endpoint that is no longer configured
/// shows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Shows everything. For Fanlight itself and for operators, never for a client.
    Everything,
    /// The endpoint of clients that name none.
    Default,
    /// Another endpoint, by its path.
    At(Arc<str>),
}

impl Endpoint {
    /// The endpoint at this path.
    pub fn from_path(path: impl Into<Arc<str>>) -> Self {
        let path = path.into();
        match &*path {
            DEFAULT_PATH => Self::Default,
            _ => Self::At(path),
        }
    }

    /// The endpoint's path, unless it is the default endpoint.
    pub fn path(&self) -> Option<&Arc<str>> {
        match self {
            Self::At(path) => Some(path),
            Self::Everything | Self::Default => None,
        }
    }

    /// The endpoint's path, also if it is the default endpoint.
    pub fn full_path(&self) -> &str {
        self.path().map_or(DEFAULT_PATH, |path| path)
    }
}

/// A principal at an endpoint, which owns handles. Sessions, cursors, tasks, suspended calls and
/// handed-out URIs belong to one holder, and do not exist for any other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    principal: Principal,
    endpoint: Endpoint,
}

impl Holder {
    /// `principal` at `endpoint`.
    pub const fn new(principal: Principal, endpoint: Endpoint) -> Self {
        Self {
            principal,
            endpoint,
        }
    }

    /// The principal.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The holder's bytes, which differ for each holder and are equal in every process. Seals for a
    /// client are bound to them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let principal = self.principal.to_bytes();
        let length = (principal.len() as u64).to_be_bytes();
        match &self.endpoint {
            Endpoint::Everything => [&[0][..], &length, &principal].concat(),
            Endpoint::Default => [&[1][..], &length, &principal].concat(),
            Endpoint::At(path) => [&[2][..], &length, &principal, path.as_bytes()].concat(),
        }
    }
}

/// A principal that sees everything.
impl From<Principal> for Holder {
    fn from(principal: Principal) -> Self {
        Self::new(principal, Endpoint::Everything)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unauthenticated_clients_own_what_their_session_has_made() {
        let (one, other) = (SessionKey(1), SessionKey(2));
        let anonymous = |session| Caller::session_of(Principal::anonymous(), session);
        assert!(anonymous(one).owns_what_is_of(&anonymous(one)));
        assert!(!anonymous(one).owns_what_is_of(&anonymous(other)));
        let request = || Caller::request_of(Principal::anonymous());
        assert!(request().owns_what_is_of(&request()));
        assert!(
            !request().owns_what_is_of(&anonymous(one))
                && !anonymous(one).owns_what_is_of(&request())
        );
        let of = |name, session| Caller::session_of(Principal::new("issuer", name), session);
        assert!(of("ann", one).owns_what_is_of(&of("ann", other)));
        assert!(
            !of("ann", one).owns_what_is_of(&of("bob", one))
                && !of("ann", one).owns_what_is_of(&anonymous(one))
        );
    }

    #[test]
    fn what_is_made_at_one_endpoint_is_unknown_at_another() {
        let at =
            |path: &str| Holder::new(Principal::new("issuer", "ann"), Endpoint::from_path(path));
        let of = |path, session| Caller::session_of(at(path), session);
        assert!(of("/mcp", SessionKey(1)).owns_what_is_of(&of("/mcp", SessionKey(2))));
        assert!(!of("/mcp/readers", SessionKey(1)).owns_what_is_of(&of("/mcp", SessionKey(1))));
        assert!(
            !Caller::request_of(at("/mcp"))
                .owns_what_is_of(&Caller::request_of(Principal::new("issuer", "ann")))
        );
    }

    #[test]
    fn callers_are_equal_within_one_session_only() {
        let (one, other) = (SessionKey::generate(), SessionKey::generate());
        let of = |session| Caller::session_of(Principal::anonymous(), session);
        assert_eq!(of(one), of(one));
        assert_ne!(of(one), of(other));
        assert_ne!(
            of(one),
            Caller::session_of(Principal::new("issuer", "subject"), one)
        );
        assert_ne!(
            Caller::request_of(Principal::anonymous()),
            Caller::request_of(Principal::anonymous())
        );
        assert!(Caller::gateway().is_gateway() && Caller::gateway() == Caller::gateway());
        assert_eq!(
            (
                of(one).session(),
                Caller::request_of(Principal::anonymous()).session()
            ),
            (Some(one), None)
        );
    }

    #[test]
    fn peer_is_the_principal_or_else_the_address() {
        let address = Some([10, 0, 0, 1].into());
        let ann = Principal::new("issuer", "ann");
        assert_eq!(
            Peer::new(&ann, address).or_user(Some(1)),
            Peer::Principal(ann)
        );
        assert_eq!(
            Peer::new(&Principal::anonymous(), address).or_user(Some(1)),
            Peer::Address([10, 0, 0, 1].into())
        );
        assert_eq!(
            Peer::new(&Principal::anonymous(), None).or_user(Some(1)),
            Peer::User(1)
        );
        assert_eq!(Peer::new(&Principal::anonymous(), None), Peer::Local);
    }

    #[test]
    fn holder_bytes_differ_as_holders_do() {
        let principals = [
            Principal::anonymous(),
            Principal::operator(),
            Principal::new("a", "b/mcp"),
        ];
        let endpoints = [
            Endpoint::Everything,
            Endpoint::Default,
            Endpoint::from_path("/mcp/readers"),
            Endpoint::from_path(""),
        ];
        let all: Vec<_> = principals
            .iter()
            .flat_map(|principal| {
                endpoints
                    .iter()
                    .map(|endpoint| Holder::new(principal.clone(), endpoint.clone()))
            })
            .chain([Holder::new(Principal::new("a", "b"), Endpoint::Default)])
            .collect();
        for (one, other) in all
            .iter()
            .flat_map(|one| all.iter().map(move |other| (one, other)))
        {
            assert_eq!(
                one.to_bytes() == other.to_bytes(),
                one == other,
                "{one:?} {other:?}"
            );
        }
    }
}
