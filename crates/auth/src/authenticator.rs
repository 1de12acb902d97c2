//! The methods that are configured, asked in a fixed order.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_identity::{Authenticate, Authentication, Credentials, Denial};

use crate::bearer::Bearer;

/// One way in which bearer credentials show who clients are.
pub(crate) trait BearerMethod: Send + Sync + fmt::Debug {
    /// The identity behind `bearer`, which `credentials` show.
    fn authenticate<'a>(self: Arc<Self>, bearer: Bearer<'a>, credentials: &Credentials<'a>) -> Authentication<'a>;

    /// Ends the identities that it has shown and its successor does not accept.
    #[allow(dead_code, reason = "called with the first reload of methods")]
    fn revoke_all(&self);
}

/// One way in which clients show who they are, other than by bearer credentials.
pub(crate) trait Method: Send + Sync + fmt::Debug {
    /// The identity that a request shows in this way; `None` if it shows none in this way. What is shown and not accepted
    /// is denied: another method is not asked then.
    fn authenticate<'a>(self: Arc<Self>, credentials: &Credentials<'a>) -> Option<Authentication<'a>>;

    /// Ends the identities that it has shown and its successor does not accept.
    #[allow(dead_code, reason = "called with the first reload of methods")]
    fn revoke_all(&self);
}

/// The methods in force.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    /// For bearer credentials that are keys.
    keys: Option<Arc<dyn BearerMethod>>,
    /// For all other bearer credentials.
    tokens: Option<Arc<dyn BearerMethod>>,
    /// Asked in this order where no bearer credentials are shown.
    others: Vec<Arc<dyn Method>>,
}

impl Methods {
    fn authenticate<'a>(&self, credentials: &Credentials<'a>) -> Authentication<'a> {
        let shown = match self.bearer(credentials) {
            Some(shown) => Some(shown),
            None => self.others.iter().find_map(|method| Arc::clone(method).authenticate(credentials)),
        };
        shown.unwrap_or(Authentication::Ready(Err(Denial::Missing)))
    }

    /// The identity that `Authorization` shows; `None` if it is absent. Where neither keys nor tokens are configured, it is
    /// not read: a proxy in front may have its own use for it.
    fn bearer<'a>(&self, credentials: &Credentials<'a>) -> Option<Authentication<'a>> {
        if self.keys.is_none() && self.tokens.is_none() {
            return None;
        }
        let bearer = match Bearer::shown_in(credentials.headers) {
            Ok(bearer) => bearer?,
            Err(denial) => return Some(Authentication::Ready(Err(denial))),
        };
        let method = if bearer.is_key() { &self.keys } else { &self.tokens };
        Some(match method {
            Some(method) => Arc::clone(method).authenticate(bearer, credentials),
            None => Authentication::Ready(Err(Denial::Invalid("credentials of this kind are not accepted".into()))),
        })
    }
}

/// Tells who clients are, by the methods in force. Each request that shows nothing is denied.
#[derive(Debug, Default)]
pub struct Authenticator {
    methods: ArcSwap<Methods>,
}

impl Authenticate for Authenticator {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        self.methods.load().authenticate(credentials)
    }
}

#[cfg(test)]
mod tests {
    use fanlight_identity::{ConnectionFacts, Identity};
    use http::header::AUTHORIZATION;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    /// A method that accepts everything and names what has accepted it.
    #[derive(Debug)]
    struct Accepting(&'static str);

    impl Accepting {
        fn identity(&self) -> Authentication<'static> {
            Authentication::Ready(Ok(Arc::new(Identity { name: Arc::from(self.0), ..Identity::anonymous() })))
        }
    }

    impl BearerMethod for Accepting {
        fn authenticate<'a>(self: Arc<Self>, _: Bearer<'a>, _: &Credentials<'a>) -> Authentication<'a> {
            self.identity()
        }

        fn revoke_all(&self) {}
    }

    impl Method for Accepting {
        fn authenticate<'a>(self: Arc<Self>, _: &Credentials<'a>) -> Option<Authentication<'a>> {
            Some(self.identity())
        }

        fn revoke_all(&self) {}
    }

    async fn outcome(methods: Methods, authorization: Option<&str>) -> Result<String, Denial> {
        let mut headers = HeaderMap::new();
        authorization.map(|field| headers.insert(AUTHORIZATION, HeaderValue::from_str(field).unwrap()));
        let connection = ConnectionFacts::default();
        let credentials = Credentials { headers: &headers, connection: &connection, client: None, endpoint: "/mcp" };
        let authenticator = Authenticator { methods: ArcSwap::from_pointee(methods) };
        authenticator.authenticate(&credentials).outcome().await.map(|identity| identity.name.to_string())
    }

    fn all() -> Methods {
        Methods {
            keys: Some(Arc::new(Accepting("key"))),
            tokens: Some(Arc::new(Accepting("token"))),
            others: vec![Arc::new(Accepting("certificate")), Arc::new(Accepting("proxy"))],
        }
    }

    #[tokio::test]
    async fn request_that_shows_nothing_is_denied() {
        assert_eq!(outcome(Methods::default(), None).await, Err(Denial::Missing));
        assert_eq!(outcome(Methods { others: vec![], ..all() }, None).await, Err(Denial::Missing));
    }

    #[tokio::test]
    async fn bearer_credentials_are_keys_by_their_prefix_and_else_tokens() {
        assert_eq!(outcome(all(), Some("Bearer fanlight_x")).await.unwrap(), "key");
        assert_eq!(outcome(all(), Some("bearer Fanlight_x")).await.unwrap(), "token");
        assert_eq!(outcome(all(), None).await.unwrap(), "certificate");
    }

    #[tokio::test]
    async fn authorization_that_is_not_accepted_is_never_passed_over() {
        assert_eq!(outcome(all(), Some("Basic YTpi")).await, Err(Denial::Missing));
        assert!(matches!(outcome(all(), Some("Bearer a b")).await, Err(Denial::Malformed(_))));
        let without_keys = Methods { keys: None, ..all() };
        assert!(matches!(outcome(without_keys, Some("Bearer fanlight_x")).await, Err(Denial::Invalid(_))));
        let without_tokens = Methods { tokens: None, ..all() };
        assert!(matches!(outcome(without_tokens, Some("Bearer x")).await, Err(Denial::Invalid(_))));
    }

    #[tokio::test]
    async fn authorization_is_not_read_where_neither_keys_nor_tokens_are_configured() {
        let neither = Methods { keys: None, tokens: None, ..all() };
        assert_eq!(outcome(neither, Some("Basic YTpi")).await.unwrap(), "certificate");
    }
}
