//! Why nobody was signed in: what the user is told, and what the log has.

use std::borrow::Cow;

use fanlight_oauth::OAuthError;
use tracing::{info, warn};
use url::Url;

use crate::store::StoreError;

/// Why nobody was signed in. The texts are for the user.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// There is no such server, or its users do not sign in.
    #[error("this server has no users that sign in")]
    NoServer,
    /// The authorization server knows no client, and registers none.
    #[error(
        "the authorization server {issuer} registers no programs by itself: the operator has to register one there, with the \
         redirect URI {redirect_uri}, and to write its id into the configuration (auth.clientId)"
    )]
    NoClient {
        /// The authorization server.
        issuer: String,
        /// Where browsers are sent back to.
        redirect_uri: Url,
    },
    /// What the browser brought is not an answer to a sign-in of this browser that is under way.
    #[error("{0}")]
    NotUsed(&'static str),
    /// The authorization server refuses.
    #[error("the authorization server refuses the sign-in: {0}")]
    Refused(String),
    /// The identity provider has not shown who the user is.
    #[error("{0}")]
    NotIdentified(Cow<'static, str>),
    /// The policy of this gateway does not permit it.
    #[error("the policy of this gateway does not permit it")]
    NotPermitted,
    /// It cannot be put on record, as it has to be.
    #[error(
        "this could not be put on record, and was not carried out; the operator's log says why"
    )]
    NotRecorded,
    /// Somebody did not answer as they should; the log says more.
    #[error("the sign-in cannot be carried out now; the operator's log says why")]
    Failed {
        /// What the log says.
        reason: String,
    },
}

/// What the user is told; the log has the rest.
pub(crate) fn failed(server: &str, error: &OAuthError) -> SignInError {
    match error {
        OAuthError::ForeignCallback(reason) => SignInError::NotUsed(reason),
        OAuthError::Refused {
            code, explanation, ..
        } => {
            info!(server, %error, "a user's sign-in was refused");
            let explanation = explanation
                .as_ref()
                .map(|text| format!(" ({text})"))
                .unwrap_or_default();
            SignInError::Refused(format!("{code}{explanation}"))
        }
        error => {
            warn!(server, %error, "a user's sign-in cannot be carried out");
            SignInError::Failed {
                reason: error.to_string(),
            }
        }
    }
}

/// The failure where nobody can be sent back to this gateway.
pub(crate) fn unusable() -> SignInError {
    SignInError::Failed {
        reason: "publicUrl is not usable".to_owned(),
    }
}

/// The failure where the keys of the store are of no use.
pub(crate) fn unsealed() -> SignInError {
    SignInError::Failed {
        reason: "the keys of the store cannot seal".to_owned(),
    }
}

pub(crate) fn unkept(error: &StoreError) -> SignInError {
    warn!(%error, "a user's sign-in cannot be carried out");
    SignInError::Failed {
        reason: error.to_string(),
    }
}
