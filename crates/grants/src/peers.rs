//! The answers of authorization servers: their metadata, and the clients registered there.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use url::Url;

use crate::error::{SignInError, sign_in_error};
use crate::oauth::{
    ClientMetadata, ClientRegistration, Discovered, OAuthError, Provider, register,
};
use crate::record::RegisteredClient;
use crate::server::{Server, Wanted};
use crate::store::{Exported, Owner, Store, StoreError};

/// The client name that authorization servers show to users.
pub(crate) const CLIENT_NAME: &str = "Fanlight";

/// How long discovered metadata are reused, so that a page and its form ask once.
const RECENT: Duration = Duration::from_secs(60);
/// The pause after a failed discovery, since anybody can open a page.
const RECENT_FAILURE: Duration = Duration::from_secs(2);
/// How long a registration is reused that the store keeps, until it is there; and one that no store
/// keeps.
const REGISTERED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(24 * 3600));
/// The longest pause after refused registrations. There is no option: whoever permits registrations
/// at last can wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The answers of authorization servers.
pub(crate) struct Peers {
    /// The discovered metadata, by the server's name and requirements.
    discovered: Outcomes<(String, Wanted), Discovered>,
    /// The registered clients, by issuer and redirect URI.
    registered: Outcomes<(String, Url), ClientRegistration>,
}

fanlight_protocol::opaque!(Peers);

impl Default for Peers {
    fn default() -> Self {
        Self {
            discovered: Outcomes::new(Pauses {
                first: |_| RECENT_FAILURE,
                longest: RECENT_FAILURE,
            }),
            registered: Outcomes::new(Pauses {
                first: OAuthError::stands_for,
                longest: LONGEST_PAUSE,
            }),
        }
    }
}

impl Peers {
    /// Discovers where a server's users sign in. `told` gets the outcome of each request, and the
    /// number of failures just before.
    pub(crate) async fn discover(
        &self,
        server: &Arc<Server>,
        wanted: &Wanted,
        told: impl Fn(u32, &Result<Discovered, OAuthError>) + Send + 'static,
    ) -> Result<Discovered, OAuthError> {
        let key = (server.name().to_owned(), wanted.clone());
        let ask = |failures| {
            let (server, challenge) = (Arc::clone(server), wanted.challenge());
            async move {
                let discovered = server.discover(&challenge).await;
                told(failures, &discovered);
                discovered
            }
        };
        self.discovered.get_or_ask(&key, RECENT, ask).await
    }

    /// The latest answer about where a server's users sign in.
    pub(crate) fn last(&self, server: &str, wanted: &Wanted) -> Option<Discovered> {
        self.discovered.last(&(server.to_owned(), wanted.clone()))
    }

    /// Forgets registrations at this issuer that are not stored yet.
    pub(crate) fn forget_clients_at(&self, issuer: &str) {
        self.registered.retain(|(known, _)| known != issuer);
    }

    /// Forgets what is known about servers whose name is not `meant`.
    pub(crate) fn retain(&self, meant: impl Fn(&str) -> bool) {
        self.discovered.retain(|(server, _)| meant(server));
    }

    /// A client whose browsers return to `redirect_uri`: from an earlier registration that the store
    /// keeps, or from a new one (2026-07-28 basic/authorization/client-registration).
    pub(crate) async fn client(
        &self,
        server: &Arc<Server>,
        provider: &Provider,
        redirect_uri: &Url,
        store: Option<&Store>,
    ) -> Result<ClientRegistration, SignInError> {
        let place = Owner::nobody(&format!("{} {redirect_uri}", provider.issuer));
        if let Some(store) = store {
            let known = store.get::<RegisteredClient>(&place).await?;
            if let Some(RegisteredClient(client)) =
                known.filter(|known| known.0.is_valid_at(provider))
            {
                return Ok(client);
            }
        }
        let fresh = match store {
            Some(_) => REGISTERED.0,
            None => REGISTERED.1,
        };
        let key = (provider.issuer.clone(), redirect_uri.clone());
        let ask = |_| {
            let (server, provider) = (Arc::clone(server), provider.clone());
            let redirect_uri = redirect_uri.clone();
            async move {
                let client = registered(&server, &provider, &redirect_uri).await;
                client.inspect_err(|error| _ = sign_in_error(server.name(), error))
            }
        };
        let client = self.registered.get_or_ask(&key, fresh, ask).await;
        let client = client.map_err(|error| SignInError::from(&error))?;
        if let Some(store) = store {
            store.put(&place, &RegisteredClient(client.clone())).await?;
        }
        Ok(client)
    }
}

/// Forgets a registered client that its authorization server does not know any more, so that the
/// next sign-in registers another. Returns whether it is such a client.
pub(crate) async fn forget_client(
    store: &Store,
    client: &ClientRegistration,
    refused: &OAuthError,
) -> Result<bool, StoreError> {
    // A client of a metadata document was never registered.
    let is_document = client.client_id.starts_with("https://");
    let is_unknown = matches!(
        refused.refusal(),
        Some("invalid_client" | "unauthorized_client")
    );
    if is_document || !is_unknown {
        return Ok(false);
    }
    for Exported { owner, record } in store.export::<RegisteredClient>().await? {
        if record.0.client_id == client.client_id && record.0.issuer == client.issuer {
            store.take::<RegisteredClient>(&owner).await?;
        }
    }
    Ok(true)
}

/// A client that is registered now.
pub(crate) async fn registered(
    server: &Server,
    provider: &Provider,
    redirect_uri: &Url,
) -> Result<ClientRegistration, OAuthError> {
    let metadata = ClientMetadata::new_code_client(CLIENT_NAME, redirect_uri);
    register(&server.requests, provider, &metadata).await
}

/// The limit of known outcomes.
const MOST: usize = 100;

/// The outcomes of one kind of question, by key.
pub(crate) struct Outcomes<K, T> {
    known: Mutex<HashMap<K, Known<T>>>,
    pauses: Pauses,
}

/// The times for which failures count.
pub(crate) struct Pauses {
    /// The pause after a first failure. It doubles with each further one.
    pub(crate) first: fn(&OAuthError) -> Duration,
    /// The longest pause.
    pub(crate) longest: Duration,
}

struct Known<T> {
    begun: Instant,
    /// The outcome, once there is one. The question continues even if nobody waits any more.
    outcome: Receiver<T>,
    /// The failures in a row before this question.
    failures: u32,
}

type Receiver<T> = watch::Receiver<Option<(Instant, Result<T, OAuthError>)>>;

impl<T> Known<T> {
    /// Whether the question is not to be asked again: it is running, its answer is younger than
    /// `fresh`, or its failure still stands.
    fn holds(&self, fresh: Duration, pauses: &Pauses) -> bool {
        match &*self.outcome.borrow() {
            // The sender of an interrupted question is gone.
            None => self.outcome.has_changed().is_ok(),
            Some((at, Ok(_))) => at.elapsed() < fresh,
            Some((at, Err(error))) => {
                let pause = (pauses.first)(error).saturating_mul(1 << self.failures.min(16));
                at.elapsed() < pause.min(pauses.longest)
            }
        }
    }

    /// The failures in a row with this question.
    fn failures(&self) -> u32 {
        match &*self.outcome.borrow() {
            Some((_, Ok(_))) => 0,
            Some((_, Err(_))) | None => self.failures.saturating_add(1),
        }
    }
}

impl<K: Eq + Hash + Clone, T: Clone + Send + Sync + 'static> Outcomes<K, T> {
    pub(crate) fn new(pauses: Pauses) -> Self {
        Self {
            known: Mutex::default(),
            pauses,
        }
    }

    /// The outcome of a question. `ask` asks it if there is no outcome that still holds; it gets the
    /// number of failures just before.
    async fn get_or_ask<F>(
        &self,
        key: &K,
        fresh: Duration,
        ask: impl FnOnce(u32) -> F,
    ) -> Result<T, OAuthError>
    where
        F: Future<Output = Result<T, OAuthError>> + Send + 'static,
    {
        let mut outcome = self.begun(key, fresh, ask);
        let ended = outcome.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        ended.map_or(Err(OAuthError::Exhausted("it was interrupted")), |ended| {
            ended.1
        })
    }

    fn begun<F>(&self, key: &K, fresh: Duration, ask: impl FnOnce(u32) -> F) -> Receiver<T>
    where
        F: Future<Output = Result<T, OAuthError>> + Send + 'static,
    {
        let mut known = self.known.lock();
        if let Some(one) = known.get(key).filter(|one| one.holds(fresh, &self.pauses)) {
            return one.outcome.clone();
        }
        let failures = known.get(key).map_or(0, Known::failures);
        if known.len() >= MOST && !known.contains_key(key) {
            let oldest = known.iter().min_by_key(|(_, one)| one.begun);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        let (sender, outcome) = watch::channel(None);
        let question = ask(failures);
        tokio::spawn(async move {
            let ended = question.await;
            sender.send_replace(Some((Instant::now(), ended)));
        });
        let one = Known {
            begun: Instant::now(),
            outcome: outcome.clone(),
            failures,
        };
        known.insert(key.clone(), one);
        outcome
    }

    /// The last answer to a question, however old it is.
    pub(crate) fn last(&self, key: &K) -> Option<T> {
        let known = self.known.lock();
        let ended = known.get(key)?.outcome.borrow().clone();
        ended?.1.ok()
    }

    /// Forgets the outcomes whose key is not `meant`.
    pub(crate) fn retain(&self, meant: impl Fn(&K) -> bool) {
        self.known.lock().retain(|key, _| meant(key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    fn outcomes(pause: fn(&OAuthError) -> Duration) -> Outcomes<usize, usize> {
        Outcomes::new(Pauses {
            first: pause,
            longest: Duration::from_secs(300),
        })
    }

    #[tokio::test]
    async fn question_is_asked_once_and_its_failure_stands() {
        let outcomes = outcomes(|_| Duration::from_secs(60));
        let asked = Arc::new(AtomicUsize::new(0));
        let ask = |_| {
            let asked = Arc::clone(&asked);
            async move {
                tokio::task::yield_now().await;
                asked.fetch_add(1, Ordering::SeqCst);
                Err(OAuthError::NoRandomness)
            }
        };
        let all = join_all((0..150).map(|_| outcomes.get_or_ask(&1, Duration::ZERO, ask))).await;
        assert!(all.iter().all(Result::is_err));
        assert!(outcomes.get_or_ask(&1, Duration::ZERO, ask).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(outcomes.get_or_ask(&2, Duration::ZERO, ask).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn pause_grows_until_there_is_an_answer() {
        let outcomes = outcomes(|_| Duration::ZERO);
        for before in 0..3 {
            let ask = |failures| async move {
                assert_eq!(failures, before);
                Err(OAuthError::NoRandomness)
            };
            assert!(outcomes.get_or_ask(&1, Duration::ZERO, ask).await.is_err());
        }
        let pause = |failures| {
            let (_sender, outcome) =
                watch::channel(Some((Instant::now(), Err(OAuthError::NoRandomness))));
            let known = Known::<usize> {
                begun: Instant::now(),
                outcome,
                failures,
            };
            let pauses = Pauses {
                first: |_| Duration::from_millis(1),
                longest: Duration::from_secs(300),
            };
            std::thread::sleep(Duration::from_millis(3));
            known.holds(Duration::ZERO, &pauses)
        };
        assert!(!pause(0) && pause(20));
        assert_eq!(
            outcomes
                .get_or_ask(&1, Duration::ZERO, async |_| Ok(7))
                .await,
            Ok(7)
        );
        let ask = |failures| async move { Ok(usize::try_from(failures).unwrap()) };
        assert_eq!(outcomes.get_or_ask(&1, Duration::ZERO, ask).await, Ok(0));
    }

    #[tokio::test]
    async fn slow_peer_holds_up_no_other_and_its_answer_is_shared() {
        let outcomes = outcomes(|_| Duration::ZERO);
        let (answer, asked) = tokio::sync::oneshot::channel::<usize>();
        let slow = |_| async move { asked.await.map_err(|_| OAuthError::NoRandomness) };
        let fresh = Duration::from_secs(60);
        let waiting = outcomes.get_or_ask(&1, fresh, slow);
        let (first, ()) = tokio::join!(waiting, async {
            assert_eq!(outcomes.get_or_ask(&2, fresh, async |_| Ok(2)).await, Ok(2));
            answer.send(1).unwrap();
        });
        assert_eq!(first, Ok(1));
        assert_eq!(outcomes.get_or_ask(&1, fresh, async |_| Ok(3)).await, Ok(1));
    }

    #[tokio::test]
    async fn no_more_than_so_many_are_known() {
        let outcomes = outcomes(|_| Duration::ZERO);
        for key in 0..MOST * 2 {
            assert_eq!(
                outcomes
                    .get_or_ask(&key, Duration::ZERO, async |_| Ok(1))
                    .await,
                Ok(1)
            );
        }
        assert_eq!(outcomes.known.lock().len(), MOST);
    }
}
