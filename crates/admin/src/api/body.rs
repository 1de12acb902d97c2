//! Request bodies, read within bounds of size and time.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use tokio::time::timeout;

use crate::reply::{Reply, refused};

/// Reads a body of at most `limit` bytes that arrives within `time`.
pub(crate) async fn read<B>(body: B, limit: usize, time: Duration) -> Result<Bytes, Box<Reply>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match timeout(time, Limited::new(body, limit).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the request body is larger than {limit} bytes, the limit here (limits.requestBody)");
            Err(refused(StatusCode::PAYLOAD_TOO_LARGE, &message))
        }
        Ok(Err(_)) => Err(refused(StatusCode::BAD_REQUEST, "the request body broke off")),
        Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time")),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn size_is_bounded() {
        let body = || Full::new(Bytes::from_static(b"123456"));
        assert_eq!(read(body(), 6, Duration::from_secs(5)).await.unwrap(), "123456");
        let refusal = read(body(), 5, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
