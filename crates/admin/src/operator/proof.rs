//! Proofs of an operator's identity.

use std::sync::Arc;

use fanlight_canonical::identity::Identity;
use serde::{Deserialize, Serialize};

use super::token::Digest;

/// A proof of an operator's identity. Each request judges it again, because settings change and
/// identities end.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// A token that was `admin.token`.
    Token(Digest),
    /// An identity from the methods of `auth`.
    Identity(Arc<Identity>),
    /// An identity from a sign-in at this issuer, with the settings at that time.
    SignedIn {
        at: SignInIssuer,
        identity: Arc<Identity>,
    },
}

/// An issuer at which operators sign in, and the client that is configured for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInIssuer {
    /// The issuer's identifier.
    pub issuer: String,
    /// The client's identifier. `None` if Fanlight registers the client.
    pub client_id: Option<String>,
}
