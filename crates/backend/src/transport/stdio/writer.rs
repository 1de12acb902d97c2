//! Writes to a process. Queued messages are written together, one per line.

use std::future::ready;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready as poll_ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use fanlight_protocol::Revision;
use fanlight_protocol::json::on_one_line;
use fanlight_telemetry::Propagation;
use fanlight_telemetry::metrics::{BackendMetrics, Direction};
use futures_util::TryFutureExt as _;
use futures_util::future::Either;
use smallvec::SmallVec;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::request::ActiveRequest;
use crate::request::deadline::PausableDeadline;
use crate::request::server_request::ServerRequestReply;
use crate::transport::channel::{Begun, MessageWriter, SendFuture};
use fanlight_canonical::{BackendError, Pending};

/// The maximum size in bytes of messages that are written together.
const GATHERED: usize = 64 << 10;

/// A writer that counts its bytes.
pub(super) struct CountingWriter<W> {
    pub(crate) inner: W,
    pub(crate) written: u64,
}

impl<W> CountingWriter<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, written: 0 }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for CountingWriter<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = poll_ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.written += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The queue of messages for a process. A message enters it as one line: the framing allows no line
/// break inside.
pub(super) struct LineQueue(pub(super) mpsc::Sender<QueuedLine>);

/// A message that waits to be written.
pub(super) struct QueuedLine {
    text: Bytes,
    /// The deadline of the message's call.
    deadline: Option<Arc<PausableDeadline>>,
    /// The recorded exchange with the client that caused the message; 0 if none is.
    cause: u64,
}

impl From<Bytes> for QueuedLine {
    fn from(text: Bytes) -> Self {
        Self {
            text: on_one_line(&text),
            deadline: None,
            cause: 0,
        }
    }
}

impl MessageWriter for LineQueue {
    fn begin(
        &self,
        text: Bytes,
        _revision: Revision,
        of: Option<(&Propagation, &ActiveRequest<'_>)>,
        deadline: Option<&Arc<PausableDeadline>>,
    ) -> Begun<'_> {
        let line = QueuedLine {
            deadline: deadline.map(Arc::clone),
            cause: of.map_or(0, |(_, request)| request.context.trace.exchange()),
            ..text.into()
        };
        Either::Left(ready(match self.0.try_send(line) {
            Ok(()) => Ok(None),
            Err(TrySendError::Closed(_)) => Err(self.end_error()),
            Err(TrySendError::Full(line)) => {
                let queued = async move { self.0.send(line).await.map_err(|_| self.end_error()) };
                return Either::Right(Box::pin(queued.map_ok(|()| None)));
            }
        }))
    }

    fn reply(&self, reply: ServerRequestReply, _revision: Revision) -> Pending<'_, ()> {
        drop(reply.pause);
        Box::pin(async move {
            self.0
                .send(reply.text.into())
                .await
                .map_err(|_| self.end_error())
        })
    }

    fn send_detached(&self, text: Bytes, _revision: Revision) -> bool {
        self.0.try_send(text.into()).is_ok()
    }

    fn detach(&self, _sending: SendFuture) {}

    fn end_error(&self) -> BackendError {
        BackendError::Unreachable {
            reason: "its process has ended".into(),
        }
    }
}

/// Writes the order for a guard, then queued messages until all senders are gone, or `end` resolves
/// and the queue is empty. Fails if the process no longer reads. `record` gets each message and its
/// cause.
pub(super) async fn write(
    mut stdin: impl AsyncWrite + Unpin,
    order: Bytes,
    mut queue: mpsc::Receiver<QueuedLine>,
    end: impl Future<Output = ()>,
    counters: &BackendMetrics,
    record: impl Fn(&Bytes, u64),
) -> io::Result<()> {
    let mut end = pin!(end);
    stdin.write_all(&order).await?;
    drop(order);
    let mut gathered = BytesMut::with_capacity(4 << 10);
    while let Some(first) = tokio::select! {
        biased;
        first = queue.recv() => first,
        () = &mut end => None,
    } {
        let mut calls = SmallVec::<[_; 8]>::new();
        record(&first.text, first.cause);
        calls.extend(push_line(&mut gathered, first));
        while gathered.len() < GATHERED
            && let Ok(next) = queue.try_recv()
        {
            record(&next.text, next.cause);
            calls.extend(push_line(&mut gathered, next));
        }
        write_all(&mut stdin, &gathered, &calls).await?;
        stdin.flush().await?;
        counters.io(Direction::Transmit, gathered.len() as u64);
        if gathered.capacity() > 4 * GATHERED {
            gathered = BytesMut::with_capacity(4 << 10);
        }
        gathered.clear();
    }
    Ok(())
}

/// Adds a line; returns the deadline of its call.
fn push_line(out: &mut BytesMut, line: QueuedLine) -> Option<Arc<PausableDeadline>> {
    out.extend_from_slice(&line.text);
    out.put_u8(b'\n');
    line.deadline
}

/// Writes the requests of these calls. They count as sent before the process can read the first
/// byte, and as not sent if it took none.
async fn write_all(
    stdin: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    calls: &[Arc<PausableDeadline>],
) -> io::Result<()> {
    let before: SmallVec<[bool; 8]> = calls
        .iter()
        .map(|deadline| deadline.set_sent(true))
        .collect();
    let written = match stdin.write(bytes).await {
        Ok(written @ 1..) => written,
        refused => {
            calls.iter().zip(before).for_each(|(deadline, before)| {
                deadline.set_sent(before);
            });
            return refused.and(Err(io::ErrorKind::WriteZero.into()));
        }
    };
    stdin
        .write_all(bytes.get(written..).unwrap_or_default())
        .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use fanlight_telemetry::Metrics;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn counters() -> Arc<BackendMetrics> {
        Metrics::new(Default::default()).backend("b")
    }

    #[tokio::test]
    async fn queued_messages_are_written_together() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let (sender, queue) = mpsc::channel(8);
        for message in ["a", "bb", "ccc"] {
            sender
                .try_send(Bytes::from_static(message.as_bytes()).into())
                .unwrap();
        }
        let big = Bytes::from(vec![b'x'; 5 * GATHERED]);
        sender.try_send(big.clone().into()).unwrap();
        drop(sender);
        write(ours, Bytes::new(), queue, pending(), &counters(), |_, _| ())
            .await
            .unwrap();
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).await.unwrap();
        assert!(all.starts_with(b"a\nbb\nccc\nxxx"));
        assert_eq!(all.len(), 9 + big.len() + 1);
        assert_eq!(all.last(), Some(&b'\n'));
    }

    #[tokio::test]
    async fn writing_fails_once_the_process_stops_reading() {
        let (ours, theirs) = tokio::io::duplex(8);
        drop(theirs);
        let (sender, queue) = mpsc::channel(8);
        let calls: Vec<Arc<PausableDeadline>> = (0..3).map(|_| Arc::default()).collect();
        for deadline in &calls {
            let deadline = Some(Arc::clone(deadline));
            sender
                .try_send(QueuedLine {
                    text: Bytes::from_static(b"a"),
                    deadline,
                    cause: 0,
                })
                .unwrap();
        }
        assert!(
            write(ours, Bytes::new(), queue, pending(), &counters(), |_, _| ())
                .await
                .is_err()
        );
        assert!(sender.is_closed());
        assert!(
            calls.iter().all(|deadline| !deadline.is_sent()),
            "nothing was taken"
        );
    }

    #[tokio::test]
    async fn request_counts_as_sent_once_a_byte_of_it_may_have_been_taken() {
        let (ours, theirs) = tokio::io::duplex(1);
        let (sender, queue) = mpsc::channel(8);
        let deadline = Arc::<PausableDeadline>::default();
        let line = QueuedLine {
            text: Bytes::from_static(b"abc"),
            deadline: Some(Arc::clone(&deadline)),
            cause: 0,
        };
        sender.try_send(line).unwrap();
        let counters = counters();
        let mut writing = pin!(write(
            ours,
            Bytes::new(),
            queue,
            pending(),
            &counters,
            |_, _| ()
        ));
        assert!(!deadline.is_sent());
        assert!(futures_util::FutureExt::now_or_never(writing.as_mut()).is_none());
        drop(theirs);
        assert!(writing.await.is_err());
        assert!(deadline.is_sent());
    }
}
