//! The evidence of an operator's identity.

use std::sync::Arc;

use fanlight_canonical::identity::Identity;

use super::token::Digest;
use crate::settings::SignInIssuer;

/// What has shown who an operator is. It is judged at each request, since settings change and identities end.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// `admin.token`, as it was then.
    Token(Digest),
    /// An identity by the methods of `auth`.
    Identity(Arc<Identity>),
    /// An identity by a sign-in at this issuer, as it was configured then.
    SignedIn {
        at: SignInIssuer,
        identity: Arc<Identity>,
    },
}
