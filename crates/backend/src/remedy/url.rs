//! The remedy for a URL that answered but is no working server: credentials are missing, or the
//! scheme is wrong. `WWW-Authenticate` (RFC 9110, 11.6.1) is read only to inform operators.

use std::time::Duration;

use fanlight_canonical::{BackendError, Remedy, RemedyKind};
use fanlight_protocol::{DEFAULT_NESTING, Json};
use http_auth::ParamValue;
use http_auth::parser::ChallengeParser;
use tokio::time::timeout;

use super::remedy;
use crate::log::foreign_text;
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
            .filter_map(|entry| Some(foreign_text(entry.as_str()?.as_bytes(), 200)));
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

/// The first challenge of a header.
struct Challenge {
    /// The scheme in lower case.
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// Parses a header; unreadable parts are left out.
    fn read(text: &str) -> Self {
        let first = ChallengeParser::new(text).next().and_then(Result::ok);
        let Some(challenge) = first else {
            return Self {
                scheme: scheme_of(text),
                parameters: Vec::new(),
            };
        };
        let owned = |(name, value): &(&str, ParamValue<'_>)| {
            (name.to_ascii_lowercase(), value.to_unescaped())
        };
        Self {
            scheme: challenge.scheme.to_ascii_lowercase(),
            parameters: challenge.params.iter().map(owned).collect(),
        }
    }

    /// The value of a parameter; `None` if it is empty.
    fn parameter(&self, name: &str) -> Option<String> {
        let (_, value) = self.parameters.iter().find(|(found, _)| found == name)?;
        (!value.is_empty()).then(|| foreign_text(value.as_bytes(), 200))
    }

    /// The server's explanation of its refusal.
    fn explanation(&self) -> Option<String> {
        self.parameter("error_description")
            .or_else(|| self.parameter("error"))
    }
}

/// The first word.
fn scheme_of(text: &str) -> String {
    text.split([' ', ','])
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_is_read_as_far_as_possible() {
        let text = r#"Bearer realm="a, \"b\"", error=invalid_token ,error_description="it has expired", scope="x y""#;
        let challenge = Challenge::read(text);
        assert_eq!(challenge.scheme, "bearer");
        assert_eq!(challenge.parameter("realm").as_deref(), Some("a, \"b\""));
        assert_eq!(
            challenge.parameter("error").as_deref(),
            Some("invalid_token")
        );
        assert_eq!(challenge.parameter("scope").as_deref(), Some("x y"));
        assert_eq!(challenge.explanation().as_deref(), Some("it has expired"));
        let repeated = Challenge::read("Bearer error_description=\"Invalid API key: s3cret-1\"");
        let said = repeated.explanation();
        assert_eq!(said.as_deref(), Some("Invalid API key: [redacted]"));
        assert_eq!(Challenge::read("Bearer realm=\"x").scheme, "bearer");
        for odd in ["", "Basic", "Basic realm=\"x", "=", "Bearer ,,=\"\""] {
            assert_eq!(Challenge::read(odd).parameter("scope"), None);
        }
    }
}
