//! Token introspection: asks an issuer about a token (RFC 7662).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fanlight_config::{self as config, Secret};
use fanlight_grants::fetch::{self, FORM, FetchError, Requests};
use fanlight_grants::oauth::{OAuthError, basic, metadata};
use fanlight_protocol::Json;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Semaphore;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::bearer::TokenHash;
use crate::{OAuthLimits, json};

/// How many requests may wait for each running one.
const WAITING: usize = 16;

/// The least time between two attempts to read the metadata of an issuer.
const RETRY: Duration = Duration::from_secs(1);

const BUSY: OAuthError = OAuthError::Exhausted("too many requests wait for the issuer");

/// An issuer's answer about a token: its claims if the token is active.
pub(crate) type Answer = Result<Option<Json>, OAuthError>;

/// Asks one issuer about tokens, at most once at a time about each.
#[derive(Debug)]
pub(crate) struct Introspection {
    issuer: String,
    settings: config::Introspection,
    client: Arc<Requests>,
    timeout: Duration,
    /// The permits of running requests.
    permits: Semaphore,
    /// The permits of running and waiting requests.
    places: Semaphore,
    running: Mutex<HashMap<TokenHash, WeakShared<BoxFuture<'static, Answer>>>>,
    discovered: tokio::sync::Mutex<Discovered>,
    has_failed: AtomicBool,
}

/// The relevant metadata of an issuer, as it publishes them.
#[derive(Deserialize)]
struct Metadata {
    introspection_endpoint: Option<Url>,
}

/// The relevant metadata of an issuer.
#[derive(Debug, Default)]
struct Discovered {
    /// The introspection endpoint.
    endpoint: Option<Url>,
    /// When they were last requested.
    asked: Option<Instant>,
    /// Whether something else answered at the endpoint.
    has_moved: bool,
}

impl Introspection {
    pub(crate) fn new(
        issuer: String,
        settings: config::Introspection,
        limits: &OAuthLimits,
        client: Arc<Requests>,
    ) -> Self {
        Self {
            issuer,
            settings,
            client,
            timeout: limits.request,
            permits: Semaphore::new(limits.introspections),
            places: Semaphore::new(
                limits
                    .introspections
                    .saturating_mul(WAITING)
                    .min(Semaphore::MAX_PERMITS),
            ),
            running: Mutex::default(),
            discovered: tokio::sync::Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// The issuer's answer about the token with this hash. Concurrent callers share one request,
    /// which runs as long as one of them waits.
    pub(crate) fn ask(
        self: &Arc<Self>,
        token: &str,
        hash: TokenHash,
    ) -> Shared<BoxFuture<'static, Answer>> {
        let mut running = self.running.lock();
        if let Some(request) = running.get(&hash).and_then(WeakShared::upgrade) {
            return request;
        }
        let (entry, token) = (Entry(Arc::clone(self), hash), token.to_owned());
        let request = async move { entry.0.request(&token).await }
            .boxed()
            .shared();
        if let Some(weak) = request.downgrade() {
            running.insert(hash, weak);
        }
        request
    }

    async fn request(&self, token: &str) -> Answer {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(BUSY);
        };
        let permit = tokio::time::timeout(self.timeout, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(BUSY);
        };
        let answer = self.exchange(token).await;
        let had_failed = self.has_failed.swap(answer.is_err(), Ordering::Relaxed);
        match &answer {
            Err(error) if !had_failed => {
                tracing::warn!(issuer = self.issuer, %error, "cannot ask an issuer about tokens");
            }
            Ok(_) if had_failed => {
                tracing::info!(issuer = self.issuer, "an issuer answers about tokens again");
            }
            _ => {}
        }
        answer
    }

    async fn exchange(&self, token: &str) -> Answer {
        let endpoint = self.endpoint().await?;
        let form = Serializer::new(String::new())
            .extend_pairs([("token", token), ("token_type_hint", "access_token")])
            .finish();
        let config::Introspection {
            client_id,
            client_secret,
            ..
        } = &self.settings;
        let none = Secret::new("");
        let secret = client_secret.as_ref().unwrap_or(&none);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, basic(client_id, secret)?)]);
        let answer = self.client.post(&endpoint, FORM, headers, form).await?;
        match answer.status {
            StatusCode::OK => {}
            // The issuer does not answer for this kind of token, such as a JWT, which anybody may
            // send. If the credentials were wrong, the status would be 401 (RFC 7662, 2.3).
            StatusCode::BAD_REQUEST => {
                tracing::debug!(
                    issuer = self.issuer,
                    "an issuer refused a request about a token: 400"
                );
                return Ok(None);
            }
            status => {
                if is_elsewhere(status) {
                    self.discovered.lock().await.has_moved = true;
                }
                return Err(FetchError::status(&endpoint, status).into());
            }
        }
        let answer = json::object(answer.body)
            .ok_or_else(|| FetchError::malformed(&endpoint, "it is no JSON object"))?;
        Ok(answer.flag("active").then_some(answer))
    }

    async fn endpoint(&self) -> Result<Url, OAuthError> {
        if let Some(endpoint) = &self.settings.endpoint {
            return Ok(fetch::url(endpoint)?);
        }
        let mut discovered = self.discovered.lock().await;
        let may_ask = discovered
            .asked
            .is_none_or(|asked| asked.elapsed() >= RETRY);
        if let Some(endpoint) = discovered
            .endpoint
            .as_ref()
            .filter(|_| !(discovered.has_moved && may_ask))
        {
            return Ok(endpoint.clone());
        }
        if !may_ask {
            return Err(OAuthError::Exhausted("a request has failed a moment ago"));
        }
        discovered.asked = Some(Instant::now());
        let Metadata {
            introspection_endpoint,
        } = metadata(&self.client, &self.issuer).await?;
        discovered.has_moved = false;
        let endpoint = introspection_endpoint.ok_or_else(|| OAuthError::NoEndpoint {
            issuer: self.issuer.clone(),
            endpoint: "introspection endpoint",
        })?;
        Ok(discovered.endpoint.insert(endpoint).clone())
    }
}

/// Removes a request from the running ones when it ends, even if all callers have left.
struct Entry(Arc<Introspection>, TokenHash);

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
    }
}

/// Whether this status means that something other than the endpoint has answered.
fn is_elsewhere(status: StatusCode) -> bool {
    status.is_redirection()
        || [
            StatusCode::NOT_FOUND,
            StatusCode::METHOD_NOT_ALLOWED,
            StatusCode::GONE,
        ]
        .contains(&status)
}
