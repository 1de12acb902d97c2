//! Authentication that records refusals in the audit log.

use std::sync::Arc;

use fanlight_credentials::{Authenticate, Authentication, Credentials, Denial};

use crate::event::{AuditEvent, Record};

/// Authenticates clients by another [`Authenticate`], and records the refusals.
#[derive(Debug)]
pub struct AuditedAuthentication {
    inner: Arc<dyn Authenticate>,
    record: Arc<dyn Record>,
}

impl AuditedAuthentication {
    /// Wraps `inner`, and records the requests that it refuses.
    pub fn new(inner: Arc<dyn Authenticate>, record: Arc<dyn Record>) -> Self {
        Self { inner, record }
    }

    /// Records a refusal; returns the outcome.
    fn record_refusal<T>(
        &self,
        outcome: Result<T, Denial>,
        credentials: &Credentials<'_>,
    ) -> Result<T, Denial> {
        outcome.inspect_err(|denial| {
            // A failure to record changes nothing, because the request is refused anyway.
            let _ = self.record.record(&AuditEvent::ClientDenied {
                denial,
                credentials,
            });
        })
    }
}

impl Authenticate for AuditedAuthentication {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        match self.inner.authenticate(credentials) {
            Authentication::Ready(outcome) => {
                Authentication::Ready(self.record_refusal(outcome, credentials))
            }
            Authentication::Pending(pending) => {
                let credentials = *credentials;
                Authentication::Pending(Box::pin(async move {
                    self.record_refusal(pending.await, &credentials)
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::identity::Identity;
    use fanlight_credentials::ConnectionFacts;
    use http::HeaderMap;

    use super::*;
    use crate::AuditLog;

    #[derive(Debug)]
    struct Refuses(bool);

    impl Authenticate for Refuses {
        fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
            let denial = || Denial::Invalid("no".into());
            match (credentials.endpoint, self.0) {
                ("/open", _) => Authentication::Ready(Ok(Arc::new(Identity::anonymous()))),
                (_, true) => Authentication::Pending(Box::pin(async move { Err(denial()) })),
                (_, false) => Authentication::Ready(Err(denial())),
            }
        }
    }

    #[tokio::test]
    async fn refused_clients_are_counted_whether_at_once_or_later() {
        let log = Arc::new(AuditLog::default());
        for is_later in [false, true] {
            let audited = AuditedAuthentication::new(
                Arc::new(Refuses(is_later)),
                Arc::<AuditLog>::clone(&log),
            );
            let (headers, connection) = (HeaderMap::new(), ConnectionFacts::default());
            for (endpoint, is_served) in [("/mcp", false), ("/open", true)] {
                let credentials = Credentials {
                    method: &http::Method::POST,
                    path: endpoint,
                    headers: &headers,
                    connection: &connection,
                    client: None,
                    endpoint,
                };
                assert_eq!(
                    audited.authenticate(&credentials).outcome().await.is_ok(),
                    is_served
                );
            }
        }
        let text = fanlight_telemetry::metrics::prometheus(&log.metrics());
        assert!(
            text.contains(
                "fanlight_auth_refusals_total{listener=\"clients\",reason=\"invalid\"} 2\n"
            ),
            "{text}"
        );
    }
}
