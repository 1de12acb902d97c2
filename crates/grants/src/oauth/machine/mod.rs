//! Access to a server for Fanlight itself, or for a user who has signed in at an identity provider.
//! One request at a time fetches a token, and renews it before it expires.

mod grant;
mod progress;
mod settings;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use url::Url;

use super::authorization::TokenTarget;
use super::challenge::Challenge;
use super::discovery::{Discovered, protected_resource};
use super::error::OAuthError;
use super::proof::{Message, ProofKey};
use super::scopes::Scopes;
use crate::fetch::Requests;
use grant::Asking;
pub use progress::Refused;
use progress::{Attempt, Held, Obtained, Progress, Remedy};
pub use settings::{IdentityProvider, MachineGrant, MachineSettings, Subject, TokenFile};
pub(crate) use settings::{SubjectToken, SubjectTokens};

/// The time limit of an attempt, which may be several requests. There is no option, since calls
/// wait for it.
const ATTEMPT: Duration = Duration::from_secs(30);

/// Headers that are not available yet.
pub type PendingHeaders = BoxFuture<'static, Result<HeaderMap, OAuthError>>;

/// Access to one server.
pub struct MachineAccess {
    settings: Mutex<Arc<Sender>>,
    /// The user that the access is for, if any.
    user: Option<Arc<dyn SubjectTokens>>,
    held: ArcSwapOption<Held>,
    progress: Mutex<Progress>,
}

/// The headers for a message.
pub enum Headers {
    /// The headers. They are empty if the server has to state its requirements first.
    Ready(HeaderMap),
    /// Headers with a token that is being fetched.
    Wait(PendingHeaders),
}

impl MachineAccess {
    /// Access with these settings. The first message causes the first request.
    pub fn new(settings: MachineSettings) -> Arc<Self> {
        Self::of_user(settings, None)
    }

    /// A user's access with these settings, or everybody's.
    pub(crate) fn of_user(
        settings: MachineSettings,
        user: Option<Arc<dyn SubjectTokens>>,
    ) -> Arc<Self> {
        let settings = Mutex::new(Arc::new(Sender::new(settings)));
        Arc::new(Self {
            settings,
            user,
            held: ArcSwapOption::empty(),
            progress: Mutex::default(),
        })
    }

    /// Forgets the token and running attempts, because the user has signed in or out.
    pub fn forget(&self) {
        let mut progress = self.progress.lock();
        progress.failed = None;
        progress.forgotten += 1;
        self.held.store(None);
    }

    /// Takes over rotated secrets for the next token. Returns false and changes nothing if other
    /// settings differ, such as the server, since tokens would then be different.
    #[must_use]
    pub fn change(&self, settings: MachineSettings) -> bool {
        let mut sender = self.settings.lock();
        if !settings.give_the_tokens_of(&sender.settings) {
            return false;
        }
        *sender = Arc::new(Sender::new(settings));
        drop(sender);
        self.progress.lock().failed = None;
        true
    }

    /// The headers for a message.
    pub fn headers(self: &Arc<Self>, method: &Method, url: &Url) -> Headers {
        match self.held.load_full().filter(|held| held.is_good()) {
            Some(held) => {
                if held.is_old() {
                    // The attempt's task stores the new token. A failure matters only once this
                    // token has expired.
                    let _ = self.attempt(&mut self.progress.lock(), None);
                }
                match self.token_headers(&held, Message { method, url }) {
                    Ok(headers) => Headers::Ready(headers),
                    Err(error) => Headers::Wait(std::future::ready(Err(error)).boxed()),
                }
            }
            None if self.progress.lock().is_silent() => Headers::Ready(HeaderMap::new()),
            None => Headers::Wait(self.wait(method.clone(), url.clone())),
        }
    }

    /// Other headers for a refused message; `None` if the refusal stands.
    pub fn replace(self: &Arc<Self>, refused: Refused<'_>) -> Option<PendingHeaders> {
        let current = self
            .held
            .load_full()
            .filter(|held| held.is_shown_in(refused.shown));
        let remedy = self.progress.lock().judge(&refused, current.as_deref());
        let (method, url) = (refused.message.method.clone(), refused.message.url.clone());
        match (remedy, current) {
            (Remedy::None, _) => return None,
            (Remedy::StepUp(wanted), Some(held)) => {
                return Some(Arc::clone(self).step_up(held, wanted, method, url).boxed());
            }
            (Remedy::Renew, _) => self.held.store(None),
            (Remedy::StepUp(_) | Remedy::Retry, _) => {}
        }
        Some(self.wait(method, url))
    }

    /// The headers with a token that has more scopes (2026-07-28 basic/authorization, Step-Up
    /// Authorization Flow). If there is none, returns the refused token's headers, so that the
    /// server states again what is missing.
    async fn step_up(
        self: Arc<Self>,
        refused: Arc<Held>,
        wanted: Scopes,
        method: Method,
        url: Url,
    ) -> Result<HeaderMap, OAuthError> {
        let running = self.progress.lock().running.clone();
        if let Some(running) = running {
            let _ = running.await;
        }
        let held = self.held.load_full().filter(|held| held.has(&wanted));
        let held = match held {
            Some(held) => Some(held),
            None => {
                let attempt = self.attempt(&mut self.progress.lock(), Some(wanted));
                let extended = async { attempt?.await };
                extended.await.ok().flatten()
            }
        };
        let (method, url) = (&method, &url);
        self.token_headers(&held.unwrap_or(refused), Message { method, url })
    }

    /// Waits for a token, if there is none.
    fn wait(self: &Arc<Self>, method: Method, url: Url) -> PendingHeaders {
        let access = Arc::clone(self);
        async move {
            let held = match access.held.load_full().filter(|held| held.is_good()) {
                Some(held) => Some(held),
                None => {
                    let attempt = access.attempt(&mut access.progress.lock(), None);
                    attempt?.await?
                }
            };
            let (method, url) = (&method, &url);
            held.map_or_else(
                || Ok(HeaderMap::new()),
                |held| access.token_headers(&held, Message { method, url }),
            )
        }
        .boxed()
    }

    fn token_headers(&self, held: &Held, message: Message<'_>) -> Result<HeaderMap, OAuthError> {
        let nonce = held
            .proof_key
            .as_ref()
            .and_then(|_| self.progress.lock().nonce.clone());
        held.headers(message, nonce.as_deref())
    }

    /// The running attempt, or else a new one in a separate task, so that abandoned calls do not
    /// end it. The `wanted` scopes are requested in addition.
    fn attempt(
        self: &Arc<Self>,
        progress: &mut Progress,
        wanted: Option<Scopes>,
    ) -> Result<Attempt, OAuthError> {
        if let Some(running) = &progress.running {
            return Ok(running.clone());
        }
        if let Some(error) = progress.standing_failure() {
            return Err(error.clone());
        }
        let held = self
            .held
            .load()
            .as_ref()
            .and_then(|held| held.token.scopes.clone())
            .unwrap_or_default();
        let further = match &wanted {
            Some(wanted) => progress.further.union(&held).union(wanted),
            None => progress.further.clone(),
        };
        let (access, forgotten) = (Arc::clone(self), progress.forgotten);
        let plan = Plan {
            sender: Arc::clone(&self.settings.lock()),
            user: self.user.clone(),
            challenge: progress.challenge.clone(),
            authority: progress.authority.clone(),
            issuer: progress.issuer.clone(),
            further,
            proof_key: self
                .held
                .load()
                .as_ref()
                .and_then(|held| held.proof_key.clone()),
        };
        // A runtime that has ended drops the task here, so it must not contain an `Ending` yet, which
        // takes the lock.
        let task = tokio::spawn(async move {
            let mut ending = Ending {
                access,
                wanted,
                outcome: Err(OAuthError::Exhausted(ENDED)),
                forgotten,
            };
            let outcome = tokio::time::timeout(ATTEMPT, plan.carry_out()).await;
            ending.outcome = outcome.unwrap_or(Err(OAuthError::Exhausted("got no token in time")));
            let held = ending
                .outcome
                .as_ref()
                .map(|obtained| obtained.as_ref().map(|(held, _)| Arc::clone(held)));
            held.map_err(Clone::clone)
        });
        let ended = |joined: Result<_, tokio::task::JoinError>| {
            joined.unwrap_or(Err(OAuthError::Exhausted(ENDED)))
        };
        Ok(progress
            .running
            .insert(task.map(ended).boxed().shared())
            .clone())
    }
}

const ENDED: &str = "the attempt to get a token ended without a result";

/// Ends the running attempt with its outcome when dropped, however the task ends.
struct Ending {
    access: Arc<MachineAccess>,
    wanted: Option<Scopes>,
    outcome: Result<Option<Obtained>, OAuthError>,
    /// The counter of forgotten tokens when the attempt began.
    forgotten: u64,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut progress = self.access.progress.lock();
        let ended = progress.running.take();
        let had_failed = progress.failed.is_some();
        progress.end(&self.outcome, self.wanted.as_ref());
        if let Ok(Some((held, _))) = &self.outcome
            && progress.forgotten == self.forgotten
        {
            self.access.held.store(Some(Arc::clone(held)));
        }
        drop(progress);
        // Dropped after the lock is released.
        drop(ended);
        self.log(had_failed);
    }
}

impl Ending {
    /// Logs once that no token is available, and once that one is available again.
    fn log(&self, had_failed: bool) {
        let backend = &self.access.settings.lock().settings.name.clone();
        match &self.outcome {
            Err(OAuthError::NoSubject) => {}
            Err(error) if !had_failed && self.wanted.is_none() => {
                tracing::warn!(backend, %error, "cannot get a token for a server");
            }
            Ok(_) if had_failed => tracing::info!(backend, "got a token for a server again"),
            _ => {}
        }
    }
}

/// The settings, and the HTTP client for them.
struct Sender {
    settings: MachineSettings,
    requests: OnceLock<Requests>,
}

/// The data that an attempt needs.
struct Plan {
    sender: Arc<Sender>,
    user: Option<Arc<dyn SubjectTokens>>,
    challenge: Option<Challenge>,
    authority: Option<Arc<Discovered>>,
    issuer: Option<String>,
    further: Scopes,
    proof_key: Option<ProofKey>,
}

impl Plan {
    /// Gets a token; `None` if the server first has to name its authorization server.
    async fn carry_out(self) -> Result<Option<Obtained>, OAuthError> {
        let settings = &self.sender.settings;
        let requests = self.sender.requests()?;
        let Some(authority) = self.authority(requests).await? else {
            return Ok(None);
        };
        let proof_key = match (authority.needs_proofs, self.proof_key) {
            (false, _) => None,
            (true, Some(key)) => Some(key),
            (true, None) => Some(ProofKey::generate()?),
        };
        let scopes = settings.scopes.clone().or_else(|| authority.scopes.clone());
        let scopes = if self.further.is_empty() {
            scopes
        } else {
            Some(scopes.unwrap_or_default().union(&self.further))
        };
        let target = TokenTarget {
            resource: settings.sends_resource.then(|| authority.resource.clone()),
            scopes,
        };
        let asking = Asking {
            settings,
            requests,
            authority: &authority,
            proof_key: proof_key.as_ref(),
            user: self.user.as_deref(),
        };
        let token = asking.token(&target).await?;
        Ok(Some((Arc::new(Held::new(token, proof_key)?), authority)))
    }

    async fn authority(&self, requests: &Requests) -> Result<Option<Arc<Discovered>>, OAuthError> {
        if let Some(authority) = &self.authority {
            return Ok(Some(Arc::clone(authority)));
        }
        let settings = &self.sender.settings;
        let (server, challenge) = (&settings.trust.server, self.challenge.as_ref());
        if let Some(provider) = settings.configured_provider() {
            return Ok(Some(Arc::new(Discovered::new(
                server, None, provider, challenge,
            ))));
        }
        let metadata_url = challenge.and_then(|challenge| challenge.resource_metadata.as_ref());
        let protected = protected_resource(requests, server, metadata_url).await?;
        if protected.is_none() && challenge.is_none() && settings.issuer.is_none() {
            // The server's challenge may name the place of its metadata.
            return Ok(None);
        }
        let issuer = settings
            .issuer
            .as_ref()
            .or(self.issuer.as_ref())
            .map(String::as_str);
        Discovered::find(requests, server, protected, challenge, issuer)
            .await
            .map(|found| Some(Arc::new(found)))
    }
}

impl Sender {
    fn new(settings: MachineSettings) -> Self {
        Self {
            settings,
            requests: OnceLock::new(),
        }
    }

    fn requests(&self) -> Result<&Requests, OAuthError> {
        if let Some(requests) = self.requests.get() {
            return Ok(requests);
        }
        let requests = Requests::new(&self.settings.trust)?;
        Ok(self.requests.get_or_init(|| requests))
    }
}
