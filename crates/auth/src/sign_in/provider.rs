//! An issuer's metadata: its endpoints.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fanlight_protocol::Json;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use reqwest::Url;

use crate::issuer::{FetchError, IssuerClient, discovery};
use crate::json;

/// How long an issuer's metadata are used. There is no option: a sign-in is rare, and waits for a
/// new reading.
const FRESH: Duration = Duration::from_secs(600);

/// How long a failed issuer is not asked again. There is no option: anybody can begin a sign-in,
/// and an operator who tries again takes longer.
const RETRY: Duration = Duration::from_secs(2);

/// The endpoints of an issuer.
#[derive(Debug)]
pub(super) struct Provider {
    /// The URL where browsers sign in.
    pub(super) authorization: Url,
    /// The token endpoint.
    pub(super) token: String,
    /// Whether each of its answers names it (RFC 9207, 3).
    pub(super) names_itself: bool,
    /// Whether a client's secret is sent in the form, because the header is not accepted.
    pub(super) takes_secret_in_form: bool,
}

/// The latest endpoints of an issuer. Anybody can cause a reading, so there is one attempt at a
/// time, and its failure is remembered for a while.
#[derive(Debug, Default)]
pub(super) struct Providers {
    known: ArcSwapOption<(Instant, Arc<Provider>)>,
    attempts: Mutex<Attempts>,
}

/// An attempt to read the endpoints.
type Reading = Shared<BoxFuture<'static, Result<Arc<Provider>, FetchError>>>;

#[derive(Debug, Default)]
struct Attempts {
    running: Option<Reading>,
    /// When the last attempt failed.
    failed: Option<Instant>,
}

impl Providers {
    /// The endpoints of `issuer`, read again if they are old.
    pub(super) async fn get(
        self: &Arc<Self>,
        client: &Arc<IssuerClient>,
        issuer: &str,
    ) -> Result<Arc<Provider>, FetchError> {
        if let Some((_, provider)) = self
            .known
            .load()
            .as_deref()
            .filter(|(read, _)| read.elapsed() < FRESH)
        {
            return Ok(Arc::clone(provider));
        }
        self.reading(client, issuer)?.await
    }

    /// The running attempt, or else a new one.
    fn reading(
        self: &Arc<Self>,
        client: &Arc<IssuerClient>,
        issuer: &str,
    ) -> Result<Reading, FetchError> {
        let mut attempts = self.attempts();
        if let Some(running) = &attempts.running {
            return Ok(running.clone());
        }
        if attempts
            .failed
            .is_some_and(|failed| failed.elapsed() < RETRY)
        {
            return Err(FetchError::JustFailed);
        }
        let (mut ending, client, issuer) = (
            Ending(Arc::clone(self), Err(FetchError::JustFailed)),
            Arc::clone(client),
            issuer.to_owned(),
        );
        // A separate task, so that disconnecting browsers do not end it. It takes no longer than a
        // few requests to the issuer.
        let task = tokio::spawn(async move {
            ending.1 = Provider::of(&client, &issuer).await;
            ending.1.clone()
        });
        let ended = |joined: Result<_, tokio::task::JoinError>| {
            joined.unwrap_or(Err(FetchError::JustFailed))
        };
        Ok(attempts
            .running
            .insert(task.map(ended).boxed().shared())
            .clone())
    }

    fn end(&self, outcome: &Result<Arc<Provider>, FetchError>) {
        let now = Instant::now();
        if let Ok(provider) = outcome {
            self.known
                .store(Some(Arc::new((now, Arc::clone(provider)))));
        }
        let ended = std::mem::replace(
            &mut *self.attempts(),
            Attempts {
                running: None,
                failed: outcome.is_err().then_some(now),
            },
        );
        // Dropped after the lock is released.
        drop(ended);
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the running attempt with its outcome when dropped, however the task ends.
struct Ending(Arc<Providers>, Result<Arc<Provider>, FetchError>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(&self.1);
    }
}

impl Provider {
    async fn of(client: &IssuerClient, issuer: &str) -> Result<Arc<Self>, FetchError> {
        let metadata = discovery::metadata(client, issuer).await?;
        Self::read(client, &metadata).map(Arc::new)
    }

    fn read(client: &IssuerClient, metadata: &Json) -> Result<Self, FetchError> {
        let authorization = discovery::url(metadata, "authorization_endpoint")?;
        // The page navigates there, so a script's scheme must be refused.
        let authorization = client.permitted(&authorization)?;
        let texts = |name| metadata.get(name).and_then(|value| json::texts(&value));
        // If absent, it means the header (RFC 8414, 2).
        let methods = texts("token_endpoint_auth_methods_supported");
        let accepts = |name: &str| {
            methods
                .as_ref()
                .is_some_and(|methods| methods.iter().any(|one| one == name))
        };
        let names_itself = metadata.peek("authorization_response_iss_parameter_supported");
        Ok(Self {
            authorization,
            token: discovery::url(metadata, "token_endpoint")?,
            names_itself: names_itself.is_some_and(|value| value.is_true()),
            takes_secret_in_form: accepts("client_secret_post") && !accepts("client_secret_basic"),
        })
    }
}
