//! The credentials of one user for one server. They come from the store, and are renewed before
//! they expire, by one process at a time.

mod held;
mod renewal;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use fanlight_config::settings::Secret;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

use crate::oauth::{
    Challenge, ID_TOKEN, Message, OAuthError, REFRESH_TOKEN, Refused, SubjectToken,
};
use crate::record::{Grant, SIGN_IN_TIME};
use crate::server::{Method, Server, Wanted};
use crate::{GrantRecord, Owner, Stamp, Store, StoreError};
use held::Held;

/// How often to check whether another process has changed something.
const LOOK: Duration = Duration::from_secs(1);

/// The credentials of one user for one server. Clones share them.
#[derive(Clone)]
pub struct UserAccess(Arc<Shared>);

struct Shared {
    store: Store,
    record: Arc<dyn GrantRecord>,
    /// The current configuration, in which the secrets of the client may change.
    server: ArcSwap<Server>,
    owner: Owner,
    state: Mutex<State>,
    /// Work that continues even if nobody waits for it.
    tasks: TaskTracker,
}

#[derive(Default)]
struct State {
    held: Option<Arc<Held>>,
    looked: Looked,
    /// The server's requirements if the user has no credentials, and the store's stamp at that
    /// time.
    missing: Option<(Wanted, Stamp)>,
    /// The time when the user began to sign in. Dropping the sender wakes those who wait for the
    /// end.
    signing_in: Option<(Instant, watch::Sender<()>)>,
    /// The failure to renew a grant.
    failed: Option<Failed>,
    /// The server's latest nonce for DPoP proofs (RFC 9449, 9).
    nonce: Option<String>,
    /// Running work to get other credentials, until it has an outcome.
    working: Option<watch::Receiver<Option<Outcome>>>,
}

/// The time of the last check for changes by another process, and the store's stamp then.
#[derive(Default)]
pub(crate) struct Looked(Option<(Instant, Stamp)>);

/// The failure to renew a grant. While it stands, calls do not ask the authorization server again.
struct Failed {
    /// When the grant's access token was issued, which identifies the grant.
    issued: SystemTime,
    until: Instant,
    /// The reason, for operators.
    reason: String,
}

type Outcome = Result<Option<Arc<Held>>, NoAccess>;

/// The reason why a user has no credentials to send.
#[derive(Clone, Debug)]
pub enum NoAccess {
    /// The user has to sign in, or to deposit a key.
    SignIn(Box<Wanted>),
    /// The credentials are unavailable for a reason that the user cannot change. The text is for
    /// operators.
    Unavailable(String),
}

impl From<StoreError> for NoAccess {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

fanlight_protocol::opaque!(UserAccess);

impl UserAccess {
    pub(crate) fn new(
        store: Store,
        record: Arc<dyn GrantRecord>,
        server: Arc<Server>,
        owner: Owner,
        tasks: TaskTracker,
    ) -> Self {
        let server = ArcSwap::new(server);
        Self(Arc::new(Shared {
            store,
            record,
            server,
            owner,
            state: Mutex::default(),
            tasks,
        }))
    }

    pub(crate) fn is_of(&self, server: &Arc<Server>) -> bool {
        Arc::ptr_eq(&self.0.server.load(), server)
    }

    /// Takes over rotated secrets of the server's client, if nothing else of it has changed.
    /// Existing users of this access continue with it.
    pub(crate) fn change(&self, server: &Arc<Server>) {
        if self.0.server.load().is_client_of(server) {
            self.0.server.store(Arc::clone(server));
            self.0.state.lock().failed = None;
        }
    }

    /// Whether anybody besides the table of all accesses uses this.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The server's requirements, if it refuses to serve the user without credentials.
    pub fn requirements(&self) -> Option<Wanted> {
        let state = self.0.state.lock();
        let (wanted, stamp) = state.missing.as_ref()?;
        // After a change of the store, another process may have signed the user in.
        let holds = state.is_signing_in() || self.0.store.stamp() == *stamp;
        holds.then(|| wanted.clone())
    }

    /// Waits until the user has finished or given up signing in; `None` if no sign-in is running.
    #[must_use]
    pub fn signing_in(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let state = self.0.state.lock();
        let (begun, end) = state.signing_in.as_ref()?;
        let (left, mut end) = (SIGN_IN_TIME.checked_sub(begun.elapsed())?, end.subscribe());
        Some(async move {
            let _ = timeout(left, end.changed()).await;
        })
    }

    /// Notes that the user has agreed to sign in and is sent to the authorization server.
    pub(crate) fn begin_sign_in(&self) {
        let mut state = self.0.state.lock();
        let (_, end) = state
            .signing_in
            .take()
            .unwrap_or_else(|| (Instant::now(), watch::Sender::new(())));
        state.signing_in = Some((Instant::now(), end));
    }

    /// Notes that the user has given up signing in.
    pub(crate) fn end_sign_in(&self) {
        self.0.state.lock().signing_in = None;
    }

    /// Whether the user has credentials.
    pub async fn is_there(&self) -> bool {
        finished(self.0.work(None))
            .await
            .is_ok_and(|held| held.is_some())
    }

    /// Whether the user has a grant, which may have to be renewed.
    pub(crate) async fn has_grant(&self) -> Result<bool, StoreError> {
        Ok(self.0.grant().await?.is_some())
    }

    /// The header fields of the next message, if they are available without waiting.
    ///
    /// # Errors
    ///
    /// If the credentials cannot be sent.
    pub fn ready(&self, message: Message<'_>) -> Option<Result<HeaderMap, NoAccess>> {
        let held = self.held_credentials()?;
        Some(self.headers(&held, message))
    }

    /// The user's token or key itself, for uses other than a header.
    ///
    /// # Errors
    ///
    /// If the user has none, or it cannot be used now, or only with a DPoP proof.
    pub async fn token(&self) -> Result<Zeroizing<String>, NoAccess> {
        let stamp = self.0.store.stamp();
        let held = match self.held_credentials() {
            Some(held) => Some(held),
            None => finished(self.0.work(None)).await?,
        };
        let Some(held) = held else {
            return Err(self.0.state.lock().miss(Wanted::default(), stamp));
        };
        let server = self.0.server.load();
        let prefix = match &server.settings.method {
            Method::SignIn(_) | Method::Exchange(_) | Method::Identity(_) => "Bearer ",
            Method::Key { prefix, .. } => prefix,
        };
        let bound = || {
            NoAccess::Unavailable(
                "the user's token needs a proof that only Fanlight can make".to_owned(),
            )
        };
        held.bare_token(prefix).ok_or_else(bound)
    }

    /// The valid credentials in memory. If they are due, new ones are fetched in the background.
    fn held_credentials(&self) -> Option<Arc<Held>> {
        let mut state = self.0.state.lock();
        let held = state.held.clone()?;
        let is_changed = state.looked.is_outdated(&self.0.store);
        drop(state);
        let now = SystemTime::now();
        if held.has_ended(now) || is_changed {
            return None;
        }
        if held.is_due(now) {
            drop(self.0.work(None));
        }
        Some(held)
    }

    /// The header fields of the next message. They are empty for a user without credentials, whom
    /// the server may serve anyway.
    ///
    /// # Errors
    ///
    /// If the user's credentials cannot be used now.
    pub async fn load(&self, message: Message<'_>) -> Result<HeaderMap, NoAccess> {
        match finished(self.0.work(None)).await {
            Ok(Some(held)) => self.headers(&held, message),
            Ok(None) => Ok(HeaderMap::new()),
            Err(error) => match self.0.held_while_away() {
                Some(held) => self.headers(&held, message),
                None => Err(error),
            },
        }
    }

    /// Other header fields for a message that the server has refused.
    ///
    /// # Errors
    ///
    /// If there are none: the user has to sign in, or nothing helps now.
    pub async fn replace(&self, refused: Refused<'_>) -> Result<HeaderMap, NoAccess> {
        let challenge = Challenge::from_headers(refused.challenges).unwrap_or_default();
        let shown = refused.shown.get(self.0.header());
        // Taken before the store is read, so that a concurrent write by another process counts as a
        // change.
        let stamp = self.0.store.stamp();
        if let Some(held) = self.with_nonce(&refused, &challenge) {
            return self.headers(&held, refused.message);
        }
        let wants_scopes = refused.status == StatusCode::FORBIDDEN || challenge.wants_more_scopes();
        // Work begun by others may end with the refused credentials.
        for _ in 0..2 {
            let without = shown.filter(|_| !wants_scopes).cloned();
            let held = finished(self.0.work(without)).await?;
            let other = held.filter(|held| Some(held.value()) != shown);
            if let Some(held) = other {
                return self.headers(&held, refused.message);
            }
        }
        if wants_scopes {
            return Err(self.more_scopes(&challenge).await);
        }
        Err(self
            .0
            .state
            .lock()
            .miss(Wanted::from_challenge(&challenge), stamp))
    }

    /// The requirements for a new sign-in after the server has refused replacement credentials,
    /// too: new tokens of this grant would be just as useless. `None` if the server wants something
    /// else.
    pub fn give_up(&self, refused: Refused<'_>) -> Option<NoAccess> {
        let challenge = Challenge::from_headers(refused.challenges).unwrap_or_default();
        let is_of_token = refused.status == StatusCode::UNAUTHORIZED
            && !challenge.wants_nonce()
            && !challenge.wants_more_scopes();
        let shown = refused.shown.get(self.0.header()).filter(|_| is_of_token)?;
        let stamp = self.0.store.stamp();
        let mut state = self.0.state.lock();
        if state.held.take_if(|held| held.value() == shown).is_some() {
            return Some(state.miss(Wanted::from_challenge(&challenge), stamp));
        }
        // Another message may have found this out already, or have got other credentials.
        let missing = state.missing.as_ref().filter(|_| state.held.is_none());
        missing.map(|(wanted, _)| NoAccess::SignIn(Box::new(wanted.clone())))
    }

    /// The current token again, if only the DPoP nonce was stale.
    fn with_nonce(&self, refused: &Refused<'_>, challenge: &Challenge) -> Option<Arc<Held>> {
        let nonce = refused.nonce?.to_str().ok()?;
        let mut state = self.0.state.lock();
        state.nonce = Some(nonce.to_owned());
        state.held.clone().filter(|_| challenge.wants_nonce())
    }

    fn headers(&self, held: &Held, message: Message<'_>) -> Result<HeaderMap, NoAccess> {
        let nonce = self.0.state.lock().nonce.clone();
        held.headers(message, nonce.as_deref())
    }

    /// The requirements for a user with insufficient scopes: the granted scopes and those now
    /// required (2026-07-28 basic/authorization, Step-Up Authorization Flow).
    async fn more_scopes(&self, challenge: &Challenge) -> NoAccess {
        let held = match self.0.store.get::<Grant>(&self.0.owner).await {
            Ok(grant) => grant
                .and_then(|grant| grant.scopes().cloned())
                .unwrap_or_default(),
            Err(error) => return error.into(),
        };
        let wanted = challenge.scopes.clone().unwrap_or_default();
        // Without this check, a user could be sent from sign-in to sign-in.
        if held.include(&wanted) {
            let reason = "the server asks for scopes that its user has already granted, or does not name the scopes";
            return NoAccess::Unavailable(reason.to_owned());
        }
        NoAccess::SignIn(Box::new(Wanted {
            scopes: Some(held.union(&wanted)),
            ..Wanted::from_challenge(challenge)
        }))
    }

    /// Forgets the credentials in memory, since the store has changed.
    pub(crate) fn forget(&self) {
        let mut state = self.0.state.lock();
        (state.held, state.missing, state.signing_in, state.failed) = (None, None, None, None);
    }
}

impl Wanted {
    pub(crate) fn from_challenge(challenge: &Challenge) -> Self {
        Self {
            resource_metadata: challenge.resource_metadata.clone(),
            scopes: challenge.scopes.clone(),
            is_dpop: challenge.is_dpop,
        }
    }

    /// The challenge with which the server stated these requirements.
    pub(crate) fn challenge(&self) -> Challenge {
        let Self {
            resource_metadata,
            scopes,
            is_dpop,
        } = self.clone();
        Challenge {
            resource_metadata,
            scopes,
            is_dpop,
            error: None,
        }
    }
}

impl State {
    /// Notes that the user has to sign in, as long as the store has this `stamp`.
    fn miss(&mut self, wanted: Wanted, stamp: Stamp) -> NoAccess {
        self.missing = Some((wanted.clone(), stamp));
        NoAccess::SignIn(Box::new(wanted))
    }

    /// Notes that a grant cannot be renewed for a while.
    fn fail(&mut self, grant: &Grant, error: &OAuthError) {
        let until = Instant::now() + error.stands_for();
        self.failed = Some(Failed {
            issued: grant.issued,
            until,
            reason: error.to_string(),
        });
    }

    /// The reason why it is too early to try another renewal of this grant.
    fn standing_failure(&self, grant: &Grant) -> Option<&str> {
        let failed = self
            .failed
            .as_ref()
            .filter(|failed| failed.issued == grant.issued);
        failed
            .filter(|failed| Instant::now() < failed.until)
            .map(|failed| failed.reason.as_str())
    }

    fn is_signing_in(&self) -> bool {
        self.signing_in
            .as_ref()
            .is_some_and(|(begun, _)| begun.elapsed() < SIGN_IN_TIME)
    }
}

impl Looked {
    /// Whether another process may have changed something since the last check, for example
    /// `fanlight logout`. This counts as a check.
    pub(crate) fn is_outdated(&mut self, store: &Store) -> bool {
        if self.0.is_some_and(|(at, _)| at.elapsed() < LOOK) || store.is_away() {
            return false;
        }
        let stamp = store.stamp();
        self.0
            .replace((Instant::now(), stamp))
            .is_none_or(|(_, before)| before != stamp)
    }
}

impl Shared {
    /// The credentials in memory that are still valid while the store cannot be read.
    fn held_while_away(&self) -> Option<Arc<Held>> {
        let held = self
            .state
            .lock()
            .held
            .clone()
            .filter(|_| self.store.is_away());
        held.filter(|held| !held.has_ended(SystemTime::now()))
    }

    /// The header field for the credentials.
    fn header(&self) -> HeaderName {
        match &self.server.load().settings.method {
            Method::SignIn(_) | Method::Identity(_) | Method::Exchange(_) => AUTHORIZATION,
            Method::Key { header, .. } => header.clone(),
        }
    }

    /// Starts work to get credentials other than those with the `refused` value, or joins running
    /// work. It continues even if nobody waits any more, since a requested token has to be stored.
    fn work(self: &Arc<Self>, refused: Option<HeaderValue>) -> watch::Receiver<Option<Outcome>> {
        let mut state = self.state.lock();
        // If the work was abandoned, its sender is gone.
        if let Some(working) = state
            .working
            .as_ref()
            .filter(|working| working.has_changed().is_ok())
        {
            return working.clone();
        }
        let (sender, receiver) = watch::channel(None);
        state.working = Some(receiver.clone());
        drop(state);
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            // Taken before the store is read, so that a concurrent write by another process counts
            // as a change.
            let looked = Looked(Some((Instant::now(), this.store.stamp())));
            let outcome = this.renewed(refused).await;
            let mut state = this.state.lock();
            state.working = None;
            if let Ok(held) = &outcome {
                state.looked = looked;
                state.held.clone_from(held);
                state.missing = state.missing.take().filter(|_| held.is_none());
            }
            drop(state);
            sender.send_replace(Some(outcome));
        });
        receiver
    }
}

/// The outcome of work that others may wait for, too.
async fn finished(mut working: watch::Receiver<Option<Outcome>>) -> Outcome {
    let lost = || NoAccess::Unavailable("gave up the renewal of a user's credentials".to_owned());
    let outcome = working
        .wait_for(Option::is_some)
        .await
        .map_err(|_| lost())?;
    outcome.clone().unwrap_or_else(|| Err(lost()))
}

impl UserAccess {
    /// The token of this type of a user who has signed in at this identity provider. It is renewed
    /// if it is due, or was refused.
    pub(crate) async fn subject(
        &self,
        kind: &'static str,
        refused: Option<&Secret>,
    ) -> Result<SubjectToken, OAuthError> {
        // Taken before the store is read, so that a concurrent write by another process counts as a
        // change.
        let stamp = self.0.store.stamp();
        let held = finished(self.0.work(None)).await.map_err(unavailable)?;
        let first = self.stored_token(held.as_ref(), kind).await?;
        let found = match (first, held) {
            (Some(first), Some(held)) if refused == Some(&first.token) => {
                let held = finished(self.0.work(Some(held.value().clone())))
                    .await
                    .map_err(unavailable)?;
                self.stored_token(held.as_ref(), kind).await?
            }
            (first, _) => first,
        };
        found.ok_or_else(|| {
            self.0.state.lock().miss(Wanted::default(), stamp);
            OAuthError::NoSubject
        })
    }

    /// The user's stored token, while it is `held`.
    async fn stored_token(
        &self,
        held: Option<&Arc<Held>>,
        kind: &'static str,
    ) -> Result<Option<SubjectToken>, OAuthError> {
        if held.is_none() {
            return Ok(None);
        }
        let grant = self.0.store.get::<Grant>(&self.0.owner).await;
        let grant = grant.map_err(|error: StoreError| OAuthError::Subject(error.to_string()))?;
        Ok(grant.and_then(|grant| {
            let registration = self.0.server.load().registration(&grant)?;
            let Grant {
                tokens, provider, ..
            } = grant;
            let token = match kind {
                ID_TOKEN => tokens.id_token?,
                REFRESH_TOKEN => tokens.refresh_token?,
                _ => tokens.access_token,
            };
            Some(SubjectToken {
                token,
                kind,
                origin: Some((provider, registration)),
            })
        }))
    }
}

fn unavailable(error: NoAccess) -> OAuthError {
    match error {
        NoAccess::SignIn(_) => OAuthError::NoSubject,
        NoAccess::Unavailable(reason) => OAuthError::Subject(reason),
    }
}
