//! Writing to a process: queued messages are written together, one on each line.

use std::future::ready;
use std::io;
use std::pin::pin;

use bytes::{BufMut as _, Bytes, BytesMut};
use fanlight_protocol::Revision;
use fanlight_protocol::json::on_one_line;
use fanlight_telemetry::Propagation;
use fanlight_telemetry::metrics::{BackendMetrics, Direction};
use futures_util::TryFutureExt as _;
use futures_util::future::Either;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::request::server_request::ServerRequestReply;
use crate::transport::channel::{Begun, MessageWriter, SendFuture};
use fanlight_canonical::{BackendError, Pending};

/// Bytes of several messages in one write.
const GATHERED: usize = 64 << 10;

/// The queue of messages for a process. A message goes into it as one line: the framing allows no line break within.
pub(super) struct LineQueue(pub(super) mpsc::Sender<Bytes>);

impl MessageWriter for LineQueue {
    fn begin(&self, text: Bytes, _revision: Option<Revision>, _propagation: Option<&Propagation>) -> Begun<'_> {
        Either::Left(ready(match self.0.try_send(on_one_line(&text)) {
            Ok(()) => Ok(None),
            Err(TrySendError::Closed(_)) => Err(self.ended()),
            Err(TrySendError::Full(line)) => {
                let queued = async move { self.0.send(line).await.map_err(|_| self.ended()) };
                return Either::Right(Box::pin(queued.map_ok(|()| None)));
            }
        }))
    }

    fn reply(&self, reply: ServerRequestReply, _revision: Option<Revision>) -> Pending<'_, ()> {
        drop(reply.pause);
        Box::pin(async move { self.0.send(on_one_line(&reply.text)).await.map_err(|_| self.ended()) })
    }

    fn send_detached(&self, text: Bytes, _revision: Option<Revision>) -> bool {
        self.0.try_send(on_one_line(&text)).is_ok()
    }

    fn detach(&self, _sending: SendFuture) {}

    fn ended(&self) -> BackendError {
        BackendError::Unreachable { reason: "its process has ended".into() }
    }
}

/// Writes the order for a guard, then queued messages until all senders are gone, or `end` resolves and the queue is empty.
/// Fails if the process no longer reads.
pub(super) async fn write(
    mut stdin: impl AsyncWrite + Unpin,
    order: Bytes,
    mut queue: mpsc::Receiver<Bytes>,
    end: impl Future<Output = ()>,
    counters: &BackendMetrics,
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
        push_line(&mut gathered, &first);
        while gathered.len() < GATHERED
            && let Ok(next) = queue.try_recv()
        {
            push_line(&mut gathered, &next);
        }
        stdin.write_all(&gathered).await?;
        stdin.flush().await?;
        counters.io(Direction::Transmit, gathered.len() as u64);
        if gathered.capacity() > 4 * GATHERED {
            gathered = BytesMut::with_capacity(4 << 10);
        }
        gathered.clear();
    }
    Ok(())
}

fn push_line(out: &mut BytesMut, message: &Bytes) {
    out.extend_from_slice(message);
    out.put_u8(b'\n');
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

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
            sender.try_send(Bytes::from_static(message.as_bytes())).unwrap();
        }
        let big = Bytes::from(vec![b'x'; 5 * GATHERED]);
        sender.try_send(big.clone()).unwrap();
        drop(sender);
        write(ours, Bytes::new(), queue, pending(), &counters()).await.unwrap();
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
        sender.try_send(Bytes::from_static(b"a")).unwrap();
        assert!(write(ours, Bytes::new(), queue, pending(), &counters()).await.is_err());
        assert!(sender.is_closed());
    }
}
