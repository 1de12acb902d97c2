//! Proofs of an operator's identity.

use std::sync::Arc;

use fanlight_canonical::identity::Identity;

use super::token::Digest;
use crate::settings::SignInIssuer;

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
