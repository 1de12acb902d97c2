//! The reasons why a sign-in failed: a text for the user, and one for the log.

use std::borrow::Cow;

use tracing::{info, warn};
use url::Url;

use crate::oauth::OAuthError;
use crate::store::StoreError;

/// The reason why a sign-in failed. The texts are for the user.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// The server is unknown, or its users do not sign in.
    #[error("users do not sign in to this server")]
    NoServer,
    /// There is no client for the authorization server, and it does not register any.
    #[error(
        "the authorization server {issuer} does not register clients automatically: the operator has to register a \
         client there, with the redirect URI {redirect_uri}, and to write its id into the configuration (auth.clientId)"
    )]
    NoClient {
        /// The authorization server.
        issuer: String,
        /// The URL to which browsers are sent back.
        redirect_uri: Url,
    },
    /// The authorization server is another server's.
    #[error(
        "the authorization server {issuer} is in use for another server of this gateway and does not list this one, so \
         its tokens may be good there, too; if that is right, the operator has to write `issuer: {issuer}` into the \
         `auth` of {server}"
    )]
    OfOtherServer {
        /// The authorization server.
        issuer: String,
        /// The name of the server.
        server: String,
    },
    /// Nobody can sign in at the authorization server.
    #[error("{0}")]
    Impossible(String),
    /// The browser's answer belongs to no running sign-in in this browser.
    #[error("{0}")]
    NotUsed(&'static str),
    /// The authorization server refused.
    #[error("the authorization server refuses the sign-in: {0}")]
    Refused(String),
    /// The identity provider did not identify the user.
    #[error("{0}")]
    NotIdentified(Cow<'static, str>),
    /// The gateway's policies do not permit it.
    #[error("the policy of this gateway does not permit it")]
    NotPermitted,
    /// The audit log is required and cannot be written.
    #[error("this could not be recorded, so it was not carried out; the operator's log says why")]
    NotRecorded,
    /// A peer did not answer correctly; the log has details.
    #[error("the sign-in is not possible now; Fanlight's log says why")]
    Failed {
        /// The reason for the log.
        reason: String,
    },
}

/// The error for the user; the log gets the details.
pub(crate) fn sign_in_error(server: &str, error: &OAuthError) -> SignInError {
    if matches!(error, OAuthError::Refused { .. }) {
        info!(server, %error, "a user's sign-in was refused");
    } else if !matches!(error, OAuthError::ForeignCallback(_)) {
        warn!(server, %error, "a user's sign-in failed");
    }
    error.into()
}

impl From<&OAuthError> for SignInError {
    fn from(error: &OAuthError) -> Self {
        match error {
            OAuthError::ForeignCallback(reason) => Self::NotUsed(reason),
            OAuthError::NoPkce { .. } | OAuthError::NoEndpoint { .. } => {
                Self::Impossible(error.to_string())
            }
            OAuthError::Refused {
                code, explanation, ..
            } => {
                let explanation = explanation
                    .as_ref()
                    .map(|text| format!(" ({text})"))
                    .unwrap_or_default();
                Self::Refused(format!("{code}{explanation}"))
            }
            error => Self::Failed {
                reason: error.to_string(),
            },
        }
    }
}

/// The error if browsers cannot be sent back to this gateway.
pub(crate) fn unusable() -> SignInError {
    SignInError::Failed {
        reason: "publicUrl cannot be used".to_owned(),
    }
}

/// The error if the store's keys cannot be used.
pub(crate) fn unsealed() -> SignInError {
    SignInError::Failed {
        reason: "the keys of the store cannot encrypt".to_owned(),
    }
}

impl From<StoreError> for SignInError {
    fn from(error: StoreError) -> Self {
        warn!(%error, "a user's sign-in failed");
        Self::Failed {
            reason: error.to_string(),
        }
    }
}
