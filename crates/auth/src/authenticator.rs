//! The methods that are configured, asked in a fixed order.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_identity::{Authenticate, Authentication, Credentials, Denial};

/// One way in which clients show who they are.
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
    /// In the order in which they are asked.
    all: Vec<Arc<dyn Method>>,
}

/// Tells who clients are, by the methods in force. Each request that shows nothing is denied.
#[derive(Debug, Default)]
pub struct Authenticator {
    methods: ArcSwap<Methods>,
}

impl Authenticate for Authenticator {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        let methods = self.methods.load();
        let shown = methods.all.iter().find_map(|method| Arc::clone(method).authenticate(credentials));
        shown.unwrap_or(Authentication::Ready(Err(Denial::Missing)))
    }
}

#[cfg(test)]
mod tests {
    use fanlight_identity::ConnectionFacts;
    use http::HeaderMap;

    use super::*;

    #[tokio::test]
    async fn request_that_shows_nothing_is_denied() {
        let (headers, connection) = (HeaderMap::new(), ConnectionFacts::default());
        let credentials = Credentials { headers: &headers, connection: &connection, endpoint: "/mcp" };
        let outcome = Authenticator::default().authenticate(&credentials).outcome().await;
        assert_eq!(outcome.unwrap_err(), Denial::Missing);
    }
}
