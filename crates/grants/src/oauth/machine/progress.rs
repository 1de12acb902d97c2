//! The state of getting tokens for a server.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::{BoxFuture, Shared};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::oauth::error::{FAILURE, OAuthError};
use crate::oauth::{Challenge, Discovered, Message, ProofKey, Scopes, TokenSet};

/// How long a server without metadata about its protection is not asked for them again.
const SILENCE: Duration = Duration::from_secs(60);

/// The limit of additional scopes that the server may require, and of sets of scopes that were not
/// granted.
const MOST_SCOPES: usize = 64;

/// An attempt to get a token.
pub(super) type Attempt = Shared<BoxFuture<'static, Result<Option<Arc<Held>>, OAuthError>>>;

/// A token and its authorization server.
pub(super) type Obtained = (Arc<Held>, Arc<Discovered>);

/// The reaction to a refusal.
pub(super) enum Remedy {
    /// The refusal stands.
    None,
    /// Retries with the current token, or fetches one.
    Retry,
    /// Fetches another token.
    Renew,
    /// Fetches a token with these scopes in addition.
    StepUp(Scopes),
}

/// The state of getting tokens, and facts learnt from the peers.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) running: Option<Attempt>,
    /// The last failure.
    pub(super) failed: Option<(Instant, OAuthError)>,
    /// The server's latest challenge.
    pub(super) challenge: Option<Challenge>,
    pub(super) authority: Option<Arc<Discovered>>,
    /// The issuer used so far: its credentials are not shown to another one.
    pub(super) issuer: Option<String>,
    /// Additional scopes that the server has required.
    pub(super) further: Scopes,
    /// Required scopes that were not granted.
    pub(super) denied: Vec<Scopes>,
    /// When the server had no metadata about its protection.
    pub(super) silent: Option<Instant>,
    /// The server's latest nonce for DPoP proofs.
    pub(super) nonce: Option<String>,
    /// How often tokens were forgotten.
    pub(super) forgotten: u64,
}

impl Progress {
    /// Whether the server recently had no metadata. A message without credentials may then make it
    /// send a challenge.
    pub(super) fn is_silent(&self) -> bool {
        self.challenge.is_none() && self.silent.is_some_and(|at| at.elapsed() < SILENCE)
    }

    /// Decides how to react to a refused message. `current` is the current token, if the message
    /// had it. Takes over the challenge and the nonce.
    pub(super) fn judge(&mut self, refused: &Refused<'_>, current: Option<&Held>) -> Remedy {
        let challenge = Challenge::from_headers(refused.challenges);
        let has_new_nonce = self.take_nonce(refused.nonce);
        let error = challenge
            .as_ref()
            .and_then(|challenge| challenge.error.as_deref());
        let remedy = match (error, current) {
            (Some("use_dpop_nonce"), _) if has_new_nonce => Remedy::Retry,
            (Some("use_dpop_nonce"), _) => Remedy::None,
            (Some("insufficient_scope"), Some(held)) => self.step_up(held, challenge.as_ref()),
            (Some("insufficient_scope"), None) => Remedy::Retry,
            _ if refused.status == StatusCode::FORBIDDEN => Remedy::None,
            // There is another token by now, or the message had none.
            (_, None) => Remedy::Retry,
            // A token fetched just now for the same challenge would only be fetched again.
            (_, Some(held)) if held.obtained.elapsed() < FAILURE && challenge == self.challenge => {
                Remedy::None
            }
            // The token may have been revoked, or another authorization server may be responsible
            // now.
            (_, Some(_)) => Remedy::Renew,
        };
        if matches!(remedy, Remedy::Renew) {
            self.authority = None;
        }
        self.challenge = challenge.or(self.challenge.take());
        remedy
    }

    /// Takes over a nonce for proofs. Returns whether it is new.
    fn take_nonce(&mut self, nonce: Option<&HeaderValue>) -> bool {
        let Some(nonce) = nonce.and_then(|nonce| nonce.to_str().ok()) else {
            return false;
        };
        self.nonce.replace(nonce.to_owned()).as_deref() != Some(nonce)
    }

    /// The additional scopes for a token, unless they were requested in vain.
    fn step_up(&self, held: &Held, challenge: Option<&Challenge>) -> Remedy {
        let Some(wanted) = challenge.and_then(|challenge| challenge.scopes.clone()) else {
            return Remedy::None;
        };
        let is_vain =
            held.has(&wanted) || self.denied.contains(&wanted) || self.denied.len() >= MOST_SCOPES;
        let is_bounded = self.further.union(&wanted).len() <= MOST_SCOPES;
        if !is_vain && is_bounded {
            Remedy::StepUp(wanted)
        } else {
            Remedy::None
        }
    }

    /// The failure because of which it is too early for another attempt.
    pub(super) fn standing_failure(&self) -> Option<&OAuthError> {
        let (at, error) = self.failed.as_ref()?;
        // The user may have signed in since.
        if *error == OAuthError::NoSubject {
            return None;
        }
        (at.elapsed() < error.stands_for()).then_some(error)
    }

    /// Takes over the outcome of an attempt.
    pub(super) fn end(
        &mut self,
        outcome: &Result<Option<Obtained>, OAuthError>,
        wanted: Option<&Scopes>,
    ) {
        match (outcome, wanted) {
            (Ok(Some((held, authority))), _) => {
                self.issuer = Some(authority.provider.issuer.clone());
                self.authority = Some(Arc::clone(authority));
                self.failed = None;
                match wanted {
                    Some(wanted) if held.has(wanted) => {
                        let granted = held.token.scopes.clone().unwrap_or_default();
                        self.further = self.further.union(&granted);
                    }
                    Some(wanted) => self.denied.push(wanted.clone()),
                    None => {}
                }
            }
            (Ok(None), _) => self.silent = Some(Instant::now()),
            // The existing token stays in use.
            (Err(error), Some(wanted)) if !error.is_temporary() => self.denied.push(wanted.clone()),
            (Err(_), Some(_)) => {}
            (Err(error), None) => {
                self.authority = None;
                self.failed = Some((Instant::now(), error.clone()));
            }
        }
    }
}

/// A message that the server has refused.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// The status.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`.
    pub challenges: &'a [HeaderValue],
    /// The nonce for the next DPoP proof.
    pub nonce: Option<&'a HeaderValue>,
    /// The headers with the refused credentials.
    pub shown: &'a HeaderMap,
    /// The refused message.
    pub message: Message<'a>,
}

/// How long before its expiry a token is renewed. For a short-lived token, it is a fifth of its
/// lifetime.
const AHEAD: Duration = Duration::from_secs(60);

/// A token in use.
pub(super) struct Held {
    pub(super) token: TokenSet,
    pub(super) proof_key: Option<ProofKey>,
    /// The header with the token, if it needs no proof.
    header: Option<HeaderValue>,
    pub(super) obtained: Instant,
    /// When the token is renewed, although it is still valid.
    renewed_at: Option<SystemTime>,
}

impl Held {
    /// Starts to use a new token.
    pub(super) fn new(token: TokenSet, proof_key: Option<ProofKey>) -> Result<Self, OAuthError> {
        let renewed_at = token.expires_at.map(|end| end - ahead(end));
        let header = if proof_key.is_none() {
            Some(token.bearer_header()?)
        } else {
            None
        };
        Ok(Self {
            token,
            proof_key,
            header,
            obtained: Instant::now(),
            renewed_at,
        })
    }

    /// Whether the token has not expired.
    pub(super) fn is_good(&self) -> bool {
        !self.token.ends_within(Duration::ZERO)
    }

    /// Whether the token should be renewed, although it is still valid.
    pub(super) fn is_old(&self) -> bool {
        self.renewed_at.is_some_and(|at| at <= SystemTime::now())
    }

    /// Whether the token has these scopes.
    pub(super) fn has(&self, scopes: &Scopes) -> bool {
        self.token
            .scopes
            .as_ref()
            .is_some_and(|held| held.include(scopes))
    }

    /// Whether these headers contain the token.
    pub(super) fn is_shown_in(&self, headers: &HeaderMap) -> bool {
        let shown = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.split_once(' '));
        shown.is_some_and(|(_, token)| token == self.token.access_token.expose())
    }

    /// The headers with the token for a message.
    pub(super) fn headers(
        &self,
        message: Message<'_>,
        nonce: Option<&str>,
    ) -> Result<HeaderMap, OAuthError> {
        match &self.header {
            Some(header) => Ok(HeaderMap::from_iter([(AUTHORIZATION, header.clone())])),
            None => self.token.headers(message, nonce, self.proof_key.as_ref()),
        }
    }
}

/// How long before its expiry a new token will be renewed.
fn ahead(end: SystemTime) -> Duration {
    end.duration_since(SystemTime::now())
        .map_or(Duration::ZERO, |life| (life / 5).min(AHEAD))
}
