//! Parsers of clients' and issuers' data without a connection, for fuzzing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fanlight_canonical::identity::Validity;

use crate::issuer::KeySet;
use crate::token::Jwt;
use crate::token::claims::{self, Rules};
use crate::{IssuerSettings, json};

/// An issuer with known keys.
#[derive(Debug)]
pub struct KnownIssuer {
    settings: IssuerSettings,
    keys: KeySet,
}

/// The result of reading a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The token is malformed, or not a JSON Web Token.
    Malformed,
    /// The token was read and refused.
    Refused,
    /// The token was accepted.
    Accepted,
}

impl KnownIssuer {
    /// The issuer with this key set (RFC 7517); `None` if it has no usable key.
    pub fn new(issuer: &str, audience: &str, key_set: &str) -> Option<Self> {
        let settings = IssuerSettings {
            issuer: issuer.to_owned(),
            audience: vec![audience.to_owned()],
            ..IssuerSettings::default()
        };
        let keys = KeySet::read(Bytes::copy_from_slice(key_set.as_bytes()), usize::MAX).ok()?;
        Some(Self { settings, keys })
    }

    /// Reads an access token, and verifies its signature if the token could be accepted.
    pub fn read_token(&self, token: &str) -> Reading {
        let Ok(Some(jwt)) = Jwt::read(token) else {
            return Reading::Malformed;
        };
        let accepted = jwt.header().is_ok_and(|header| {
            let key = self.keys.find(header.key.as_deref(), header.algorithm);
            key.is_some_and(|key| jwt.is_signed_by(key, header.algorithm))
        });
        let described = self.describes_client(&jwt.claims);
        if accepted && described {
            Reading::Accepted
        } else {
            Reading::Refused
        }
    }

    /// Whether the answer of an introspection endpoint describes a client.
    #[must_use]
    pub fn read_answer(&self, answer: &[u8]) -> bool {
        let answer = json::object(Bytes::copy_from_slice(answer));
        answer.is_some_and(|claims| self.describes_client(&claims))
    }

    fn describes_client(&self, claims: &fanlight_protocol::Json) -> bool {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let rules = Rules {
            issuer: &self.settings,
            endpoint: None,
            leeway: Duration::from_secs(30),
            now,
        };
        let expires: Option<SystemTime> = match claims::check(claims, &rules) {
            Ok(expires) => expires,
            Err(_) => return false,
        };
        let validity = Validity {
            expires,
            ..Validity::default()
        };
        claims::binding(claims).is_ok()
            && claims::identity(claims, &self.settings, validity).is_ok()
    }
}

/// Whether an issuer's document is a key set with a usable key.
pub fn is_key_set(document: &[u8]) -> bool {
    KeySet::read(Bytes::copy_from_slice(document), 100).is_ok()
}
