//! A token in use.

use std::time::{Duration, Instant, SystemTime};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::oauth::error::OAuthError;
use crate::oauth::proof::{ProofKey, ProvenRequest};
use crate::oauth::scopes::Scopes;
use crate::oauth::token::TokenSet;

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
    pub(super) fn headers(&self, request: ProvenRequest<'_>) -> Result<HeaderMap, OAuthError> {
        match &self.header {
            Some(header) => Ok(HeaderMap::from_iter([(AUTHORIZATION, header.clone())])),
            None => self.token.headers(request, self.proof_key.as_ref()),
        }
    }
}

/// How long before its expiry a new token will be renewed.
fn ahead(end: SystemTime) -> Duration {
    end.duration_since(SystemTime::now())
        .map_or(Duration::ZERO, |life| (life / 5).min(AHEAD))
}
