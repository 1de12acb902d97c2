//! Reads request bodies within limits of size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::reply::Refusal;
use crate::settings::AdminSettings;

/// Time for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The body, of at most `limits.requestBody`.
pub(super) async fn read(body: Body, settings: &AdminSettings) -> Result<Bytes, Refusal> {
    read_up_to(settings.max_body, body, settings).await
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
