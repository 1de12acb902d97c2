//! Access to a server without a user: one token for all, had by one request at a time, and renewed before it ends.

mod grant;
mod settings;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use url::Url;

pub use settings::{IdentityProvider, MachineGrant, MachineSettings, SubjectFile, TokenFile};

use crate::authorization::TokenTarget;
use crate::challenge::Challenge;
use crate::discovery::{Discovered, protected_resource};
use crate::error::OAuthError;
use crate::proof::{ProofKey, ProvenRequest};
use crate::requests::Requests;
use crate::scopes::Scopes;
use crate::token::TokenSet;
use grant::Asking;

/// For how long a failure stands: an authorization server that is down is not asked for each call. No option: an operator who
/// mends it takes longer.
const FAILURE: Duration = Duration::from_secs(5);

/// For how long a refusal stands: what is wrong with the client does not mend itself, and some lock out those who try on.
const REFUSAL: Duration = Duration::from_secs(60);

/// A whole attempt, which may be several requests. No option: calls wait for it.
const ATTEMPT: Duration = Duration::from_secs(30);

/// The longest time before its end at which a token is renewed; of a short-lived one, a fifth of its life.
const AHEAD: Duration = Duration::from_secs(60);

/// For how long a server that has said nothing of how it is protected is not asked for it again.
const SILENCE: Duration = Duration::from_secs(60);

/// The most scopes that are asked for because the server wants more, and the most sets of them that were asked for in vain.
const MOST_SCOPES: usize = 64;

/// Headers, once they are there.
pub type PendingHeaders = BoxFuture<'static, Result<HeaderMap, OAuthError>>;

/// Access to one server.
pub struct MachineAccess {
    settings: Mutex<Arc<Sender>>,
    held: ArcSwapOption<Held>,
    progress: Mutex<Progress>,
}

/// Settings, and what sends requests by them.
struct Sender {
    settings: MachineSettings,
    requests: OnceLock<Requests>,
}

/// A token in use.
struct Held {
    token: TokenSet,
    proof_key: Option<ProofKey>,
    /// The header that shows it, where no proof is needed.
    header: Option<HeaderValue>,
    obtained: Instant,
    /// When it is renewed, though it is still good.
    renewed_at: Option<SystemTime>,
}

/// An attempt to get a token.
type Attempt = Shared<BoxFuture<'static, Result<Option<Arc<Held>>, OAuthError>>>;

#[derive(Default)]
struct Progress {
    running: Option<Attempt>,
    /// The last failure.
    failed: Option<(Instant, OAuthError)>,
    /// What the server has said last of the credentials that it wants.
    challenge: Option<Challenge>,
    authority: Option<Arc<Discovered>>,
    /// The issuer that has been used: credentials of one are not shown to another.
    issuer: Option<String>,
    /// Scopes that the server wanted in addition.
    further: Scopes,
    /// Those that it wanted, and that were not granted.
    denied: Vec<Scopes>,
    /// When the server said nothing of how it is protected.
    silent: Option<Instant>,
    /// What the server said last that proofs have to contain.
    nonce: Option<String>,
}

/// The headers for a message.
pub enum Headers {
    /// They are there. Empty, if the server has to be asked first what it wants.
    Ready(HeaderMap),
    /// A token is being obtained.
    Wait(PendingHeaders),
}

/// A message that the server has refused.
#[derive(Debug)]
pub struct RefusedMessage<'a> {
    /// The status.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`.
    pub challenges: &'a [HeaderValue],
    /// What the next proof has to contain.
    pub nonce: Option<&'a HeaderValue>,
    /// What it was shown.
    pub shown: &'a HeaderMap,
    /// The message's method.
    pub method: Method,
    /// Where it was sent.
    pub url: Url,
}

impl MachineAccess {
    /// Access by these settings. Nothing is asked before the first message.
    #[must_use]
    pub fn new(settings: MachineSettings) -> Arc<Self> {
        let settings = Mutex::new(Arc::new(Sender { settings, requests: OnceLock::new() }));
        Arc::new(Self { settings, held: ArcSwapOption::empty(), progress: Mutex::default() })
    }

    /// Uses other settings from the next token on: secrets that were rotated.
    pub fn change(&self, settings: MachineSettings) {
        *lock(&self.settings) = Arc::new(Sender { settings, requests: OnceLock::new() });
        lock(&self.progress).failed = None;
    }

    /// The headers for a message.
    pub fn headers(self: &Arc<Self>, method: &Method, url: &Url) -> Headers {
        let held = self.held.load_full();
        let now = SystemTime::now();
        match held.filter(|held| !held.token.ends_within(Duration::ZERO)) {
            Some(held) => {
                if held.renewed_at.is_some_and(|at| at <= now) {
                    // The task gets it; a failure matters once this one has ended.
                    let _ = self.attempt(&mut lock(&self.progress), None);
                }
                match self.shown(&held, method, url) {
                    Ok(headers) => Headers::Ready(headers),
                    Err(error) => Headers::Wait(std::future::ready(Err(error)).boxed()),
                }
            }
            None if lock(&self.progress).is_silent() => Headers::Ready(HeaderMap::new()),
            None => Headers::Wait(self.wait(method.clone(), url.clone())),
        }
    }

    /// Other headers for a message that was refused; `None` if the refusal stands.
    pub fn replace(self: &Arc<Self>, refused: RefusedMessage<'_>) -> Option<PendingHeaders> {
        let challenge = Challenge::from_headers(refused.challenges);
        let held = self.held.load_full();
        let current = held.filter(|held| is_shown(held, refused.shown));
        let mut progress = lock(&self.progress);
        let has_new_nonce = progress.take_nonce(refused.nonce);
        match (&current, &challenge) {
            (_, Some(challenge)) if challenge.error.as_deref() == Some("use_dpop_nonce") && !has_new_nonce => {
                return None;
            }
            (_, Some(challenge)) if challenge.error.as_deref() == Some("use_dpop_nonce") => {}
            (Some(held), Some(challenge)) if challenge.wants_more_scopes() => {
                let wanted = progress.wanted(held, challenge)?;
                let (access, held) = (Arc::clone(self), Arc::clone(held));
                return Some(access.step_up(held, wanted, refused.method, refused.url).boxed());
            }
            (None, Some(challenge)) if challenge.wants_more_scopes() => {}
            _ if refused.status == StatusCode::FORBIDDEN => return None,
            // What was had just now for the same challenge would be had again.
            (Some(held), challenge) if held.obtained.elapsed() < FAILURE && *challenge == progress.challenge => {
                return None;
            }
            (Some(_), _) => {
                // It may have been revoked, or another authorization server may have taken over.
                progress.authority = None;
                self.held.store(None);
            }
            // There is another token already, or there was none.
            (None, _) => {}
        }
        progress.challenge = challenge.or(progress.challenge.take());
        drop(progress);
        Some(self.wait(refused.method, refused.url))
    }

    /// A token that has more scopes (2026-07-28 basic/authorization, Step-Up Authorization Flow), or else the one that was
    /// refused: the server then says again what it lacks.
    async fn step_up(
        self: Arc<Self>,
        refused: Arc<Held>,
        wanted: Scopes,
        method: Method,
        url: Url,
    ) -> Result<HeaderMap, OAuthError> {
        let running = lock(&self.progress).running.clone();
        if let Some(running) = running {
            let _ = running.await;
        }
        let held = self.held.load_full().filter(|held| held.has(&wanted));
        let held = match held {
            Some(held) => Some(held),
            None => {
                let attempt = self.attempt(&mut lock(&self.progress), Some(wanted));
                let extended = async { attempt?.await };
                extended.await.ok().flatten()
            }
        };
        self.shown(&held.unwrap_or(refused), &method, &url)
    }

    /// Waits for a token, if there is none.
    fn wait(self: &Arc<Self>, method: Method, url: Url) -> PendingHeaders {
        let access = Arc::clone(self);
        async move {
            let held = access.held.load_full().filter(|held| !held.token.ends_within(Duration::ZERO));
            let held = match held {
                Some(held) => Some(held),
                None => {
                    let attempt = access.attempt(&mut lock(&access.progress), None);
                    attempt?.await?
                }
            };
            held.map_or_else(|| Ok(HeaderMap::new()), |held| access.shown(&held, &method, &url))
        }
        .boxed()
    }

    fn shown(&self, held: &Held, method: &Method, url: &Url) -> Result<HeaderMap, OAuthError> {
        if let Some(header) = &held.header {
            return Ok(HeaderMap::from_iter([(AUTHORIZATION, header.clone())]));
        }
        let nonce = held.proof_key.as_ref().and_then(|_| lock(&self.progress).nonce.clone());
        held.token.headers(ProvenRequest { method, url, nonce: nonce.as_deref() }, held.proof_key.as_ref())
    }

    /// The running attempt, or else a new one, in a task of its own: calls that are given up do not end it. With scopes that
    /// are `wanted`, they are asked for in addition.
    fn attempt(self: &Arc<Self>, progress: &mut Progress, wanted: Option<Scopes>) -> Result<Attempt, OAuthError> {
        if let Some(running) = &progress.running {
            return Ok(running.clone());
        }
        if let Some(error) = progress.standing_failure() {
            return Err(error.clone());
        }
        let held = self.held.load().as_ref().and_then(|held| held.token.scopes.clone()).unwrap_or_default();
        let further = match &wanted {
            Some(wanted) => progress.further.with(&held).with(wanted),
            None => progress.further.clone(),
        };
        let mut ending = Ending { access: Arc::clone(self), wanted, outcome: Err(OAuthError::Exhausted(ENDED)) };
        let plan = Plan {
            sender: Arc::clone(&lock(&self.settings)),
            challenge: progress.challenge.clone(),
            authority: progress.authority.clone(),
            issuer: progress.issuer.clone(),
            further,
            proof_key: self.held.load().as_ref().and_then(|held| held.proof_key.clone()),
        };
        let task = tokio::spawn(async move {
            let outcome = tokio::time::timeout(ATTEMPT, plan.carry_out()).await;
            ending.outcome = outcome.unwrap_or(Err(OAuthError::Exhausted("no token could be had in time")));
            let held = ending.outcome.as_ref().map(|obtained| obtained.as_ref().map(|(held, _)| Arc::clone(held)));
            held.map_err(Clone::clone)
        });
        let ended = |joined: Result<_, tokio::task::JoinError>| joined.unwrap_or(Err(OAuthError::Exhausted(ENDED)));
        Ok(progress.running.insert(task.map(ended).boxed().shared()).clone())
    }
}

impl Progress {
    /// Whether the server was asked lately how it is protected, and said nothing. A message without credentials may have it say
    /// so in a challenge.
    fn is_silent(&self) -> bool {
        self.challenge.is_none() && self.silent.is_some_and(|at| at.elapsed() < SILENCE)
    }

    /// Takes over what proofs have to contain; whether that is new.
    fn take_nonce(&mut self, nonce: Option<&HeaderValue>) -> bool {
        let Some(nonce) = nonce.and_then(|nonce| nonce.to_str().ok()) else { return false };
        self.nonce.replace(nonce.to_owned()).as_deref() != Some(nonce)
    }

    /// The scopes that a token needs in addition, unless they were asked for in vain.
    fn wanted(&self, held: &Held, challenge: &Challenge) -> Option<Scopes> {
        let wanted = challenge.scopes.as_ref()?;
        let is_vain = held.has(wanted) || self.denied.contains(wanted) || self.denied.len() >= MOST_SCOPES;
        let is_bounded = self.further.with(wanted).len() <= MOST_SCOPES;
        (!is_vain && is_bounded).then(|| wanted.clone())
    }

    /// Why it is too early for another attempt.
    fn standing_failure(&self) -> Option<&OAuthError> {
        let (at, error) = self.failed.as_ref()?;
        let stands = if error.refusal().is_some() && !error.is_temporary() { REFUSAL } else { FAILURE };
        (at.elapsed() < stands).then_some(error)
    }

    /// Takes over what an attempt has come to.
    fn end(&mut self, outcome: &Result<Option<Obtained>, OAuthError>, wanted: Option<&Scopes>) {
        match (outcome, wanted) {
            (Ok(Some((held, authority))), _) => {
                self.issuer = Some(authority.provider.issuer.clone());
                self.authority = Some(Arc::clone(authority));
                self.failed = None;
                match wanted {
                    Some(wanted) if held.has(wanted) => {
                        let granted = held.token.scopes.clone().unwrap_or_default();
                        self.further = self.further.with(&granted);
                    }
                    Some(wanted) => self.denied.push(wanted.clone()),
                    None => {}
                }
            }
            (Ok(None), _) => self.silent = Some(Instant::now()),
            // The token that there is goes on being used.
            (Err(error), Some(wanted)) if !error.is_temporary() => self.denied.push(wanted.clone()),
            (Err(_), Some(_)) => {}
            (Err(error), None) => {
                self.authority = None;
                self.failed = Some((Instant::now(), error.clone()));
            }
        }
    }
}

impl Held {
    /// Whether it has these scopes.
    fn has(&self, scopes: &Scopes) -> bool {
        self.token.scopes.as_ref().is_some_and(|held| held.include(scopes))
    }
}

const ENDED: &str = "the attempt to get a token has ended without a result";

/// A token, and whose it is.
type Obtained = (Arc<Held>, Arc<Discovered>);

/// Ends the running attempt with its outcome when it is dropped: with the task, however that ends.
struct Ending {
    access: Arc<MachineAccess>,
    wanted: Option<Scopes>,
    outcome: Result<Option<Obtained>, OAuthError>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut progress = lock(&self.access.progress);
        let ended = progress.running.take();
        let had_failed = progress.failed.is_some();
        progress.end(&self.outcome, self.wanted.as_ref());
        if let Ok(Some((held, _))) = &self.outcome {
            self.access.held.store(Some(Arc::clone(held)));
        }
        drop(progress);
        // Without the lock.
        drop(ended);
        self.log(had_failed);
    }
}

impl Ending {
    /// Says once that no token can be had, and once that it can again.
    fn log(&self, had_failed: bool) {
        let backend = &lock(&self.access.settings).settings.name.clone();
        match &self.outcome {
            Err(error) if !had_failed && self.wanted.is_none() => {
                tracing::warn!(backend, %error, "no token can be had for a server");
            }
            Ok(_) if had_failed => tracing::info!(backend, "tokens can be had for a server again"),
            _ => {}
        }
    }
}

/// What an attempt is made with.
struct Plan {
    sender: Arc<Sender>,
    challenge: Option<Challenge>,
    authority: Option<Arc<Discovered>>,
    issuer: Option<String>,
    further: Scopes,
    proof_key: Option<ProofKey>,
}

impl Plan {
    /// Gets a token; `None` if the server has to say first where.
    async fn carry_out(self) -> Result<Option<Obtained>, OAuthError> {
        let settings = &self.sender.settings;
        let requests = self.sender.requests()?;
        let Some(authority) = self.authority(requests).await? else { return Ok(None) };
        let proof_key = match (authority.needs_proofs, self.proof_key) {
            (false, _) => None,
            (true, Some(key)) => Some(key),
            (true, None) => Some(ProofKey::generate()?),
        };
        let scopes = settings.scopes.clone().or_else(|| authority.scopes.clone());
        let scopes =
            if self.further.is_empty() { scopes } else { Some(scopes.unwrap_or_default().with(&self.further)) };
        let target = TokenTarget { resource: settings.sends_resource.then(|| authority.resource.clone()), scopes };
        let asking = Asking { settings, requests, authority: &authority, proof_key: proof_key.as_ref() };
        let token = asking.token(&target).await?;
        let renewed_at = token.expires_at.map(|end| end - ahead(end));
        let header = if proof_key.is_none() { Some(token.bearer()?) } else { None };
        Ok(Some((Arc::new(Held { token, proof_key, header, obtained: Instant::now(), renewed_at }), authority)))
    }

    async fn authority(&self, requests: &Requests) -> Result<Option<Arc<Discovered>>, OAuthError> {
        if let Some(authority) = &self.authority {
            return Ok(Some(Arc::clone(authority)));
        }
        let settings = &self.sender.settings;
        let (server, challenge) = (&settings.trust.server, self.challenge.as_ref());
        if let Some(provider) = settings.configured_provider() {
            return Ok(Some(Arc::new(Discovered::new(server, None, provider, challenge))));
        }
        let metadata_url = challenge.and_then(|challenge| challenge.resource_metadata.as_ref());
        let protected = protected_resource(requests, server, metadata_url).await?;
        if protected.is_none() && challenge.is_none() && settings.issuer.is_none() {
            // Its challenge may say where its metadata are.
            return Ok(None);
        }
        let issuer = settings.issuer.as_ref().or(self.issuer.as_ref()).map(String::as_str);
        Discovered::find(requests, server, protected, challenge, issuer).await.map(|found| Some(Arc::new(found)))
    }
}

impl Sender {
    fn requests(&self) -> Result<&Requests, OAuthError> {
        if let Some(requests) = self.requests.get() {
            return Ok(requests);
        }
        let requests = Requests::new(&self.settings.trust)?;
        Ok(self.requests.get_or_init(|| requests))
    }
}

/// How long before its end a token is renewed that is new now.
fn ahead(end: SystemTime) -> Duration {
    end.duration_since(SystemTime::now()).map_or(Duration::ZERO, |life| (life / 5).min(AHEAD))
}

/// Whether these headers show this token.
fn is_shown(held: &Held, shown: &HeaderMap) -> bool {
    let value = shown.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.split_once(' ')).is_some_and(|(_, token)| token == held.token.access_token.expose())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
