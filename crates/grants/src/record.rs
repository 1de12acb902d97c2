//! The records of the store.

use std::time::{Duration, SystemTime};

use fanlight_oauth::{
    AuthorizationRequest, ClientRegistration, ProofKey, Provider, Scopes, TokenSet, TokenTarget,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::store::{Kind, Record, seconds};

/// What a user has granted at a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The authorization server that it was granted at.
    pub provider: Provider,
    /// The client that it was granted to; `None` for the one that is configured.
    pub client: Option<ClientRegistration>,
    /// What was asked for.
    pub target: TokenTarget,
    /// When the access token was given.
    pub issued: SystemTime,
    /// The tokens.
    pub tokens: TokenSet,
    /// The key that they are bound to, if they are.
    pub proof_key: Option<ProofKey>,
    /// When the user signed in.
    pub since: SystemTime,
    /// Where the server was, and the client that the tokens were given to.
    pub(crate) given_for: GivenFor,
}

/// What tokens are good for: a server at an origin, by a client. They are sent nowhere else, whatever the configuration makes of
/// the server's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenFor {
    pub(crate) origin: String,
    pub(crate) client_id: String,
}

impl Grant {
    /// The scopes that were granted, as far as they are known.
    #[must_use]
    pub fn scopes(&self) -> Option<&Scopes> {
        self.tokens.scopes.as_ref().or(self.target.scopes.as_ref())
    }
}

impl Record for Grant {
    const KIND: Kind = Kind::Grant;

    fn issuer(&self) -> &str {
        &self.provider.issuer
    }
}

/// A key that a user has deposited for a server.
#[derive(Clone, Serialize, Deserialize)]
pub struct UserKey {
    /// The key.
    key: Zeroizing<String>,
    /// When it was deposited.
    pub since: SystemTime,
    /// Where the server was then.
    pub(crate) origin: String,
}

impl UserKey {
    /// A key that is deposited now, for the server at this origin.
    pub(crate) fn new(key: impl Into<String>, origin: String) -> Self {
        Self {
            key: Zeroizing::new(key.into()),
            since: SystemTime::now(),
            origin,
        }
    }

    /// The key, for its one use.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.key
    }
}

impl std::fmt::Debug for UserKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserKey(***)")
    }
}

impl Record for UserKey {
    const KIND: Kind = Kind::UserKey;

    fn issuer(&self) -> &'static str {
        ""
    }
}

/// A client that was registered at an authorization server for one address to which browsers are sent back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RegisteredClient(pub(crate) ClientRegistration);

/// After that a client is registered anew. It also tells which registration is the oldest.
const REGISTRATION_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

impl Record for RegisteredClient {
    const KIND: Kind = Kind::Client;

    fn issuer(&self) -> &str {
        &self.0.issuer
    }

    fn useless_after(&self) -> Option<u64> {
        Some(seconds(SystemTime::now() + REGISTRATION_TIME))
    }
}

/// A sign-in that a user has agreed to, until the browser comes back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BegunSignIn {
    pub(crate) principal: Vec<u8>,
    pub(crate) server: String,
    pub(crate) provider: Provider,
    pub(crate) client: Option<ClientRegistration>,
    pub(crate) proof_key: Option<ProofKey>,
    pub(crate) request: AuthorizationRequest,
    /// Where the server was when it began, and the client as which the user was sent.
    pub(crate) given_for: GivenFor,
    /// A digest of the cookie of the browser in which the user agreed.
    pub(crate) browser: Vec<u8>,
    /// The number of the rules by which the user might.
    #[serde(default)]
    pub(crate) rules: u64,
    pub(crate) expires: SystemTime,
}

/// How long a user may take to sign in.
pub(crate) const SIGN_IN_TIME: Duration = Duration::from_secs(600);

impl Record for BegunSignIn {
    const KIND: Kind = Kind::SignIn;

    fn issuer(&self) -> &str {
        &self.provider.issuer
    }

    fn useless_after(&self) -> Option<u64> {
        Some(seconds(self.expires))
    }
}
