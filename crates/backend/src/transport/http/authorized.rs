//! A request with credentials. They may have to be obtained first, and the request is repeated once
//! if the server refuses them.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use fanlight_telemetry::recording::Tap;
use futures_util::future::BoxFuture;
use http::header::{HeaderMap, HeaderName, WWW_AUTHENTICATE};

use super::client::{HttpClient, HttpError, HttpRequest, HttpResponse, ResponseFuture};
use crate::credentials::{CredentialSource, MessageTarget, Refusal};

const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// A request in progress.
pub(super) enum Exchange {
    /// A request with the configured headers only.
    Plain(ResponseFuture),
    /// A request with additional credentials.
    Authorized {
        request: BoxFuture<'static, Result<HttpResponse, HttpError>>,
        may_be_sent: Arc<AtomicBool>,
    },
}

impl Exchange {
    /// Sends a request with credentials.
    pub(super) fn authorized(
        client: &Arc<HttpClient>,
        source: &Arc<dyn CredentialSource>,
        request: HttpRequest,
        tap: Option<&Arc<Tap>>,
    ) -> Self {
        let may_be_sent = Arc::<AtomicBool>::default();
        let sending = Sending {
            client: Arc::clone(client),
            may_be_sent: Arc::clone(&may_be_sent),
            tap: tap.cloned(),
        };
        Self::Authorized {
            request: Box::pin(sending.run(Arc::clone(source), request)),
            may_be_sent,
        }
    }

    /// Whether part of the request may have been written.
    pub(super) fn may_be_sent(&self) -> bool {
        match self {
            Self::Plain(request) => request.may_be_sent(),
            Self::Authorized { may_be_sent, .. } => may_be_sent.load(Ordering::Relaxed),
        }
    }
}

impl Future for Exchange {
    type Output = Result<HttpResponse, HttpError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Plain(request) => Pin::new(request).poll(cx),
            Self::Authorized { request, .. } => request.as_mut().poll(cx),
        }
    }
}

struct Sending {
    client: Arc<HttpClient>,
    may_be_sent: Arc<AtomicBool>,
    /// The tap of the running recording.
    tap: Option<Arc<Tap>>,
}

impl Sending {
    async fn run(
        self,
        source: Arc<dyn CredentialSource>,
        request: HttpRequest,
    ) -> Result<HttpResponse, HttpError> {
        let target = MessageTarget {
            method: &request.method,
            url: request.target.url(),
        };
        let shown = source.credentials(&target).headers().await?;
        let response = self.send(request.clone(), &shown).await?;
        let Some(refused) = refusal(&response, &request, shown) else {
            return Ok(response);
        };
        // The request certainly did not run. It is sent once more with other credentials, but not a
        // third time.
        match source.replace(refused) {
            None => Ok(response),
            Some(pending) => {
                let other = pending.await?;
                let response = self.send(request.clone(), &other).await?;
                let again = refusal(&response, &request, other);
                match again.and_then(|refusal| source.give_up(&refusal)) {
                    Some(missing) => Err(missing.into()),
                    None => Ok(response),
                }
            }
        }
    }

    async fn send(
        &self,
        mut request: HttpRequest,
        shown: &HeaderMap,
    ) -> Result<HttpResponse, HttpError> {
        for (name, value) in shown {
            self.tap.iter().for_each(|tap| tap.hide(value.as_bytes()));
            request.headers.insert(name, value.clone());
        }
        let mut sent = pin!(self.client.execute(request));
        std::future::poll_fn(|cx| {
            let polled = sent.as_mut().poll(cx);
            if sent.may_be_sent() {
                self.may_be_sent.store(true, Ordering::Relaxed);
            }
            polled
        })
        .await
    }
}

/// The refusal of credentials, if the response is one: 401, or 403 with a challenge (2026-07-28
/// basic/authorization, Scope Challenge Handling). Any other 403 concerns the request itself.
fn refusal(response: &HttpResponse, request: &HttpRequest, shown: HeaderMap) -> Option<Refusal> {
    let challenges: Vec<_> = response
        .headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .cloned()
        .collect();
    let is_refusal = match response.status.as_u16() {
        401 => true,
        403 => !challenges.is_empty(),
        _ => false,
    };
    is_refusal.then(|| Refusal {
        status: response.status,
        challenges,
        nonce: response.headers.get(DPOP_NONCE).cloned(),
        shown,
        method: request.method.clone(),
        url: request.target.url().clone(),
    })
}
