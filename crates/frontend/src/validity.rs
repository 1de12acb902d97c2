//! Ends requests and streams when the credentials of their identity expire or are revoked.
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use fanlight_canonical::identity::{Identity, Source};
use fanlight_protocol::{RpcError, code};
use futures_util::future::BoxFuture;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long a running request may outlast its credentials. A constant: the docs promise at most a
/// minute, and timers are late.
pub(crate) const REQUEST_GRACE: Duration = Duration::from_secs(45);

/// The way credentials ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Expired,
    Revoked,
}

/// Resolves when an identity must no longer be used.
pub(crate) type ValidityEnd = BoxFuture<'static, Ended>;

/// The end of `identity`; an expiry counts `grace` later. `None` for an unauthenticated client,
/// whose requests need no such check and no memory for it.
pub(crate) fn end_of(identity: &Identity, grace: Duration) -> Option<ValidityEnd> {
    if identity.source == Source::Anonymous {
        return None;
    }
    let revoked = identity.validity.revoked.clone().cancelled_owned();
    let left = identity.validity.expires.map(|expires| {
        expires
            .duration_since(SystemTime::now())
            .unwrap_or_default()
    });
    Some(match left {
        None => Box::pin(async move {
            revoked.await;
            Ended::Revoked
        }),
        Some(left) => Box::pin(async move {
            tokio::select! {
                biased;
                () = revoked => Ended::Revoked,
                () = sleep(left.saturating_add(grace)) => Ended::Expired,
            }
        }),
    })
}

/// The identity of a running request, which ends soon after the identity does.
pub(crate) struct RequestValidity {
    identity: Arc<Identity>,
    /// Set once the request has to wait; most wait only briefly.
    end: Option<ValidityEnd>,
}

impl RequestValidity {
    /// `None` for an unauthenticated client.
    pub(crate) fn from_identity(identity: &Arc<Identity>) -> Option<Box<Self>> {
        let is_authenticated = identity.source != Source::Anonymous;
        is_authenticated.then(|| {
            Box::new(Self {
                identity: Arc::clone(identity),
                end: None,
            })
        })
    }

    /// Ready if the request must end; does not register the task.
    pub(crate) fn poll_before(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let end = self.end.as_mut();
        end.map_or(Poll::Pending, |end| end.as_mut().poll(cx))
    }

    /// Ready once the request must end; wakes the task then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        if self.end.is_none() {
            self.end = end_of(&self.identity, REQUEST_GRACE);
        }
        self.poll_before(cx)
    }

    /// Cancelled when the identity is revoked.
    pub(crate) fn revoked(&self) -> &CancellationToken {
        &self.identity.validity.revoked
    }
}

/// The error for a request whose credentials ended while it was running.
pub(crate) fn request_ended(ended: Ended) -> RpcError {
    let how = match ended {
        Ended::Expired => "have expired",
        Ended::Revoked => "have been revoked",
    };
    let message = format!(
        "the credentials of the request {how} while it was running; it may have been carried out"
    );
    RpcError::new(code::NOT_AUTHENTICATED, message).may_have_run(true)
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::identity::Validity;
    use tokio::time::Instant;

    use super::*;

    fn identity(source: Source, left: Option<Duration>) -> Identity {
        let validity = Validity {
            expires: left.map(|left| SystemTime::now() + left),
            ..Validity::default()
        };
        Identity {
            source,
            validity,
            ..Identity::anonymous()
        }
    }

    async fn ended(identity: &Identity, grace: u64) -> Ended {
        end_of(identity, Duration::from_secs(grace)).unwrap().await
    }

    #[tokio::test(start_paused = true)]
    async fn identity_ends_by_expiry_or_revocation() {
        let start = Instant::now();
        assert_eq!(
            ended(&identity(Source::Token, Some(Duration::from_secs(100))), 45).await,
            Ended::Expired
        );
        assert!(
            (144..=146).contains(&start.elapsed().as_secs()),
            "{:?}",
            start.elapsed()
        );
        let start = Instant::now();
        assert_eq!(
            ended(&identity(Source::Token, Some(Duration::ZERO)), 0).await,
            Ended::Expired
        );
        assert!(start.elapsed() < Duration::from_secs(1));
        let key = identity(Source::Key, None);
        key.validity.revoked.cancel();
        assert_eq!(ended(&key, 45).await, Ended::Revoked);
    }

    #[tokio::test]
    async fn client_without_credentials_has_no_end() {
        let anonymous = Arc::new(identity(Source::Anonymous, None));
        assert!(
            end_of(&anonymous, Duration::ZERO).is_none()
                && RequestValidity::from_identity(&anonymous).is_none()
        );
    }
}
