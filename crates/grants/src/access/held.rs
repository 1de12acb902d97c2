//! Credentials that can be sent.

use std::time::{Duration, SystemTime};

use crate::oauth::{Message, ProofKey, TokenKind, TokenSet};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::NoAccess;
use crate::fetch::secret_value;
use crate::record::Grant;

/// How long before their expiry access tokens are renewed. A token with a short lifetime is renewed
/// in the middle of it.
const AHEAD: Duration = Duration::from_secs(60);

/// Credentials that can be sent.
pub(super) struct Held {
    /// The value of the header field.
    value: HeaderValue,
    shown: Shown,
    /// The time from which new credentials should be fetched.
    renew_at: Option<SystemTime>,
    /// The time of expiry.
    ends_at: Option<SystemTime>,
}

enum Shown {
    /// The same header fields for each message.
    Alike(HeaderMap),
    /// A token that needs a new DPoP proof for each message.
    Proven(TokenSet, ProofKey),
}

impl Held {
    pub(super) fn from_key(header: HeaderName, prefix: &str, key: &str) -> Option<Self> {
        let value = secret_value(&format!("{prefix}{key}")).ok()?;
        let headers = HeaderMap::from_iter([(header, value.clone())]);
        Some(Self {
            value,
            shown: Shown::Alike(headers),
            renew_at: None,
            ends_at: None,
        })
    }

    pub(super) fn from_grant(grant: &Grant) -> Option<Self> {
        let (tokens, token) = (&grant.tokens, grant.tokens.access_token.expose());
        let (value, shown) = match tokens.kind {
            TokenKind::Bearer => {
                let value = secret_value(&format!("Bearer {token}")).ok()?;
                (
                    value.clone(),
                    Shown::Alike(HeaderMap::from_iter([(AUTHORIZATION, value)])),
                )
            }
            TokenKind::Dpop => (
                secret_value(&format!("DPoP {token}")).ok()?,
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

    /// The value of the header field with the credentials.
    pub(super) fn value(&self) -> &HeaderValue {
        &self.value
    }

    /// The text after `prefix`; `None` for a token that is useless without a proof.
    pub(super) fn bare_token(&self, prefix: &str) -> Option<Zeroizing<String>> {
        let is_alike = matches!(self.shown, Shown::Alike(_));
        let text = self
            .value
            .to_str()
            .ok()?
            .strip_prefix(prefix)
            .filter(|_| is_alike)?;
        Some(Zeroizing::new(text.to_owned()))
    }

    /// Whether the credentials have expired.
    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        self.ends_at.is_some_and(|end| end <= now)
    }

    /// Whether new credentials should be fetched, although these may still be valid.
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
                .headers(message, nonce, Some(key))
                .map_err(|error| NoAccess::Unavailable(error.to_string())),
        }
    }
}
