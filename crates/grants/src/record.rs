//! The records of the store.

use std::time::{Duration, SystemTime};

use crate::oauth::sealed;
use crate::oauth::{
    AuthorizationRequest, ClientRegistration, ProofKey, Provider, Scopes, TokenSet, TokenTarget,
};
use fanlight_config::settings::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::store::{Kind, Record, seconds};

/// A user's grant at a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The authorization server that issued it.
    pub provider: Provider,
    /// The client that it was issued to; `None` for the configured client.
    pub client: Option<ClientRegistration>,
    /// The requested resource and scopes.
    pub target: TokenTarget,
    /// When the access token was issued.
    pub issued: SystemTime,
    /// The tokens.
    pub tokens: TokenSet,
    /// The key that the tokens are bound to, if any.
    pub proof_key: Option<ProofKey>,
    /// When the user signed in.
    pub since: SystemTime,
    /// The server's origin, and the client that the tokens were issued to.
    pub(crate) given_for: GivenFor,
}

/// The scope of validity of tokens: a server's origin and a client. They are sent nowhere else,
/// whatever the configuration does with the server's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenFor {
    pub(crate) origin: String,
    pub(crate) client_id: String,
}

impl Grant {
    /// The granted scopes, as far as known.
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
    /// The server's origin at that time.
    pub(crate) origin: String,
}

impl UserKey {
    /// A key deposited now, for the server with this origin.
    pub(crate) fn new(key: impl Into<String>, origin: String) -> Self {
        Self {
            key: Zeroizing::new(key.into()),
            since: SystemTime::now(),
            origin,
        }
    }

    /// The key's text, to be sent to its server.
    pub fn expose(&self) -> &str {
        &self.key
    }
}

fanlight_protocol::opaque!(UserKey);

impl Record for UserKey {
    const KIND: Kind = Kind::UserKey;
}

/// A client registered at an authorization server for one redirect URL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RegisteredClient(pub(crate) ClientRegistration);

/// The lifetime of a registration. Its end also tells which registration is the oldest.
const REGISTRATION_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// When a record about an authorization server that is made now becomes useless.
pub(crate) fn registration_end() -> u64 {
    seconds(SystemTime::now() + REGISTRATION_TIME)
}

impl Record for RegisteredClient {
    const KIND: Kind = Kind::Client;

    fn issuer(&self) -> &str {
        &self.0.issuer
    }

    fn useless_after(&self) -> Option<u64> {
        Some(registration_end())
    }
}

/// A sign-in that a user has agreed to, until the browser returns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BegunSignIn {
    pub(crate) principal: Vec<u8>,
    pub(crate) server: String,
    pub(crate) provider: Provider,
    pub(crate) client: Option<ClientRegistration>,
    pub(crate) proof_key: Option<ProofKey>,
    pub(crate) request: AuthorizationRequest,
    /// The server's origin and the client when it began.
    pub(crate) given_for: GivenFor,
    /// A digest of the cookie of the browser in which the user agreed.
    pub(crate) browser: Vec<u8>,
    /// The number of the rules that permitted it.
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

/// The user of a browser, identified a moment ago. The proof is verified again at each visit, so
/// that it ends when a key is revoked or an issuer is no longer configured.
#[derive(Serialize, Deserialize)]
pub(crate) struct KnownBrowser {
    pub(crate) proof: Proof,
    /// A digest of the browser's own cookie.
    pub(crate) browser: Vec<u8>,
    pub(crate) expires: SystemTime,
}

/// The proof of who a browser's user is.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Proof {
    /// A key or an access token for this gateway.
    Credential(#[serde(with = "sealed")] Secret),
    /// An ID token of an identity provider.
    IdToken {
        #[serde(with = "sealed")]
        token: Secret,
        issuer: String,
        client_id: String,
        nonce: String,
    },
}

/// An operator's session, for the other replicas.
#[derive(Serialize, Deserialize)]
pub(crate) struct OperatorSession {
    #[serde(with = "sealed")]
    pub(crate) text: Secret,
    pub(crate) expires: SystemTime,
}

impl Record for OperatorSession {
    const KIND: Kind = Kind::Browser;

    fn useless_after(&self) -> Option<u64> {
        Some(seconds(self.expires))
    }
}

impl Record for KnownBrowser {
    const KIND: Kind = Kind::Browser;

    fn useless_after(&self) -> Option<u64> {
        Some(seconds(self.expires))
    }
}
