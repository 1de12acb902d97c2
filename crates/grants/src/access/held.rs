//! Credentials that can be sent.

use std::time::{Duration, SystemTime};

use fanlight_oauth::{ProofKey, TokenKind, TokenSet};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::{Message, NoAccess};
use crate::record::Grant;

/// Access tokens are renewed this long before they end, or in the middle of their time if that is later.
const AHEAD: Duration = Duration::from_secs(60);

/// Credentials that can be sent.
pub(super) struct Held {
    /// What shows who the user is.
    value: HeaderValue,
    shown: Shown,
    /// From then on others are to be had.
    renew_at: Option<SystemTime>,
    /// From then on they are worth nothing.
    ends_at: Option<SystemTime>,
}

enum Shown {
    /// The same in each message.
    Alike(HeaderMap),
    /// With a proof that is made for each.
    Proven(TokenSet, ProofKey),
}

impl Held {
    pub(super) fn of_key(header: HeaderName, prefix: &str, key: &str) -> Option<Self> {
        let value = secret(&format!("{prefix}{key}"))?;
        let headers = HeaderMap::from_iter([(header, value.clone())]);
        Some(Self {
            value,
            shown: Shown::Alike(headers),
            renew_at: None,
            ends_at: None,
        })
    }

    pub(super) fn of_grant(grant: &Grant) -> Option<Self> {
        let (tokens, token) = (&grant.tokens, grant.tokens.access_token.expose());
        let (value, shown) = match tokens.kind {
            TokenKind::Bearer => {
                let value = secret(&format!("Bearer {token}"))?;
                (
                    value.clone(),
                    Shown::Alike(HeaderMap::from_iter([(AUTHORIZATION, value)])),
                )
            }
            TokenKind::Dpop => (
                secret(&format!("DPoP {token}"))?,
                Shown::Proven(tokens.clone(), grant.proof_key.clone()?),
            ),
        };
        let lifetime = tokens
            .expires_at
            .and_then(|end| end.duration_since(grant.issued).ok());
        let ahead = lifetime.map_or(AHEAD, |lifetime| AHEAD.min(lifetime / 2));
        let renew_at = tokens.expires_at.filter(|_| tokens.refresh_token.is_some());
        let renew_at = renew_at.and_then(|end| end.checked_sub(ahead));
        Some(Self {
            value,
            shown,
            renew_at,
            ends_at: tokens.expires_at,
        })
    }

    /// The value of the header field that shows who the user is.
    pub(super) fn value(&self) -> &HeaderValue {
        &self.value
    }

    /// What stands behind `prefix`; `None` for a token that is worth nothing without a proof.
    pub(super) fn bare(&self, prefix: &str) -> Option<Zeroizing<String>> {
        let is_alike = matches!(self.shown, Shown::Alike(_));
        let text = self
            .value
            .to_str()
            .ok()?
            .strip_prefix(prefix)
            .filter(|_| is_alike)?;
        Some(Zeroizing::new(text.to_owned()))
    }

    /// Whether they are worth nothing any more.
    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        self.ends_at.is_some_and(|end| end <= now)
    }

    /// Whether others are to be had, though these may still be of use.
    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        self.renew_at
            .or(self.ends_at)
            .is_some_and(|time| time <= now)
    }

    /// The header fields of a message.
    pub(super) fn headers(
        &self,
        message: Message<'_>,
        nonce: Option<&str>,
    ) -> Result<HeaderMap, NoAccess> {
        match &self.shown {
            Shown::Alike(headers) => Ok(headers.clone()),
            Shown::Proven(tokens, key) => tokens
                .headers(message.proven(nonce), Some(key))
                .map_err(|error| NoAccess::Unavailable(error.to_string())),
        }
    }
}

/// The value of a header field that is shown in no log.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
