//! How far getting tokens has come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, Shared};
use http::{HeaderValue, StatusCode};

use super::held::Held;
use super::refused::RefusedMessage;
use crate::challenge::Challenge;
use crate::discovery::Discovered;
use crate::error::{FAILURE, OAuthError};
use crate::scopes::Scopes;

/// For how long a server that has said nothing of how it is protected is not asked for it again.
const SILENCE: Duration = Duration::from_secs(60);

/// The most scopes that are asked for because the server wants more, and the most sets of them that were asked for in vain.
const MOST_SCOPES: usize = 64;

/// An attempt to get a token.
pub(super) type Attempt = Shared<BoxFuture<'static, Result<Option<Arc<Held>>, OAuthError>>>;

/// A token, and whose it is.
pub(super) type Obtained = (Arc<Held>, Arc<Discovered>);

/// What becomes of a refusal.
pub(super) enum Remedy {
    /// It stands.
    None,
    /// The message is sent again with what there is now, or what is had once there is nothing.
    Retry,
    /// Another token is had.
    Renew,
    /// A token with these scopes in addition is had.
    StepUp(Scopes),
}

/// How far getting tokens has come, and what was learnt from it.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) running: Option<Attempt>,
    /// The last failure.
    pub(super) failed: Option<(Instant, OAuthError)>,
    /// What the server has said last of the credentials that it wants.
    pub(super) challenge: Option<Challenge>,
    pub(super) authority: Option<Arc<Discovered>>,
    /// The issuer that has been used: credentials of one are not shown to another.
    pub(super) issuer: Option<String>,
    /// Scopes that the server wanted in addition.
    pub(super) further: Scopes,
    /// Those that it wanted, and that were not granted.
    pub(super) denied: Vec<Scopes>,
    /// When the server said nothing of how it is protected.
    pub(super) silent: Option<Instant>,
    /// What the server said last that proofs have to contain.
    pub(super) nonce: Option<String>,
    /// How often tokens were forgotten.
    pub(super) forgotten: u64,
}

impl Progress {
    /// Whether the server was asked lately how it is protected, and said nothing. A message without credentials may have it say
    /// so in a challenge.
    pub(super) fn is_silent(&self) -> bool {
        self.challenge.is_none() && self.silent.is_some_and(|at| at.elapsed() < SILENCE)
    }

    /// What becomes of a refusal of a message that showed `current`, the token in use, or else another one or none. Takes over
    /// what is learnt from it.
    pub(super) fn judge(&mut self, refused: &RefusedMessage<'_>, current: Option<&Held>) -> Remedy {
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
            // There is another token already, or there was none.
            (_, None) => Remedy::Retry,
            // What was had just now for the same challenge would be had again.
            (_, Some(held)) if held.obtained.elapsed() < FAILURE && challenge == self.challenge => {
                Remedy::None
            }
            // It may have been revoked, or another authorization server may have taken over.
            (_, Some(_)) => Remedy::Renew,
        };
        if matches!(remedy, Remedy::Renew) {
            self.authority = None;
        }
        self.challenge = challenge.or(self.challenge.take());
        remedy
    }

    /// Takes over what proofs have to contain; whether that is new.
    fn take_nonce(&mut self, nonce: Option<&HeaderValue>) -> bool {
        let Some(nonce) = nonce.and_then(|nonce| nonce.to_str().ok()) else {
            return false;
        };
        self.nonce.replace(nonce.to_owned()).as_deref() != Some(nonce)
    }

    /// The scopes that a token needs in addition, unless they were asked for in vain.
    fn step_up(&self, held: &Held, challenge: Option<&Challenge>) -> Remedy {
        let Some(wanted) = challenge.and_then(|challenge| challenge.scopes.clone()) else {
            return Remedy::None;
        };
        let is_vain =
            held.has(&wanted) || self.denied.contains(&wanted) || self.denied.len() >= MOST_SCOPES;
        let is_bounded = self.further.with(&wanted).len() <= MOST_SCOPES;
        if !is_vain && is_bounded {
            Remedy::StepUp(wanted)
        } else {
            Remedy::None
        }
    }

    /// Why it is too early for another attempt.
    pub(super) fn standing_failure(&self) -> Option<&OAuthError> {
        let (at, error) = self.failed.as_ref()?;
        // The user may have signed in since.
        if *error == OAuthError::NoSubject {
            return None;
        }
        (at.elapsed() < error.stands_for()).then_some(error)
    }

    /// Takes over what an attempt has come to.
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
