//! The credentials of one user for one server: had from the store, renewed ahead of their end, once at a time.

mod renewal;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fanlight_oauth::{Challenge, Scopes, TokenKind};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::record::Grant;
use crate::server::{Method, Server};
use crate::store::{Owner, Store, StoreError};

/// Access tokens are renewed this long before they end, or half of their time if that is less.
const AHEAD: Duration = Duration::from_secs(60);

/// The credentials of one user for one server.
pub struct UserAccess(Arc<Shared>);

struct Shared {
    store: Store,
    server: Arc<Server>,
    owner: Owner,
    state: Mutex<State>,
    /// What goes on though nobody waits for it.
    tasks: TaskTracker,
}

#[derive(Default)]
struct State {
    held: Option<Arc<Held>>,
    /// Whether work is being done to have other credentials, and its outcome.
    working: Option<watch::Receiver<Option<Outcome>>>,
}

/// Credentials that can be sent.
struct Held {
    headers: HeaderMap,
    /// From then on others are to be had.
    renew_at: Option<SystemTime>,
    /// From then on they are worth nothing.
    ends_at: Option<SystemTime>,
}

type Outcome = Result<Option<Arc<Held>>, NoAccess>;

/// Header fields, now or soon.
#[derive(Debug)]
pub enum Ready {
    /// Now.
    Now(HeaderMap),
    /// After the store or an authorization server has answered: [`UserAccess::load`].
    Later,
}

/// Why a user has no credentials that could be sent.
#[derive(Clone, Debug)]
pub enum NoAccess {
    /// The user has to sign in, or to deposit a key.
    SignIn(Wanted),
    /// Nothing that the user could do helps. The text is for operators.
    Unavailable(String),
}

/// What a server wants of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Where it says its metadata are.
    pub resource_metadata: Option<String>,
    /// The scopes to ask for, besides those that were granted.
    pub scopes: Option<Scopes>,
}

/// What a server says that refuses a message.
#[derive(Debug)]
pub struct Refused<'a> {
    /// 401 or 403.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`.
    pub challenges: &'a [HeaderValue],
    /// The header fields of [`UserAccess`] that the message had.
    pub sent: &'a HeaderMap,
}

impl From<StoreError> for NoAccess {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl fmt::Debug for UserAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserAccess").field("owner", &self.0.owner).finish_non_exhaustive()
    }
}

impl UserAccess {
    pub(crate) fn new(store: Store, server: Arc<Server>, owner: Owner, tasks: TaskTracker) -> Self {
        Self(Arc::new(Shared { store, server, owner, state: Mutex::default(), tasks }))
    }

    pub(crate) fn is_of(&self, server: &Arc<Server>) -> bool {
        Arc::ptr_eq(&self.0.server, server)
    }

    /// The header fields of the next message, where nobody has to be asked.
    #[must_use]
    pub fn ready(&self) -> Ready {
        let held = self.0.lock().held.clone();
        let now = SystemTime::now();
        match held {
            Some(held) if held.ends_at.is_none_or(|end| now < end) => {
                if held.renew_at.is_some_and(|time| time <= now) {
                    drop(self.0.work(None));
                }
                Ready::Now(held.headers.clone())
            }
            _ => Ready::Later,
        }
    }

    /// The header fields of the next message: none for a user without a grant, whom the server may serve without.
    ///
    /// # Errors
    ///
    /// If there is a grant that cannot be used now.
    pub async fn load(&self) -> Result<HeaderMap, NoAccess> {
        let held = finished(self.0.work(None)).await?;
        Ok(held.map(|held| held.headers.clone()).unwrap_or_default())
    }

    /// Other header fields than those of a message that a server has refused.
    ///
    /// # Errors
    ///
    /// If there are none: the user has to sign in, or nothing helps now.
    pub async fn replace(&self, refused: Refused<'_>) -> Result<HeaderMap, NoAccess> {
        let challenge = Challenge::from_headers(refused.challenges).unwrap_or_default();
        let wants_scopes = refused.status == StatusCode::FORBIDDEN || challenge.wants_more_scopes();
        let sent = refused.sent.get(self.0.header());
        // What others have begun may end with what was refused.
        for _ in 0..2 {
            let refused = sent.filter(|_| !wants_scopes).cloned();
            let held = finished(self.0.work(refused)).await?;
            let other = held.filter(|held| held.headers.get(self.0.header()) != sent);
            if let Some(held) = other {
                return Ok(held.headers.clone());
            }
        }
        Err(if wants_scopes { self.more_scopes(&challenge).await } else { NoAccess::SignIn(Wanted::of(&challenge)) })
    }

    /// What is wanted of a user whose scopes do not suffice: those that were granted, and those that are wanted now (2026-07-28
    /// basic/authorization, Step-Up Authorization Flow).
    async fn more_scopes(&self, challenge: &Challenge) -> NoAccess {
        let held = match self.0.store.get::<Grant>(&self.0.owner).await {
            Ok(grant) => grant.and_then(|grant| grant.scopes().cloned()).unwrap_or_default(),
            Err(error) => return error.into(),
        };
        let wanted = challenge.scopes.clone().unwrap_or_default();
        // Otherwise a user would be sent from sign-in to sign-in.
        if held.include(&wanted) {
            let reason = "the server wants scopes that its user has granted already, or does not say which it wants";
            return NoAccess::Unavailable(reason.to_owned());
        }
        NoAccess::SignIn(Wanted { scopes: Some(held.with(&wanted)), ..Wanted::of(challenge) })
    }

    /// Forgets what is held, since the store has something else.
    pub(crate) fn forget(&self) {
        self.0.lock().held = None;
    }
}

impl Wanted {
    fn of(challenge: &Challenge) -> Self {
        Self {
            resource_metadata: challenge.resource_metadata.as_ref().map(ToString::to_string),
            scopes: challenge.scopes.clone(),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The header field that shows who the user is.
    fn header(&self) -> http::HeaderName {
        match &self.server.settings.method {
            Method::SignIn(_) => AUTHORIZATION,
            Method::Key { header, .. } => header.clone(),
        }
    }

    /// Begins to have other credentials than those with the `refused` value, or joins those who do. The work goes on if nobody
    /// waits for it any more: a token that was asked for has to be kept.
    fn work(self: &Arc<Self>, refused: Option<HeaderValue>) -> watch::Receiver<Option<Outcome>> {
        let mut state = self.lock();
        if let Some(working) = state.working.as_ref().filter(|working| working.has_changed().is_ok()) {
            return working.clone();
        }
        let (sender, receiver) = watch::channel(None);
        state.working = Some(receiver.clone());
        drop(state);
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let outcome = this.renewed(refused).await;
            let mut state = this.lock();
            state.working = None;
            if let Ok(held) = &outcome {
                state.held.clone_from(held);
            }
            drop(state);
            sender.send_replace(Some(outcome));
        });
        receiver
    }
}

/// The outcome of work that others may wait for, too.
async fn finished(mut working: watch::Receiver<Option<Outcome>>) -> Outcome {
    let lost = || NoAccess::Unavailable("the renewal of a user's credentials was given up".to_owned());
    let outcome = working.wait_for(Option::is_some).await.map_err(|_| lost())?;
    outcome.clone().unwrap_or_else(|| Err(lost()))
}

impl Held {
    fn of_key(header: http::HeaderName, prefix: &str, key: &str) -> Option<Self> {
        let headers = HeaderMap::from_iter([(header, secret(&format!("{prefix}{key}"))?)]);
        Some(Self { headers, renew_at: None, ends_at: None })
    }

    fn of_grant(grant: &Grant) -> Option<Self> {
        let tokens = &grant.tokens;
        let scheme = match tokens.kind {
            TokenKind::Bearer => "Bearer",
            TokenKind::Dpop => "DPoP",
        };
        let value = secret(&format!("{scheme} {}", tokens.access_token.expose()))?;
        let lifetime = tokens.expires_at.and_then(|end| end.duration_since(grant.issued).ok());
        let ahead = lifetime.map_or(AHEAD, |lifetime| AHEAD.min(lifetime / 2));
        let renew_at = tokens.expires_at.filter(|_| tokens.refresh_token.is_some()).map(|end| end - ahead);
        Some(Self { headers: HeaderMap::from_iter([(AUTHORIZATION, value)]), renew_at, ends_at: tokens.expires_at })
    }
}

/// The value of a header field that is shown in no log.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
