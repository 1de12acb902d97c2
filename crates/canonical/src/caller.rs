//! Who a request is made for: the principal, and the session or single request that it comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::endpoint::{Endpoint, Holder};

/// An identity. Nothing that belongs to one principal may reach another: sessions, connections to
/// servers, tasks, subscriptions, suspended calls, kept results.
///
/// Where clients are not authenticated, each is [`Principal::anonymous`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Identity);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    /// Fanlight itself, for requests that no client has made.
    Gateway,
    /// An operator, for calls made from the operators' page.
    Operator,
    /// Every client that has not been authenticated.
    Anonymous,
    /// A client that has been authenticated.
    Named(Arc<Name>),
}

/// Unique as a whole: the same subject of two issuers is two principals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Name {
    issuer: Box<str>,
    subject: Box<str>,
}

impl Principal {
    /// Every client that has not been authenticated.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self(Identity::Anonymous)
    }

    /// The client that `issuer` knows as `subject`.
    #[must_use]
    pub fn named(issuer: &str, subject: &str) -> Self {
        Self(Identity::Named(Arc::new(Name { issuer: issuer.into(), subject: subject.into() })))
    }

    /// An operator, for calls made from the operators' page.
    #[must_use]
    pub const fn operator() -> Self {
        Self(Identity::Operator)
    }

    /// Whether it is every client that has not been authenticated: then only sessions tell clients apart.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        matches!(self.0, Identity::Anonymous)
    }

    /// Bytes that no other principal has, equal in every process: what is sealed for a client is bound to
    /// them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Identity::Gateway => vec![0],
            Identity::Operator => vec![1],
            Identity::Anonymous => vec![2],
            Identity::Named(name) => {
                let length = u64::try_from(name.issuer.len()).unwrap_or(u64::MAX);
                [&[3][..], &length.to_be_bytes(), name.issuer.as_bytes(), name.subject.as_bytes()].concat()
            }
        }
    }
}

/// Identifies a session of a client within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

impl SessionKey {
    /// A key that no other session of this process has.
    #[must_use]
    pub fn fresh() -> Self {
        Self(next_key())
    }
}

/// Who a request is made for. Two requests with equal callers come from the same session, so that a
/// message meant for one may be delivered with the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    holder: Holder,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scope {
    /// All requests that Fanlight makes for itself.
    Gateway,
    /// All requests of one session.
    Session(SessionKey),
    /// One request without a session.
    Request(u64),
}

impl Caller {
    fn new(holder: Holder, scope: Scope) -> Self {
        Self { holder, scope }
    }

    /// Fanlight itself.
    #[must_use]
    pub fn gateway() -> Self {
        Self::new(Principal(Identity::Gateway).into(), Scope::Gateway)
    }

    /// A session of `holder`.
    #[must_use]
    pub fn session_of(holder: impl Into<Holder>, session: SessionKey) -> Self {
        Self::new(holder.into(), Scope::Session(session))
    }

    /// One request of `holder` without a session; equal to no other caller of this process.
    #[must_use]
    pub fn request_of(holder: impl Into<Holder>) -> Self {
        Self::new(holder.into(), Scope::Request(next_key()))
    }

    /// The identity behind the request.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        self.holder.principal()
    }

    /// The endpoint that the request came to.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.holder.endpoint()
    }

    /// Whose handles the request may use.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The client's session, if it has one. A legacy server gets a session of its own for each, so
    /// that state and capabilities of one client never reach another.
    #[must_use]
    pub fn session(&self) -> Option<SessionKey> {
        match self.scope {
            Scope::Session(session) => Some(session),
            Scope::Gateway | Scope::Request(_) => None,
        }
    }

    /// Whether state that was made for `owner` belongs to this caller: it has the same principal and endpoint, and, where
    /// the principal is every unauthenticated client, the same session, or none either.
    #[must_use]
    pub fn owns_what_is_of(&self, owner: &Self) -> bool {
        self.holder == owner.holder && (!self.principal().is_anonymous() || self.session() == owner.session())
    }

    /// Whether the request is Fanlight's own.
    #[must_use]
    pub fn is_gateway(&self) -> bool {
        self.scope == Scope::Gateway
    }
}

fn next_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_differ_by_issuer_and_subject() {
        let ann = Principal::named("https://a.example", "ann");
        assert_eq!(ann, Principal::named("https://a.example", "ann"));
        assert_ne!(ann, Principal::named("https://b.example", "ann"));
        assert_ne!(ann, Principal::named("https://a.example", "bob"));
        assert_ne!(ann, Principal::anonymous());
        assert_ne!(Principal::operator(), Principal::anonymous());
        let bytes = |issuer, subject| Principal::named(issuer, subject).to_bytes();
        assert_eq!(bytes("a", "bc"), bytes("a", "bc"));
        assert!(bytes("a", "bc") != bytes("ab", "c") && bytes("", "") != Principal::anonymous().to_bytes());
    }

    #[test]
    fn principal_bytes_differ_as_principals_do() {
        let principals = [
            Principal::anonymous(),
            Principal::operator(),
            Principal::named("a", "bc"),
            Principal::named("ab", "c"),
            Principal::named("", "abc"),
        ];
        for (one, other) in principals.iter().flat_map(|one| principals.iter().map(move |other| (one, other))) {
            assert_eq!(one.to_bytes() == other.to_bytes(), one == other, "{one:?} {other:?}");
        }
    }

    #[test]
    fn unauthenticated_clients_own_what_their_session_has_made() {
        let (one, other) = (SessionKey(1), SessionKey(2));
        let anonymous = |session| Caller::session_of(Principal::anonymous(), session);
        assert!(anonymous(one).owns_what_is_of(&anonymous(one)));
        assert!(!anonymous(one).owns_what_is_of(&anonymous(other)));
        let request = || Caller::request_of(Principal::anonymous());
        assert!(request().owns_what_is_of(&request()));
        assert!(!request().owns_what_is_of(&anonymous(one)) && !anonymous(one).owns_what_is_of(&request()));
        let of = |name, session| Caller::session_of(Principal::named("issuer", name), session);
        assert!(of("ann", one).owns_what_is_of(&of("ann", other)));
        assert!(!of("ann", one).owns_what_is_of(&of("bob", one)) && !of("ann", one).owns_what_is_of(&anonymous(one)));
    }

    #[test]
    fn what_is_made_at_one_endpoint_is_unknown_at_another() {
        let at = |path: &str| Holder::new(Principal::named("issuer", "ann"), Endpoint::at(path));
        let of = |path, session| Caller::session_of(at(path), session);
        assert!(of("/mcp", SessionKey(1)).owns_what_is_of(&of("/mcp", SessionKey(2))));
        assert!(!of("/mcp/readers", SessionKey(1)).owns_what_is_of(&of("/mcp", SessionKey(1))));
        assert!(
            !Caller::request_of(at("/mcp")).owns_what_is_of(&Caller::request_of(Principal::named("issuer", "ann")))
        );
    }

    #[test]
    fn callers_are_equal_within_one_session_only() {
        let (one, other) = (SessionKey::fresh(), SessionKey::fresh());
        let of = |session| Caller::session_of(Principal::anonymous(), session);
        assert_eq!(of(one), of(one));
        assert_ne!(of(one), of(other));
        assert_ne!(of(one), Caller::session_of(Principal::named("issuer", "subject"), one));
        assert_ne!(Caller::request_of(Principal::anonymous()), Caller::request_of(Principal::anonymous()));
        assert!(Caller::gateway().is_gateway() && Caller::gateway() == Caller::gateway());
        assert_eq!((of(one).session(), Caller::request_of(Principal::anonymous()).session()), (Some(one), None));
    }
}
