//! One issuer's keys. They are read when the first token needs them, and again when they are old or
//! a token names an unknown key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fanlight_config::settings::Algorithm;
use fanlight_grants::fetch::{self, FetchError, Requests};
use fanlight_grants::oauth::{OAuthError, metadata};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::keys::KeySet;
use crate::settings::OAuthLimits;

/// The least time between two attempts to read keys while there are none.
const RETRY: Duration = Duration::from_secs(1);

/// The limit of keys that are kept of one issuer. A larger set is not read.
const MOST_KEYS: usize = 100;

/// The keys of one issuer.
#[derive(Debug)]
pub(crate) struct KeyStore {
    issuer: String,
    jwks_uri: Option<String>,
    limits: OAuthLimits,
    client: Arc<Requests>,
    /// Revokes identities verified with any of the issuer's keys.
    revoked: CancellationToken,
    current: ArcSwapOption<Fetched>,
    reading: Mutex<Reading>,
}

/// The relevant metadata of an issuer.
#[derive(Deserialize)]
struct Metadata {
    jwks_uri: Option<Url>,
}

/// Keys, and the time when they were read.
#[derive(Debug)]
struct Fetched {
    keys: Arc<KeySet>,
    at: Instant,
}

/// A future that resolves when an attempt to read keys ends.
pub(crate) type Attempt = Shared<BoxFuture<'static, ()>>;

/// The attempts to read keys; one runs at a time.
#[derive(Debug, Default)]
struct Reading {
    running: Option<Attempt>,
    /// When the last attempt began.
    began: Option<Instant>,
    has_failed: bool,
}

/// The result of looking for a token's key.
pub(crate) enum Lookup {
    /// The set with the token's key.
    Found(Arc<KeySet>),
    /// The issuer has no such key.
    Unknown,
    /// The issuer cannot be reached.
    Unavailable,
    /// The keys are being read; look again afterwards.
    Reading(Attempt),
}

impl KeyStore {
    pub(crate) fn new(
        issuer: String,
        jwks_uri: Option<String>,
        limits: OAuthLimits,
        client: Arc<Requests>,
        revoked: CancellationToken,
    ) -> Self {
        let (current, reading) = (ArcSwapOption::empty(), Mutex::default());
        Self {
            issuer,
            jwks_uri,
            limits,
            client,
            revoked,
            current,
            reading,
        }
    }

    /// The keys for a token with this key id and algorithm. This may start to read keys; tokens
    /// with known keys do not wait for that.
    pub(crate) fn look_up(self: &Arc<Self>, id: Option<&str>, algorithm: Algorithm) -> Lookup {
        let current = self.current.load();
        let known = current
            .as_ref()
            .filter(|known| known.at.elapsed() < self.limits.stale);
        let Some(known) = known else {
            return self
                .read_after(RETRY)
                .map_or(Lookup::Unavailable, Lookup::Reading);
        };
        if known.keys.find(id, algorithm).is_none() {
            // Anybody can name a nonexistent key, so requests to the issuer are limited.
            let attempt = self.read_after(self.limits.unknown_key);
            return attempt.map_or_else(|| self.find_known(id, algorithm), Lookup::Reading);
        }
        self.keep_fresh();
        Lookup::Found(Arc::clone(&known.keys))
    }

    /// Starts to read the keys again if there are some, and they are old.
    pub(crate) fn keep_fresh(self: &Arc<Self>) {
        if self
            .current
            .load()
            .as_ref()
            .is_some_and(|known| known.at.elapsed() >= self.limits.refresh)
        {
            // An issuer that is down is asked no more often than about unknown keys.
            self.read_after(self.limits.unknown_key.min(self.limits.refresh));
        }
    }

    /// The keys for a token among those already read.
    pub(crate) fn find_known(&self, id: Option<&str>, algorithm: Algorithm) -> Lookup {
        let current = self.current.load();
        match current
            .as_ref()
            .filter(|known| known.at.elapsed() < self.limits.stale)
        {
            Some(known) if known.keys.find(id, algorithm).is_some() => {
                Lookup::Found(Arc::clone(&known.keys))
            }
            Some(_) if !self.reading.lock().has_failed => Lookup::Unknown,
            _ => Lookup::Unavailable,
        }
    }

    /// The running attempt to read the keys, or else a new one; `None` if the last one began less
    /// than `interval` ago.
    fn read_after(self: &Arc<Self>, interval: Duration) -> Option<Attempt> {
        let mut reading = self.reading.lock();
        if let Some(running) = &reading.running {
            return Some(running.clone());
        }
        if reading
            .began
            .is_some_and(|began| began.elapsed() < interval)
        {
            return None;
        }
        let this = Arc::clone(self);
        // A separate task, so that disconnecting clients do not end it. A runtime that has ended
        // drops it here, so it must not contain an `Ending` yet, which takes the lock.
        let task = tokio::spawn(async move { Ending(this).0.read().await });
        let attempt = task.map(|_| ()).boxed().shared();
        reading.began = Some(Instant::now());
        reading.running = Some(attempt.clone());
        Some(attempt)
    }

    async fn read(&self) {
        let outcome = self.fetch().await;
        let has_failed = outcome.is_err();
        match outcome {
            Ok(keys) => {
                let before = self.current.load_full();
                let before = before.as_ref().map(|before| &*before.keys);
                let keys = Arc::new(keys.inherit_revocation(before, &self.revoked));
                let fetched = Fetched {
                    keys: Arc::clone(&keys),
                    at: Instant::now(),
                };
                self.current.store(Some(Arc::new(fetched)));
                if let Some(before) = before {
                    before.revoke_except(&keys);
                }
            }
            Err(error) => {
                let known = self.current.load().is_some();
                tracing::warn!(issuer = self.issuer, %error, known, "cannot read the keys of an issuer of tokens");
            }
        }
        let had_failed = std::mem::replace(&mut self.reading.lock().has_failed, has_failed);
        if had_failed && !has_failed {
            tracing::info!(
                issuer = self.issuer,
                "read the keys of an issuer of tokens again"
            );
        }
    }

    async fn fetch(&self) -> Result<KeySet, OAuthError> {
        let uri = match &self.jwks_uri {
            Some(uri) => fetch::url(uri)?,
            None => {
                let Metadata { jwks_uri } = metadata(&self.client, &self.issuer).await?;
                jwks_uri.ok_or_else(|| OAuthError::NoEndpoint {
                    issuer: self.issuer.clone(),
                    endpoint: "place of its keys",
                })?
            }
        };
        let keys = self.client.get(&uri).await?;
        let keys = KeySet::read(keys.body, MOST_KEYS);
        Ok(keys.map_err(|error| FetchError::malformed(&uri, error))?)
    }
}

/// Ends the running attempt when dropped, however the task ends.
struct Ending(Arc<KeyStore>);

impl Drop for Ending {
    fn drop(&mut self) {
        let ended = self.0.reading.lock().running.take();
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_begun_without_a_lock_that_an_ended_runtime_takes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let handle = runtime.unwrap().handle().clone();
        let _entered = handle.enter();
        let store = Arc::new(KeyStore::new(
            "https://issuer.example".to_owned(),
            None,
            OAuthLimits::default(),
            Arc::new(Requests::for_configured_places()),
            CancellationToken::new(),
        ));
        let lookup = store.look_up(None, Algorithm::Es256);
        assert!(matches!(lookup, Lookup::Reading(_)));
    }
}
