//! The remedy for a URL that answered but is no working server: credentials are missing, or the
//! scheme is wrong.

use std::time::Duration;

use fanlight_canonical::{BackendError, Remedy, RemedyKind};
use fanlight_protocol::Json;
use fanlight_protocol::json::DEFAULT_NESTING;
use tokio::time::timeout;

use super::challenge::Challenge;
use super::remedy;
use crate::log::excerpt;
use crate::transport::http::HttpEndpoint;

/// The time limit for inspecting a failed server. A constant: it delays the next attempt, and the
/// errors of the failed one.
const LOOK: Duration = Duration::from_secs(2);
/// The maximum size of a server's protection metadata in bytes.
const DESCRIPTION: usize = 64 << 10;
/// The maximum number of issuers and scopes to show.
const SHOWN: usize = 8;

/// The remedy for a URL without a working server. Inspects the server more closely if that is
/// useful; failures to connect explain themselves.
pub(crate) async fn find_for_url(endpoint: &HttpEndpoint, error: &BackendError) -> Option<Remedy> {
    match error.cause() {
        BackendError::Unauthorized { status } => sign_in(endpoint, *status).await,
        BackendError::ClosedEarly
        | BackendError::Status { status: 400 }
        | BackendError::Malformed { .. }
            if endpoint.is_plain()
                && timeout(LOOK, endpoint.speaks_tls())
                    .await
                    .unwrap_or_default() =>
        {
            remedy(
                RemedyKind::Tls,
                "it speaks https, not http: write `https://` instead of `http://` in `url`",
            )
        }
        BackendError::ClosedEarly if !endpoint.is_plain() => {
            timeout(LOOK, endpoint.refused_handshake())
                .await
                .unwrap_or_default()
        }
        BackendError::Status { status: 404 | 405 } => {
            let text = "the server is there, but not at this path: compare the path of `url` with its documentation \
                        (often `/mcp` or `/sse`)";
            remedy(RemedyKind::Address, text)
        }
        BackendError::Malformed { reason } if reason.contains("content type") => {
            let text = "what answers there is no MCP server: compare `url` with the server's documentation";
            remedy(RemedyKind::Address, text)
        }
        _ => None,
    }
}

/// The credentials that a refusing server wants.
async fn sign_in(endpoint: &HttpEndpoint, status: u16) -> Option<Remedy> {
    let challenge = endpoint.challenge().map(|text| Challenge::read(&text));
    let scheme = challenge
        .as_ref()
        .map(|challenge| challenge.scheme.as_str());
    let is_given = endpoint.has_credentials();
    let mut text = match (is_given, status, scheme) {
        (true, 403, _) => "the credentials in `headers` do not suffice".to_owned(),
        (true, ..) => "the credentials in `headers` are not accepted: renew them".to_owned(),
        (false, _, Some("basic")) => {
            "it wants a user name and a password: set `headers: {Authorization: \"Basic ${…}\"}`, or put them into `url`".into()
        }
        (false, _, Some("bearer")) => {
            "it wants an access token: set `headers: {Authorization: \"Bearer ${TOKEN}\"}`".to_owned()
        }
        (false, _, Some(_) | None) => {
            "it wants credentials: set the header that its documentation names in `headers`".to_owned()
        }
    };
    let said = challenge
        .as_ref()
        .and_then(|challenge| challenge.explanation());
    text.extend(said.map(|said| format!("; it says: {said}")));
    // Basic credentials have no issuer.
    if scheme != Some("basic") {
        let found = timeout(LOOK, protection(endpoint))
            .await
            .unwrap_or_default();
        text.extend(found.map(|found| format!("; {found}")));
    }
    let scopes = challenge
        .as_ref()
        .and_then(|challenge| challenge.parameter("scope"));
    text.extend(scopes.map(|scopes| format!("; for this it needs the scopes {scopes}")));
    remedy(RemedyKind::Credentials, text)
}

/// The issuers of a server's tokens, according to the server's own metadata (RFC 9728).
async fn protection(endpoint: &HttpEndpoint) -> Option<String> {
    let text = endpoint.protected_resource(DESCRIPTION).await?;
    let metadata = Json::parse(text, DEFAULT_NESTING).ok()?;
    let texts = |key: &str| -> Vec<String> {
        let list = metadata.get(key).unwrap_or_default();
        let texts = list
            .items()
            .filter_map(|entry| Some(excerpt(entry.as_str()?.as_bytes(), 200)));
        texts.take(SHOWN).collect()
    };
    let (issuers, scopes) = (texts("authorization_servers"), texts("scopes_supported"));
    let scopes = if scopes.is_empty() {
        String::new()
    } else {
        format!(" (scopes: {})", scopes.join(" "))
    };
    (!issuers.is_empty())
        .then(|| format!("its tokens are issued by {}{scopes}", issuers.join(", ")))
}
