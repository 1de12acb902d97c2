//! The reasons why a document cannot be fetched.

use std::time::Duration;

use fanlight_protocol::secret::redacted_text;
use http::StatusCode;
use url::Url;

/// The reason why a document cannot be fetched. URLs are shown without what may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Fanlight does not send requests to this URL.
    #[error("no request was sent to {url}: {reason}")]
    Forbidden {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The connection failed or broke.
    #[error("{url} did not answer: {reason}")]
    NoAnswer {
        /// The URL.
        url: String,
        /// The causes.
        reason: String,
    },
    /// There was no answer in time.
    #[error("{url} did not answer within {within:?}")]
    Timeout {
        /// The URL.
        url: String,
        /// The time limit.
        within: Duration,
    },
    /// The answer has another status than success.
    #[error("{url} answered with status {}{}", .status.as_u16(), if .status.is_redirection() { ", and redirects are not followed" } else { "" })]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// The answer is too long.
    #[error("the answer of {url} has more than {most} bytes")]
    TooLong {
        /// The URL.
        url: String,
        /// The size limit.
        most: usize,
    },
    /// The answer is malformed.
    #[error("the answer of {url} cannot be used: {reason}")]
    Malformed {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// Certificates of authorities cannot be used.
    #[error("certificates cannot be used: {0}")]
    Certificates(String),
}

impl FetchError {
    /// Whether the same request may succeed later without any change.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::Timeout { .. } => true,
            Self::Status { status, .. } => {
                status.is_server_error()
                    || *status == StatusCode::TOO_MANY_REQUESTS
                    || *status == StatusCode::REQUEST_TIMEOUT
            }
            _ => false,
        }
    }

    /// Whether the answer means that the document is not here, but maybe elsewhere. A failed server
    /// does not mean that: the next place could be another's.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_client_error() && !self.is_temporary(),
            // Some servers answer every path with a page.
            Self::Malformed { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn forbidden(url: &Url, reason: impl ToString) -> Self {
        let (url, reason) = (display_url(url), reason.to_string());
        Self::Forbidden { url, reason }
    }

    /// The error about an answer with another status than success.
    pub fn status(url: &Url, status: StatusCode) -> Self {
        let url = display_url(url);
        Self::Status { url, status }
    }

    /// The error about a malformed answer.
    pub fn malformed(url: &Url, reason: impl ToString) -> Self {
        let (url, reason) = (display_url(url), reason.to_string());
        Self::Malformed { url, reason }
    }
}

/// A URL without its possibly secret parts. A path is shown if it is a well-known one, which holds
/// no secret (RFC 8615).
pub(crate) fn display_url(url: &Url) -> String {
    let mut url = url.clone();
    if !url.path().contains("/.well-known/") {
        url.set_path("");
    }
    url.set_query(None);
    url.set_fragment(None);
    let _ = (url.set_username(""), url.set_password(None));
    visible(url.as_str(), 200)
}

/// Foreign text on one line, without secrets and invisible characters, and cut to `most` characters.
pub(crate) fn visible(text: &str, most: usize) -> String {
    let text = redacted_text(text);
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
