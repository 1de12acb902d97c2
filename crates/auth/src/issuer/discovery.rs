//! An issuer's metadata (RFC 8414; OpenID Connect Discovery 1.0).

use fanlight_protocol::Json;
use reqwest::Url;

use super::client::{FetchError, IssuerClient};
use crate::json;

/// The places at which an issuer may publish its metadata, in the order of 2026-07-28
/// basic/authorization/authorization-server-discovery.
fn places(issuer: &str) -> Vec<String> {
    let Ok(url) = Url::parse(issuer) else { return Vec::new() };
    let origin = url.origin().ascii_serialization();
    let path = url.path().trim_end_matches('/');
    let mut places = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    places
}

/// Reads an issuer's metadata, which must be its own.
///
/// # Errors
///
/// If there are none at any of the places, or no answer: the failure that tells most.
pub(crate) async fn metadata(client: &IssuerClient, issuer: &str) -> Result<Json, FetchError> {
    let mut failure = FetchError::Url(issuer.to_owned());
    for (index, place) in places(issuer).iter().enumerate() {
        failure = match read(client, place, issuer).await {
            Ok(metadata) => return Ok(metadata),
            Err(error @ (FetchError::Transport(_) | FetchError::Timeout(_))) => return Err(error),
            // A document that is missing where it need not be says less than one that is wrong.
            Err(FetchError::Status(_)) if index > 0 => failure,
            Err(error) => error,
        };
    }
    Err(FetchError::NoMetadata(Box::new(failure)))
}

async fn read(client: &IssuerClient, place: &str, issuer: &str) -> Result<Json, FetchError> {
    let metadata = json::object(client.get(place).await?).ok_or(FetchError::Malformed)?;
    // "MUST be identical" (RFC 8414, 3.3): else one issuer could bring its keys for another.
    match metadata.peek("issuer").is_some_and(|named| named.is_str(issuer)) {
        true => Ok(metadata),
        false => Err(FetchError::OtherIssuer),
    }
}

/// A URL in metadata.
///
/// # Errors
///
/// If it is absent.
pub(crate) fn url(metadata: &Json, name: &'static str) -> Result<String, FetchError> {
    json::text(metadata, name).ok_or(FetchError::Missing(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_at_these_places() {
        assert_eq!(
            places("https://id.example.com"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            places("https://id.example.com:8443/tenant/1/"),
            [
                "https://id.example.com:8443/.well-known/oauth-authorization-server/tenant/1",
                "https://id.example.com:8443/.well-known/openid-configuration/tenant/1",
                "https://id.example.com:8443/tenant/1/.well-known/openid-configuration",
            ]
        );
    }
}
