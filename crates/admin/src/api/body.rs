//! Reads request bodies within limits of size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use fanlight_protocol::{DEFAULT_NESTING, Json};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::{Admin, AdminSettings, Refusal, require_json};

/// Time for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The body, of at most `limits.requestBody`.
async fn read(admin: &Admin, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    require_json(headers)?;
    read_up_to(usize::MAX, body, &admin.now().settings).await
}

/// The body of a request that must be JSON.
pub(super) async fn read_json(
    admin: &Admin,
    headers: &HeaderMap,
    body: Body,
) -> Result<Json, Refusal> {
    let text = read(admin, headers, body).await?;
    Json::parse(text, DEFAULT_NESTING)
        .map_err(|error| Refusal::bad_request(format!("the body is not JSON: {error}")))
}

/// The members of a JSON body. Types that deny unknown members refuse what they do not know.
pub(super) async fn read_members<T: DeserializeOwned>(
    admin: &Admin,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Refusal> {
    let text = read(admin, headers, body).await?;
    serde_json::from_slice(&text)
        .map_err(|error| Refusal::bad_request(format!("the body is not as described: {error}")))
}

/// The body, of at most `limit` bytes.
pub(super) async fn read_up_to(
    limit: usize,
    body: Body,
    settings: &AdminSettings,
) -> Result<Bytes, Refusal> {
    let limit = limit.min(settings.max_body);
    match timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message =
                format!("the request body is larger than {limit} bytes (limits.requestBody)");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Ok(Err(_)) => Err(Refusal::bad_request("the request body is incomplete")),
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "the request body did not arrive in time",
        )),
    }
}
