//! An issuer's metadata (RFC 8414; OpenID Connect Discovery 1.0).

use fanlight_grants::oauth::metadata_places;
use fanlight_protocol::Json;

use super::client::{FetchError, IssuerClient};
use crate::json;

/// Reads an issuer's own metadata.
///
/// # Errors
///
/// The most informative failure, if no place has metadata, or there is no answer.
pub(crate) async fn metadata(client: &IssuerClient, issuer: &str) -> Result<Json, FetchError> {
    let mut failure = FetchError::Url(issuer.to_owned());
    for (index, place) in metadata_places(issuer).iter().enumerate() {
        failure = match read(client, place, issuer).await {
            Ok(metadata) => return Ok(metadata),
            Err(error @ (FetchError::Transport(_) | FetchError::Timeout(_))) => return Err(error),
            // A document missing at an optional place is less informative than a wrong document.
            Err(FetchError::Status(_)) if index > 0 => failure,
            Err(error) => error,
        };
    }
    Err(FetchError::NoMetadata(Box::new(failure)))
}

async fn read(client: &IssuerClient, place: &str, issuer: &str) -> Result<Json, FetchError> {
    let metadata = json::object(client.get(place).await?).ok_or(FetchError::Malformed)?;
    // "MUST be identical" (RFC 8414, 3.3), since one issuer could otherwise present its keys as
    // another's.
    match metadata
        .peek("issuer")
        .is_some_and(|named| named.is_str(issuer))
    {
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
