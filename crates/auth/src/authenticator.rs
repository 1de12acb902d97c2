//! The configured authentication methods, tried in a fixed order.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use fanlight_canonical::identity::{Identity, Source, Validity};
use fanlight_credentials::{
    Authenticate, Authentication, Credentials, Denial, IdToken, SignInError,
};
use fanlight_grants::oauth::TokenKind;
use tokio_util::sync::CancellationToken;

use crate::bearer::Bearer;
use crate::certificate::Certificates;
use crate::keys::Keys;
use crate::proxy::Proxy;
use crate::settings::{Settings, user};
use crate::token::Tokens;
use crate::unknown_keys::{self, Asking, UnknownKeys};
use crate::{UsedOnce, id_token};

/// Identifies clients by the configuration in force. The default denies every request.
#[derive(Debug, Default)]
pub struct Authenticator {
    policy: ArcSwap<Policy>,
    /// Notifies the reader of the keys file before an unknown key is refused.
    asking: Option<Asking>,
    /// Values used once at other processes; `None` if there are none.
    used: Option<Arc<dyn UsedOnce>>,
}

#[derive(Debug)]
enum Policy {
    /// Clients are not authenticated: all of them have this identity.
    Open(Arc<Identity>),
    Methods(Methods),
}

/// The methods in force. The first method for which a request has credentials decides. If it does
/// not accept them, the request is denied without trying another method.
#[derive(Debug, Default)]
struct Methods {
    /// The check of bearer credentials that are keys.
    keys: Option<Arc<Keys>>,
    /// The check of all other bearer credentials.
    tokens: Option<Arc<Tokens>>,
    certificates: Option<Arc<Certificates>>,
    proxy: Option<Arc<Proxy>>,
    socket: Option<Arc<SocketUsers>>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::Methods(Methods::default())
    }
}

impl Authenticator {
    /// An authenticator with these methods. Without settings, clients are not authenticated.
    pub fn new(settings: Option<&Settings>) -> Self {
        Self::sharing(settings, None)
    }

    /// [`Self::new`], for several processes that share values used once.
    pub fn sharing(settings: Option<&Settings>, used: Option<Arc<dyn UsedOnce>>) -> Self {
        let policy = Policy::renew(&Policy::default(), settings, used.as_ref());
        Self {
            policy: ArcSwap::from_pointee(policy),
            asking: None,
            used,
        }
    }

    /// Returns a receiver, too, which is notified before a key is refused as unknown.
    #[must_use]
    pub fn asking(self) -> (Self, UnknownKeys) {
        let (asking, unknown) = unknown_keys::channel();
        (
            Self {
                asking: Some(asking),
                ..self
            },
            unknown,
        )
    }

    /// Puts other settings in force, and revokes the identities that they no longer accept.
    /// Unchanged methods keep their state. Only one task may call this.
    pub fn replace(&self, settings: Option<&Settings>) {
        let new = Arc::new(Policy::renew(
            &self.policy.load(),
            settings,
            self.used.as_ref(),
        ));
        let old = self.policy.swap(Arc::clone(&new));
        // After the exchange, so that the new settings answer a client that is disconnected and
        // returns at once.
        old.revoke_except(&new);
    }
}

impl Policy {
    /// The policy for other settings, with the state of unchanged methods.
    fn renew(&self, settings: Option<&Settings>, used: Option<&Arc<dyn UsedOnce>>) -> Self {
        let none = Methods::default();
        match (self, settings) {
            (Self::Open(everyone), None) => Self::Open(Arc::clone(everyone)),
            (Self::Methods(_), None) => Self::Open(Arc::new(Identity::anonymous())),
            (Self::Open(_), Some(settings)) => Self::Methods(none.renew(settings, used)),
            (Self::Methods(methods), Some(settings)) => {
                Self::Methods(methods.renew(settings, used))
            }
        }
    }

    /// Revokes the identities that `new` does not accept.
    fn revoke_except(&self, new: &Self) {
        let none = Methods::default();
        match (self, new) {
            (Self::Open(_), Self::Open(_)) => {}
            (Self::Open(everyone), Self::Methods(_)) => everyone.validity.revoked.cancel(),
            (Self::Methods(old), Self::Open(_)) => old.revoke_except(&none),
            (Self::Methods(old), Self::Methods(new)) => old.revoke_except(new),
        }
    }
}

/// A method without settings; `None` if it is off. An existing `current` is kept with its state.
fn renew_switched<T: Default>(current: Option<&Arc<T>>, is_on: bool) -> Option<Arc<T>> {
    is_on.then(|| current.cloned().unwrap_or_default())
}

impl Methods {
    fn renew(&self, settings: &Settings, used: Option<&Arc<dyn UsedOnce>>) -> Self {
        Self {
            keys: Keys::renew(self.keys.as_deref(), settings.keys.as_deref()).map(Arc::new),
            tokens: Tokens::renew(self.tokens.as_ref(), settings.oauth.as_ref(), used),
            certificates: renew_switched(self.certificates.as_ref(), settings.certificates),
            proxy: Proxy::renew(self.proxy.as_ref(), settings.proxy.as_ref()),
            socket: renew_switched(self.socket.as_ref(), settings.socket),
        }
    }

    fn revoke_except(&self, new: &Self) {
        if let Some(keys) = &self.keys {
            keys.revoke_except(new.keys.as_deref());
        }
        if let Some(tokens) = &self.tokens {
            tokens.revoke_except(new.tokens.as_deref());
        }
        revoke_unless_same(
            self.certificates.as_ref(),
            new.certificates.as_ref(),
            |old| &old.revoked,
        );
        revoke_unless_same(self.proxy.as_ref(), new.proxy.as_ref(), |old| &old.revoked);
        revoke_unless_same(self.socket.as_ref(), new.socket.as_ref(), |old| {
            &old.revoked
        });
    }

    fn authenticate<'a>(&self, credentials: &Credentials<'a>) -> Option<Authentication<'a>> {
        let others = || {
            let certificate = self
                .certificates
                .as_ref()
                .and_then(|all| all.identity(credentials));
            let proxy = || {
                self.proxy
                    .as_ref()
                    .and_then(|proxy| proxy.identity(credentials))
            };
            let socket = || {
                self.socket
                    .as_ref()
                    .and_then(|users| users.identity(credentials))
            };
            certificate
                .or_else(proxy)
                .or_else(socket)
                .map(Authentication::Ready)
        };
        self.bearer(credentials).or_else(others)
    }

    /// The key in a request, if it has the form of a key but is unknown, and so could be new.
    fn unknown_key<'a>(&self, credentials: &Credentials<'a>) -> Option<Bearer<'a>> {
        let keys = self.keys.as_ref()?;
        let bearer = Bearer::shown_in(credentials.headers).ok()??;
        keys.is_unknown(bearer.expose()).then_some(bearer)
    }

    /// The identity for the field `Authorization`; `None` if the field is absent. Without
    /// configured keys and tokens it is not read, since a proxy in front may use it.
    fn bearer<'a>(&self, credentials: &Credentials<'a>) -> Option<Authentication<'a>> {
        if self.keys.is_none() && self.tokens.is_none() {
            return None;
        }
        let bearer = match Bearer::shown_in(credentials.headers) {
            Ok(bearer) => bearer?,
            Err(denial) => return Some(Authentication::Ready(Err(denial))),
        };
        let unknown = || {
            Authentication::Ready(Err(Denial::Invalid(
                "credentials of this kind are not accepted".into(),
            )))
        };
        Some(if bearer.is_key() {
            match self
                .keys
                .as_ref()
                .filter(|_| bearer.scheme() == TokenKind::Bearer)
            {
                Some(keys) => Authentication::Ready(keys.identity(bearer.expose())),
                None => unknown(),
            }
        } else {
            self.tokens.as_ref().map_or_else(unknown, |tokens| {
                Arc::clone(tokens).authenticate(bearer, credentials)
            })
        })
    }
}

#[async_trait]
impl Authenticate for Authenticator {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        let policy = self.policy.load();
        let methods = match &**policy {
            Policy::Open(everyone) => return Authentication::Ready(Ok(Arc::clone(everyone))),
            Policy::Methods(methods) => methods,
        };
        let endpoint = credentials.endpoint;
        match methods.authenticate(credentials) {
            Some(Authentication::Ready(Err(denial))) => {
                self.unless_new(denial, methods, credentials)
            }
            None => Authentication::Ready(Err(Denial::Missing)),
            Some(Authentication::Ready(outcome)) => {
                Authentication::Ready(at_endpoint(outcome, endpoint))
            }
            Some(Authentication::Pending(outcome)) => Authentication::Pending(Box::pin(
                async move { at_endpoint(outcome.await, endpoint) },
            )),
        }
    }

    async fn identify(&self, shown: IdToken<'_>) -> Result<Arc<Identity>, SignInError> {
        let issuer = match &**self.policy.load() {
            Policy::Methods(methods) => methods
                .tokens
                .as_ref()
                .and_then(|tokens| tokens.issuer(shown.issuer)),
            Policy::Open(_) => None,
        };
        let none = || SignInError::Refused("the issuer is not accepted any more".into());
        let (issuer, leeway) = issuer.ok_or_else(none)?;
        id_token::user(&issuer, leeway, shown).await
    }
}

impl Authenticator {
    /// Denies a request. A request with an unknown key is denied only if the key is still unknown
    /// after the keys file was checked.
    fn unless_new<'a>(
        &'a self,
        denial: Denial,
        methods: &Methods,
        credentials: &Credentials<'a>,
    ) -> Authentication<'a> {
        let endpoint = credentials.endpoint;
        let asked = methods
            .unknown_key(credentials)
            .and_then(|key| Some((key, self.asking.as_ref()?.ask()?)));
        let Some((key, looked)) = asked else {
            return Authentication::Ready(Err(denial));
        };
        Authentication::Pending(Box::pin(async move {
            unknown_keys::wait(looked).await;
            let identity = match &**self.policy.load() {
                Policy::Methods(Methods {
                    keys: Some(keys), ..
                }) => keys.identity(key.expose()),
                Policy::Methods(_) | Policy::Open(_) => Err(denial),
            };
            at_endpoint(identity, endpoint)
        }))
    }
}

/// Revokes a method's identities if the method is off, or has other settings now.
fn revoke_unless_same<M>(
    old: Option<&Arc<M>>,
    new: Option<&Arc<M>>,
    revoked: fn(&M) -> &CancellationToken,
) {
    if let Some(old) = old.filter(|old| !new.is_some_and(|new| Arc::ptr_eq(old, new))) {
        revoked(old).cancel();
    }
}

/// Denies a client an endpoint that its credentials are not valid for.
fn at_endpoint(
    outcome: Result<Arc<Identity>, Denial>,
    endpoint: &str,
) -> Result<Arc<Identity>, Denial> {
    let identity = outcome?;
    if identity.may_use(endpoint) {
        Ok(identity)
    } else {
        Err(Denial::Forbidden(
            "these credentials are for other endpoints".into(),
        ))
    }
}

/// The issuer of these principals.
const ISSUER: &str = "fanlight:socket";

/// Users of this machine.
#[derive(Debug, Default)]
struct SocketUsers {
    /// Revokes all identities from sockets.
    revoked: CancellationToken,
}

impl SocketUsers {
    /// The user at the other end; `None` if the connection is not over a Unix socket.
    fn identity(&self, credentials: &Credentials<'_>) -> Option<Result<Arc<Identity>, Denial>> {
        let peer = credentials.connection.socket?;
        let name = format!("uid:{}", peer.user);
        let validity = Validity {
            expires: None,
            revoked: self.revoked.clone(),
        };
        Some(Ok(Arc::new(user(ISSUER, &name, Source::Socket, validity))))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use fanlight_canonical::identity::Source;
    use fanlight_credentials::{ConnectionFacts, SocketPeer};
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::keys::{self, NewKey};
    use fanlight_config::Key;

    use crate::settings::ProxySettings;
    use crate::testing::at_mcp;

    /// The outcome for a request with these headers on this connection.
    fn outcome(
        authenticator: &Authenticator,
        headers: &[(&'static str, &str)],
        connection: &ConnectionFacts,
    ) -> Result<Arc<Identity>, Denial> {
        let fields = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
        let headers: HeaderMap = fields.collect();
        let credentials = at_mcp(&headers, connection);
        match authenticator.authenticate(&credentials) {
            Authentication::Ready(outcome) => outcome,
            Authentication::Pending(_) => panic!("no issuer has to be asked"),
        }
    }

    fn with_key(key: &NewKey) -> Key {
        Key {
            name: "ci".to_owned(),
            sha256: keys::digest(key.text()),
            groups: Vec::new(),
            scopes: None,
            expires: None,
            endpoints: None,
        }
    }

    fn proxy_and_socket() -> Settings {
        let from = vec!["10.0.0.0/8".parse().unwrap()];
        let header = http::HeaderName::from_static("x-forwarded-user");
        let proxy = Some(ProxySettings {
            header,
            groups: None,
            from,
        });
        Settings {
            proxy,
            socket: true,
            ..Settings::default()
        }
    }

    #[test]
    fn request_that_shows_nothing_is_denied() {
        let connection = ConnectionFacts::default();
        assert_eq!(
            outcome(&Authenticator::default(), &[], &connection).unwrap_err(),
            Denial::Missing
        );
        let settings = Settings {
            keys: Some(Vec::new()),
            ..proxy_and_socket()
        };
        assert_eq!(
            outcome(&Authenticator::new(Some(&settings)), &[], &connection).unwrap_err(),
            Denial::Missing
        );
    }

    #[test]
    fn first_thing_shown_decides() {
        let key = NewKey::make().unwrap();
        let settings = Settings {
            keys: Some(vec![with_key(&key)]),
            ..proxy_and_socket()
        };
        let authenticator = Authenticator::new(Some(&settings));
        let (peer, socket) = (
            SocketAddr::from(([10, 1, 2, 3], 99)),
            SocketPeer { user: 7, group: 8 },
        );
        let proxied = ConnectionFacts {
            peer: Some(peer),
            socket: Some(socket),
            ..ConnectionFacts::default()
        };
        let good = format!("Bearer {}", key.text());
        let source = |headers: &[_]| {
            outcome(&authenticator, headers, &proxied).map(|identity| identity.source)
        };
        assert_eq!(
            source(&[("authorization", &good), ("x-forwarded-user", "ann")]),
            Ok(Source::Key)
        );
        assert_eq!(source(&[("x-forwarded-user", "ann")]), Ok(Source::Proxy));
        assert_eq!(source(&[]), Ok(Source::Socket));
        // Other credentials do not excuse a wrong key.
        for wrong in [
            "Bearer nonsense",
            "Bearer fanlight_x",
            "Bearer",
            "Bearer ",
            "Basic YTpi",
            "",
        ] {
            assert!(
                source(&[("authorization", wrong), ("x-forwarded-user", "ann")]).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn authorization_is_not_read_where_neither_keys_nor_tokens_are_configured() {
        let authenticator = Authenticator::new(Some(&proxy_and_socket()));
        let local = ConnectionFacts {
            socket: Some(SocketPeer { user: 7, group: 8 }),
            ..ConnectionFacts::default()
        };
        let identity = outcome(&authenticator, &[("authorization", "Basic YTpi")], &local).unwrap();
        assert_eq!(identity.source, Source::Socket);
    }

    #[test]
    fn credentials_for_one_endpoint_are_refused_at_others() {
        let key = NewKey::make().unwrap();
        let endpoints = Some(vec!["/mcp/readers".to_owned()]);
        let settings = Settings {
            keys: Some(vec![Key {
                endpoints,
                ..with_key(&key)
            }]),
            ..Settings::default()
        };
        let authenticator = Authenticator::new(Some(&settings));
        let header = format!("Bearer {}", key.text());
        let outcome = outcome(
            &authenticator,
            &[("authorization", &header)],
            &ConnectionFacts::default(),
        );
        assert!(matches!(outcome, Err(Denial::Forbidden(_))), "{outcome:?}");
    }

    #[test]
    fn methods_that_are_switched_off_revoke_their_identities() {
        let authenticator = Authenticator::new(Some(&proxy_and_socket()));
        let peer = SocketAddr::from(([10, 1, 2, 3], 99));
        let proxied = ConnectionFacts {
            peer: Some(peer),
            ..ConnectionFacts::default()
        };
        let local = ConnectionFacts {
            socket: Some(SocketPeer { user: 7, group: 8 }),
            ..ConnectionFacts::default()
        };
        let ann = outcome(&authenticator, &[("x-forwarded-user", "ann")], &proxied).unwrap();
        let user = outcome(&authenticator, &[], &local).unwrap();
        authenticator.replace(Some(&proxy_and_socket()));
        assert!(!ann.validity.revoked.is_cancelled() && !user.validity.revoked.is_cancelled());
        authenticator.replace(Some(&Settings {
            proxy: None,
            ..proxy_and_socket()
        }));
        assert!(ann.validity.revoked.is_cancelled() && !user.validity.revoked.is_cancelled());
        authenticator.replace(Some(&Settings {
            socket: false,
            ..proxy_and_socket()
        }));
        assert!(user.validity.revoked.is_cancelled());
    }

    #[test]
    fn anonymous_clients_are_revoked_when_authentication_begins() {
        let authenticator = Authenticator::new(None);
        let connection = ConnectionFacts::default();
        let everyone = outcome(&authenticator, &[], &connection).unwrap();
        authenticator.replace(None);
        assert!(Arc::ptr_eq(
            &everyone,
            &outcome(&authenticator, &[], &connection).unwrap()
        ));
        authenticator.replace(Some(&proxy_and_socket()));
        assert!(everyone.validity.revoked.is_cancelled());
        assert_eq!(
            outcome(&authenticator, &[], &connection).unwrap_err(),
            Denial::Missing
        );
        authenticator.replace(None);
        assert!(
            !outcome(&authenticator, &[], &connection)
                .unwrap()
                .validity
                .revoked
                .is_cancelled()
        );
    }
}

#[cfg(test)]
mod socket_tests {
    use std::net::SocketAddr;

    use fanlight_canonical::identity::Principal;
    use fanlight_credentials::{ConnectionFacts, SocketPeer};
    use http::HeaderMap;

    use super::*;
    use crate::testing::at_mcp;

    #[test]
    fn user_of_a_unix_socket_is_the_principal() {
        let users = SocketUsers::default();
        let headers = HeaderMap::new();
        let shown = |connection: &ConnectionFacts| users.identity(&at_mcp(&headers, connection));
        let socket = |user| ConnectionFacts {
            socket: Some(SocketPeer { user, group: 5 }),
            ..ConnectionFacts::default()
        };
        let root = shown(&socket(0)).unwrap().unwrap();
        assert_eq!(root.principal, Principal::new("fanlight:socket", "uid:0"));
        assert_ne!(
            root.principal,
            shown(&socket(1000)).unwrap().unwrap().principal
        );
        let local = ConnectionFacts {
            peer: Some(SocketAddr::from(([127, 0, 0, 1], 1))),
            ..ConnectionFacts::default()
        };
        assert!(shown(&local).is_none());
    }
}
