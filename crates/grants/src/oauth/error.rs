//! The errors of requests to authorization servers.

use std::time::Duration;

use fanlight_protocol::secret::BLANK;
use serde::Deserialize;
use url::Url;

use crate::fetch::{Answer, FetchError, display_url, visible};

/// The reason why there are no credentials. The texts are for operators, since they contain
/// addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    /// A document cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The metadata are of another server than the requested one (RFC 9728, 3.3).
    #[error("the server's metadata belong to {named}, not to {server}")]
    OtherResource {
        /// The server's URL.
        server: String,
        /// The resource that the metadata name.
        named: String,
    },
    /// The metadata are of another issuer than the requested one (RFC 8414, 3.3).
    #[error("the metadata of the authorization server {issuer} name another issuer: {named}")]
    OtherIssuer {
        /// The requested issuer.
        issuer: String,
        /// The issuer that the metadata name.
        named: String,
    },
    /// The server names another authorization server than the configured or previous one.
    /// Credentials of one are not for another (2026-07-28 basic/authorization/client-registration,
    /// Authorization Server Binding).
    #[error(
        "the server names the authorization server {named}, but the credentials are for {issuer}; if {named} may get them, write it as `issuer`"
    )]
    OtherAuthorizationServer {
        /// The issuer that the credentials are for.
        issuer: String,
        /// The issuer that the server names.
        named: String,
    },
    /// No well-known place has metadata.
    #[error(
        "the authorization server {issuer} has no metadata by RFC 8414 or OpenID Connect Discovery"
    )]
    NoMetadata {
        /// The issuer.
        issuer: String,
    },
    /// The authorization server lacks S256, without which others can redeem a stolen code
    /// (2026-07-28 basic/authorization/security-considerations).
    #[error(
        "the authorization server {issuer} does not offer PKCE with S256, which Fanlight requires"
    )]
    NoPkce {
        /// The issuer.
        issuer: String,
    },
    /// The authorization server lacks an endpoint.
    #[error("the authorization server {issuer} has no {endpoint}")]
    NoEndpoint {
        /// The issuer.
        issuer: String,
        /// The endpoint.
        endpoint: &'static str,
    },
    /// The browser's answer belongs to no request, or to another authorization server (RFC 9207).
    #[error("the answer to the sign-in is refused: {0}")]
    ForeignCallback(&'static str),
    /// The authorization server refuses, with a code of RFC 6749, 5.2, and an explanation.
    #[error("{url} refuses: {code}{}", .explanation.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// The URL without its query.
        url: String,
        /// The error code, such as `invalid_grant`.
        code: String,
        /// The authorization server's explanation, made visible and short.
        explanation: Option<String>,
    },
    /// The file with a token cannot be used.
    #[error("the token file {file} cannot be used: {reason}")]
    TokenFile {
        /// The path of the file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// There is no token of the user, who has to sign in.
    #[error("the user has not signed in at the identity provider")]
    NoSubject,
    /// The user's token is unavailable.
    #[error("cannot get the user's token: {0}")]
    Subject(String),
    /// The server has refused repeatedly, or just before this request.
    #[error("{0}")]
    Exhausted(&'static str),
    /// A key or certificate cannot be used.
    #[error("{0}")]
    Key(String),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomness,
}

/// How long a failure stands, so that calls do not each ask an authorization server that is down.
/// There is no option: a repair takes longer.
pub(crate) const FAILURE: Duration = Duration::from_secs(5);

/// How long a refusal stands: a problem with the client does not repair itself, and some
/// authorization servers lock out persistent clients.
const REFUSAL: Duration = Duration::from_secs(60);

impl OAuthError {
    /// How long the authorization server is not asked again.
    pub fn stands_for(&self) -> Duration {
        if self.refusal().is_some() && !self.is_temporary() {
            REFUSAL
        } else {
            FAILURE
        }
    }

    /// Whether the same request may succeed later without any change.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_temporary(),
            Self::NoRandomness => true,
            Self::Refused { code, .. } => {
                code == "temporarily_unavailable" || code == "server_error"
            }
            _ => false,
        }
    }

    /// The code with which the authorization server refuses.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Adds a remedy if the authorization server refuses the parameter `resource`: with
    /// `invalid_target` (RFC 8707, 2), or, if it does not know the parameter, with an explanation
    /// that names it.
    #[must_use]
    pub(crate) fn about_resource(mut self, resource: Option<&str>) -> Self {
        if let Self::Refused {
            code, explanation, ..
        } = &mut self
            && resource.is_some()
        {
            let text = explanation.take().unwrap_or_default();
            let names_it = text.to_ascii_lowercase().contains("resource");
            if code == "invalid_target" || names_it {
                let advice = "if it does not take the parameter `resource`, set `resourceParameter: omit` in the \
                              server's `auth`";
                let between = if text.is_empty() { "" } else { "; " };
                *explanation = Some(format!("{text}{between}{advice}"));
            } else if !text.is_empty() {
                *explanation = Some(text);
            }
        }
        self
    }

    pub(crate) fn malformed(url: &Url, reason: impl ToString) -> Self {
        Self::Fetch(FetchError::malformed(url, reason))
    }
}

/// The answer of an endpoint that refuses (RFC 6749, 5.2; RFC 7591, 3.2.2).
#[derive(Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: String,
    error_description: Option<String>,
}

/// The refusal in the answer to a request, without the secrets that were `sent` with it.
pub(crate) fn refusal(answer: &Answer, url: &Url, sent: &[&str]) -> OAuthError {
    let hidden = |text: String| {
        let sent = sent.iter().filter(|secret| !secret.is_empty());
        sent.fold(text, |text, secret| text.replace(secret, BLANK))
    };
    match answer.json::<Refusal>(url) {
        Ok(Refusal {
            error,
            error_description,
        }) => OAuthError::Refused {
            url: display_url(url),
            code: visible(&hidden(error), 64),
            explanation: error_description.map(|text| visible(&hidden(text), 200)),
        },
        Err(_) => FetchError::status(url, answer.status).into(),
    }
}
