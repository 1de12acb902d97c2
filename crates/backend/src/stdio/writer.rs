//! Writing to a process: queued messages go out together, one a line.
//!
//! Must not know: what the messages say.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use fanlight_telemetry::metrics::{BackendMetrics, Direction};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// Bytes gathered for one write at most, but for a longer message.
const GATHERED: usize = 64 << 10;

/// Writes what is queued until there is nobody left to queue anything; fails once there is nobody
/// left to read it.
pub(super) async fn write(
    mut stdin: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Bytes>,
    counters: &BackendMetrics,
) -> io::Result<()> {
    let mut gathered = BytesMut::with_capacity(4 << 10);
    while let Some(first) = queue.recv().await {
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
    use std::sync::Arc;

    use fanlight_telemetry::Metrics;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn counters() -> Arc<BackendMetrics> {
        Metrics::new(Default::default()).backend("b")
    }

    #[tokio::test]
    async fn queued_messages_go_out_together() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let (sender, queue) = mpsc::channel(8);
        for message in ["a", "bb", "ccc"] {
            sender.try_send(Bytes::from_static(message.as_bytes())).unwrap();
        }
        let big = Bytes::from(vec![b'x'; 5 * GATHERED]);
        sender.try_send(big.clone()).unwrap();
        drop(sender);
        write(ours, queue, &counters()).await.unwrap();
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).await.unwrap();
        assert!(all.starts_with(b"a\nbb\nccc\nxxx"));
        assert_eq!(all.len(), 9 + big.len() + 1);
        assert_eq!(all.last(), Some(&b'\n'));
    }

    #[tokio::test]
    async fn ends_when_nobody_reads() {
        let (ours, theirs) = tokio::io::duplex(8);
        drop(theirs);
        let (sender, queue) = mpsc::channel(8);
        sender.try_send(Bytes::from_static(b"a")).unwrap();
        assert!(write(ours, queue, &counters()).await.is_err());
        assert!(sender.is_closed());
    }
}
