//! Reads request bodies within limits of size and time, or discards them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use fanlight_canonical::Peer;
use fanlight_fair::Spent;
use http::header::EXPECT;
use http::request::Parts;
use http::{StatusCode, Version};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::activity::ActiveRequest;
use super::reply::Refusal;
use crate::settings::{
    ByteBudget, FrontendSettings, NO_MEMORY, RefusedBody, Reservation, UNCOUNTED,
};

/// The reason why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// The body exceeds the size limit.
    #[error("the request body is larger than {limit} bytes, the limit here")]
    TooLarge {
        /// The limit that applied.
        limit: usize,
    },
    /// The body arrived too slowly.
    #[error("the request body did not arrive within {limit:?}")]
    TooSlow {
        /// The limit that applied.
        limit: Duration,
    },
    /// No memory is left for requests.
    #[error("{NO_MEMORY}")]
    NoMemory,
    /// The connection broke, or the transfer coding is malformed.
    #[error("the request body broke off")]
    Broken,
}

impl From<Spent> for BodyError {
    fn from(_: Spent) -> Self {
        Self::NoMemory
    }
}

impl From<BodyError> for Box<Refusal> {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::NoMemory => return Refusal::busy(NO_MEMORY),
            BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            BodyError::Broken => StatusCode::BAD_REQUEST,
        };
        Refusal::invalid(status, error.to_string())
    }
}

#[derive(Clone, Copy)]
pub(crate) struct BodyLimits<'a> {
    bytes: usize,
    time: Duration,
    /// The memory budget. It counts the bytes from their arrival until the last part of the text is
    /// dropped.
    memory: &'a ByteBudget,
    /// The sender, whose share of the memory the body uses.
    peer: &'a Peer,
    /// The request that has the body.
    request: &'a ActiveRequest,
}

impl<'a> BodyLimits<'a> {
    /// The limits of a body from `peer`.
    pub(crate) fn new(
        settings: &'a FrontendSettings,
        peer: &'a Peer,
        request: &'a ActiveRequest,
    ) -> Self {
        Self {
            bytes: settings.max_body,
            time: settings.body_timeout,
            memory: &settings.request_memory,
            peer,
            request,
        }
    }

    /// The same text, counted until its last part is dropped, unless it is small.
    fn count(&self, text: Bytes) -> Result<Bytes, Spent> {
        if text.len() <= UNCOUNTED {
            return Ok(text);
        }
        Ok(self.memory.reserve(self.peer, text.len())?.hold(text))
    }
}

/// Reads a body within its limits.
pub(crate) async fn read<B>(body: &mut B, limits: BodyLimits<'_>) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limits.bytes as u64 {
        return Err(BodyError::TooLarge {
            limit: limits.bytes,
        });
    }
    let mut collecting = pin!(timeout(limits.time, collect(body, limits)));
    let collected = match poll_fn(|cx| Poll::Ready(collecting.as_mut().poll(cx))).await {
        Poll::Ready(collected) => collected,
        Poll::Pending => {
            let _receiving = limits.request.receive();
            collecting.await
        }
    };
    collected.unwrap_or(Err(BodyError::TooSlow { limit: limits.time }))
}

/// The beginning of a refused request's body: at most `limit` bytes that arrive within `time`.
pub(crate) async fn beginning<B>(
    body: &mut B,
    limit: usize,
    time: Duration,
    request: &ActiveRequest,
) -> Vec<u8>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut text = Vec::new();
    let _receiving = request.receive();
    let reading = async {
        while text.len() < limit
            && let Ok(Some(data)) = data(body).await
        {
            text.extend(data.iter().take(limit - text.len()));
        }
    };
    // Bytes that arrived before the deadline count.
    let _ = timeout(time, reading).await;
    text
}

async fn collect<B>(body: &mut B, limits: BodyLimits<'_>) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    // Most bodies arrive in one piece, which is not copied.
    let mut first = Bytes::new();
    while first.is_empty() {
        match data(body).await? {
            Some(data) => first = data,
            None => return Ok(first),
        }
    }
    if first.len() > limits.bytes {
        return Err(BodyError::TooLarge {
            limit: limits.bytes,
        });
    }
    if body.is_end_stream() {
        return Ok(limits.count(first)?);
    }
    let mut text = Collected::default();
    let mut next = Some(first);
    while let Some(data) = next {
        text.extend(&data, body.size_hint().upper(), limits)?;
        next = self::data(body).await?;
    }
    Ok(text.finish())
}

/// The next piece of data; `None` at the end of the body.
async fn data<B>(body: &mut B) -> Result<Option<Bytes>, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Joins the pieces of a body.
#[derive(Default)]
struct Collected {
    text: Vec<u8>,
    /// The memory for the capacity of `text`, once that exceeds the uncounted size.
    reservation: Option<Reservation>,
}

impl Collected {
    /// Appends a piece. `rest` is the announced length of the remaining body, if known.
    fn extend(
        &mut self,
        data: &[u8],
        rest: Option<u64>,
        limits: BodyLimits<'_>,
    ) -> Result<(), BodyError> {
        let len = self.text.len() + data.len();
        if len > limits.bytes {
            return Err(BodyError::TooLarge {
                limit: limits.bytes,
            });
        }
        if len > self.text.capacity() {
            // Do not allocate the announced length at once: the sender may send nothing of it.
            let whole = rest
                .and_then(|rest| usize::try_from(rest).ok())
                .and_then(|rest| len.checked_add(rest));
            let doubled = (2 * self.text.capacity()).max(len);
            let capacity = doubled.min(whole.unwrap_or(usize::MAX)).min(limits.bytes);
            self.count(capacity, limits)?;
            self.text.reserve_exact(capacity - self.text.len());
        }
        self.text.extend_from_slice(data);
        Ok(())
    }

    fn count(&mut self, capacity: usize, limits: BodyLimits<'_>) -> Result<(), Spent> {
        match &mut self.reservation {
            Some(reservation) => reservation.resize(capacity),
            None if capacity <= UNCOUNTED => Ok(()),
            reservation @ None => {
                *reservation = Some(limits.memory.reserve(limits.peer, capacity)?);
                Ok(())
            }
        }
    }

    fn finish(self) -> Bytes {
        let text = Bytes::from(self.text);
        match self.reservation {
            Some(reservation) => reservation.hold(text),
            None => text,
        }
    }
}

/// Reads and discards the rest of an answered request's body, within `limits`.
///
/// On HTTP/1 that rest precedes the next request. Closing a connection with unread bytes would
/// reset it before the client reads the response. There is nothing to read if the client waits for
/// `100 Continue`, or on HTTP/2, which can close a single stream.
pub(crate) fn drain(mut body: Incoming, head: &Parts, limits: RefusedBody) {
    if body.is_end_stream() || head.version == Version::HTTP_2 || head.headers.contains_key(EXPECT)
    {
        return;
    }
    tokio::spawn(timeout(limits.time, async move {
        let mut remaining = limits.bytes;
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

    use super::super::activity::Activity;
    use super::*;
    use crate::http::limits::ConnectionLimits;
    use crate::settings::byte_budget;
    use tokio_util::sync::CancellationToken;

    const TIME: Duration = Duration::from_secs(30);

    fn request() -> ActiveRequest {
        let limits = ConnectionLimits::from(&FrontendSettings::default());
        Activity::new(&limits, CancellationToken::new(), CancellationToken::new())
            .begin_request(false)
    }

    async fn read<B: Body<Data = Bytes> + Unpin>(
        body: &mut B,
        bytes: usize,
        time: Duration,
    ) -> Result<Bytes, BodyError> {
        let memory = &byte_budget(1 << 20);
        super::read(
            body,
            BodyLimits {
                bytes,
                time,
                memory,
                peer: &Peer::Local,
                request: &request(),
            },
        )
        .await
    }

    #[tokio::test]
    async fn body_declared_larger_than_the_limit_is_not_read() {
        let text = Bytes::from_static(b"0123456789");
        assert_eq!(
            read(&mut Full::new(text.clone()), 9, TIME).await,
            Err(BodyError::TooLarge { limit: 9 })
        );
        let read = read(&mut Full::new(text.clone()), 10, TIME).await.unwrap();
        assert_eq!(read.as_ptr(), text.as_ptr());
    }

    #[tokio::test]
    async fn body_pieces_are_joined_and_counted() {
        let (mut sender, mut body) = Channel::<Bytes>::new(4);
        for piece in ["01", "234", "5"] {
            sender
                .send_data(Bytes::from_static(piece.as_bytes()))
                .await
                .unwrap();
        }
        drop(sender);
        assert_eq!(read(&mut body, 6, TIME).await.unwrap(), "012345");
        let (mut sender, mut body) = Channel::<Bytes>::new(4);
        sender.send_data(Bytes::from_static(b"0123")).await.unwrap();
        sender.send_data(Bytes::from_static(b"456")).await.unwrap();
        assert_eq!(
            read(&mut body, 6, TIME).await,
            Err(BodyError::TooLarge { limit: 6 })
        );
    }

    #[tokio::test]
    async fn body_that_has_not_ended_counts_as_far_as_it_has_arrived() {
        const PIECE: usize = 16 << 10;
        let memory = byte_budget(10 * PIECE);
        let request = &request();
        let limits = BodyLimits {
            bytes: 1 << 20,
            time: TIME,
            memory: &memory,
            peer: &Peer::Local,
            request,
        };
        let mut senders = Vec::new();
        let mut outcomes = Vec::new();
        for _ in 0..20 {
            let (mut sender, mut body) = Channel::<Bytes>::new(4);
            sender
                .send_data(Bytes::from(vec![b' '; PIECE]))
                .await
                .unwrap();
            senders.push(sender);
            let mut reading = Box::pin(async move { super::read(&mut body, limits).await });
            match poll_once(reading.as_mut()) {
                None => outcomes.push(reading),
                Some(outcome) => assert_eq!(outcome, Err(BodyError::NoMemory)),
            }
        }
        assert_eq!(outcomes.len(), 5, "half of all is the most for one peer");
        outcomes.clear();
        let text = super::read(&mut Full::new(Bytes::from(vec![b' '; 6 * PIECE])), limits)
            .await
            .unwrap();
        assert!(
            super::read(&mut Full::new(Bytes::from(vec![b' '; 6 * PIECE])), limits)
                .await
                .is_err()
        );
        drop(text);
        assert!(
            super::read(&mut Full::new(Bytes::from(vec![b' '; 6 * PIECE])), limits)
                .await
                .is_ok()
        );
    }

    fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_has_one_timeout_as_a_whole() {
        let (_sender, mut body) = Channel::<Bytes>::new(4);
        assert_eq!(
            read(&mut body, 6, TIME).await,
            Err(BodyError::TooSlow { limit: TIME })
        );
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
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, &'static str>>> {
            Poll::Ready(Some(Err("reset")))
        }
    }

    #[test]
    fn text_is_counted_until_its_last_part_is_dropped() {
        let (memory, request) = (byte_budget(64 << 10), request());
        let limits = BodyLimits {
            bytes: 1 << 20,
            time: TIME,
            memory: &memory,
            peer: &Peer::Local,
            request: &request,
        };
        let small = limits.count(Bytes::from(vec![0; UNCOUNTED])).unwrap();
        assert_eq!((small.len(), memory.held()), (UNCOUNTED, 0));
        let text = limits.count(Bytes::from(vec![1; 10_000])).unwrap();
        let part = text.slice(9_999..);
        drop(text);
        assert_eq!(memory.held(), 10_000);
        drop(part);
        assert_eq!(memory.held(), 0);
    }
}
