//! Request bodies: read within limits of size and time, or drained.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::EXPECT;
use http::request::Parts;
use http::{StatusCode, Version};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::reply::Refusal;

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// Larger than allowed.
    #[error("the request body is larger than {limit} bytes, the limit here")]
    TooLarge {
        /// The limit that applied.
        limit: usize,
    },
    /// Slower than allowed.
    #[error("the request body did not arrive within {limit:?}")]
    TooSlow {
        /// The limit that applied.
        limit: Duration,
    },
    /// The connection broke, or the transfer coding is malformed.
    #[error("the request body broke off")]
    Broken,
}

impl From<BodyError> for Box<Refusal> {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            BodyError::Broken => StatusCode::BAD_REQUEST,
        };
        Refusal::invalid(status, error.to_string())
    }
}

/// Reads a body of at most `limit` bytes that arrives within `time`.
pub(crate) async fn read<B>(body: &mut B, limit: usize, time: Duration) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    timeout(time, collect(body, limit)).await.unwrap_or(Err(BodyError::TooSlow { limit: time }))
}

async fn collect<B>(body: &mut B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    // Most bodies arrive in one piece, which is then not copied.
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Broken)?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + whole.len() + data.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Reads and drops the rest of a body whose request has been answered, for at most `time` and at most `bytes` of it. On HTTP/1 that rest precedes the
/// next request, and closing a connection with unread bytes would reset it before the response is read. A client that
/// waits for `100 Continue` has not sent the body, and HTTP/2 can close a stream alone.
pub(crate) fn drain(mut body: Incoming, head: &Parts, (time, bytes): (Duration, usize)) {
    if body.is_end_stream() || head.version == Version::HTTP_2 || head.headers.contains_key(EXPECT) {
        return;
    }
    tokio::spawn(timeout(time, async move {
        let mut remaining = bytes;
        while let Some(Ok(frame)) = body.frame().await {
            let len = frame.data_ref().map_or(0, Bytes::remaining);
            match remaining.checked_sub(len) {
                Some(rest) => remaining = rest,
                None => return,
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, channel::Channel};

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn body_declared_larger_than_the_limit_is_not_read() {
        let text = Bytes::from_static(b"0123456789");
        assert_eq!(read(&mut Full::new(text.clone()), 9, TIME).await, Err(BodyError::TooLarge { limit: 9 }));
        let read = read(&mut Full::new(text.clone()), 10, TIME).await.unwrap();
        assert_eq!(read.as_ptr(), text.as_ptr());
    }

    #[tokio::test]
    async fn body_pieces_are_joined_and_counted() {
        let (mut sender, mut body) = Channel::<Bytes>::new(4);
        for piece in ["01", "234", "5"] {
            sender.send_data(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        drop(sender);
        assert_eq!(read(&mut body, 6, TIME).await.unwrap(), "012345");
        let (mut sender, mut body) = Channel::<Bytes>::new(4);
        sender.send_data(Bytes::from_static(b"0123")).await.unwrap();
        sender.send_data(Bytes::from_static(b"456")).await.unwrap();
        assert_eq!(read(&mut body, 6, TIME).await, Err(BodyError::TooLarge { limit: 6 }));
    }

    #[tokio::test(start_paused = true)]
    async fn body_has_one_timeout_as_a_whole() {
        let (_sender, mut body) = Channel::<Bytes>::new(4);
        assert_eq!(read(&mut body, 6, TIME).await, Err(BodyError::TooSlow { limit: TIME }));
    }

    #[tokio::test]
    async fn broken_body_is_an_error() {
        assert_eq!(read(&mut BreaksOff, 6, TIME).await, Err(BodyError::Broken));
    }

    struct BreaksOff;

    impl Body for BreaksOff {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, &'static str>>> {
            std::task::Poll::Ready(Some(Err("reset")))
        }
    }
}
