//! Why an authorization server has not given what it was asked for.

use std::time::Duration;

use http::StatusCode;
use url::Url;

/// Why credentials could not be had. The texts are for operators: they name addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    /// A URL that is not asked.
    #[error("{url} is not asked: {reason}")]
    Forbidden {
        /// Without its query.
        url: String,
        /// Why.
        reason: String,
    },
    /// No connection, or none that lasted.
    #[error("{url} gives no answer: {reason}")]
    NoAnswer {
        /// Without its query.
        url: String,
        /// The causes.
        reason: String,
    },
    /// No answer in time.
    #[error("{url} gives no answer within {} seconds", .within.as_secs())]
    Timeout {
        /// Without its query.
        url: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// An answer with another status than one of success.
    #[error("{url} answers with the status {}{}", .status.as_u16(), if .status.is_redirection() { ", and redirects are not followed" } else { "" })]
    Status {
        /// Without its query.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// An answer that is too long.
    #[error("the answer of {url} has more than {most} bytes")]
    TooLong {
        /// Without its query.
        url: String,
        /// The most that is read.
        most: usize,
    },
    /// An answer that is not what it should be.
    #[error("the answer of {url} cannot be used: {reason}")]
    Malformed {
        /// Without its query.
        url: String,
        /// Why.
        reason: String,
    },
    /// Metadata of another server than the one that was asked (RFC 9728, 3.3).
    #[error("the metadata of the server are those of {named}, not of {server}")]
    OtherResource {
        /// The server's URL.
        server: String,
        /// The resource that the metadata name.
        named: String,
    },
    /// Metadata of another issuer than the one that was asked (RFC 8414, 3.3).
    #[error("the metadata of the authorization server {issuer} name another issuer: {named}")]
    OtherIssuer {
        /// The issuer that was asked.
        issuer: String,
        /// The one that the metadata name.
        named: String,
    },
    /// Another authorization server than the one that the operator has named, or that was used before: credentials of one
    /// are not for another (2026-07-28 basic/authorization/client-registration, Authorization Server Binding).
    #[error(
        "the server names the authorization server {named}, and not {issuer}, for which the credentials are; write its `issuer`, if that is right"
    )]
    OtherAuthorizationServer {
        /// The one that the credentials are for.
        issuer: String,
        /// The one that the server names.
        named: String,
    },
    /// Metadata at none of the places where they are looked for.
    #[error(
        "the authorization server {issuer} has no metadata by RFC 8414 or OpenID Connect Discovery"
    )]
    NoMetadata {
        /// The issuer.
        issuer: String,
    },
    /// Without S256 a stolen code can be redeemed by others (2026-07-28 basic/authorization/security-considerations).
    #[error(
        "the authorization server {issuer} does not offer PKCE with S256, without which nobody is signed in"
    )]
    NoPkce {
        /// The issuer.
        issuer: String,
    },
    /// An endpoint that the authorization server does not have.
    #[error("the authorization server {issuer} has no {endpoint}")]
    NoEndpoint {
        /// The issuer.
        issuer: String,
        /// The endpoint.
        endpoint: &'static str,
    },
    /// What the browser brought back belongs to no request, or to another authorization server (RFC 9207).
    #[error("the answer to the sign-in is not used: {0}")]
    ForeignCallback(&'static str),
    /// The authorization server refuses: the code by RFC 6749, 5.2, and its explanation.
    #[error("{url} refuses: {code}{}", .explanation.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// Without its query.
        url: String,
        /// Such as `invalid_grant`.
        code: String,
        /// What the authorization server says of it, made visible and short.
        explanation: Option<String>,
    },
    /// A file with a token that cannot be used.
    #[error("the token file {file} cannot be used: {reason}")]
    TokenFile {
        /// Its path.
        file: String,
        /// Why.
        reason: String,
    },
    /// There is no token of a user, who has to sign in.
    #[error("the user has not signed in at the identity provider")]
    NoSubject,
    /// The token of a user cannot be had.
    #[error("the token of the user cannot be had: {0}")]
    Subject(String),
    /// The server has refused again and again, or just before.
    #[error("{0}")]
    Exhausted(&'static str),
    /// A key or certificate that cannot be used.
    #[error("{0}")]
    Key(String),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomness,
}

/// For how long a failure stands: an authorization server that is down is not asked for each call. No option: an operator who
/// mends it takes longer.
pub(crate) const FAILURE: Duration = Duration::from_secs(5);

/// For how long a refusal stands: what is wrong with the client does not mend itself, and some lock out those who try on.
const REFUSAL: Duration = Duration::from_secs(60);

impl OAuthError {
    /// For how long the authorization server is not asked again.
    #[must_use]
    pub fn stands_for(&self) -> Duration {
        if self.refusal().is_some() && !self.is_temporary() {
            REFUSAL
        } else {
            FAILURE
        }
    }

    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::Timeout { .. } | Self::NoRandomness => true,
            Self::Status { status, .. } => is_temporary(*status),
            Self::Refused { code, .. } => {
                code == "temporarily_unavailable" || code == "server_error"
            }
            _ => false,
        }
    }

    /// The code with which the authorization server refuses.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    pub(crate) fn malformed(url: &Url, reason: impl ToString) -> Self {
        Self::Malformed {
            url: shown(url),
            reason: reason.to_string(),
        }
    }
}

fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

/// A URL without what may be secret in it.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = (url.set_username(""), url.set_password(None));
    visible(url.as_str(), 200)
}

/// Text of others on one line, without invisible characters, of `most` characters at most.
pub(crate) fn visible(text: &str, most: usize) -> String {
    let shown = text.chars().take(most).flat_map(|character| {
        let character = if character.is_whitespace() {
            ' '
        } else {
            character
        };
        let is_plain = character == ' ' || !(character.is_control() || character.is_whitespace());
        let escaped = (!is_plain).then(|| character.escape_default());
        escaped
            .into_iter()
            .flatten()
            .chain(is_plain.then_some(character))
    });
    let mut shown: String = shown.collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}
