//! The accept loop of a listener.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The pause after an error that concerns the listener.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// How often the log reports that the connection limit is reached: clients can cause that at will.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of an accept loop.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Most open connections; further ones wait in the backlog of the socket.
    pub connections: usize,
    /// The name of that limit, for the log.
    pub name: &'static str,
    /// How long connections may take to end after `shutdown`.
    pub drain: Duration,
}

/// Accepts connections and spawns `serve` for each, until `shutdown` is cancelled. Then the socket is closed, and
/// connections have [`AcceptLimits::drain`] to end before they are dropped. `serve` is expected to end its connection
/// gracefully on `shutdown` too.
pub async fn accept<F>(
    listener: TcpListener,
    limits: AcceptLimits,
    shutdown: CancellationToken,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let slots = Slots::new(limits);
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    let accepting = async {
        loop {
            let (stream, permit) = next(&listener, &slots).await;
            let (serving, abort) = (serve(stream), abort.clone());
            connections.spawn(async move {
                abort.run_until_cancelled(serving).await;
                drop(permit);
            });
        }
    };
    shutdown.run_until_cancelled(accepting).await;
    drop(listener);
    connections.close();
    if timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::debug!(connections = connections.len(), "connections dropped: not ended within the drain time");
        abort.cancel();
        connections.wait().await;
    }
}

/// The next connection, once the limit allows one.
///
/// An error of one connection that ended before it was accepted concerns no other. Any other error is about the
/// process, most often that it has no file descriptors left: accepting again at once would spin, and giving up would
/// turn a shortage into an outage, so the loop pauses while connections close.
async fn next(listener: &TcpListener, slots: &Slots) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    let permit = slots.acquire().await;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) if concerns_one_connection(&error) => {
                tracing::debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// A permit for each connection that may be open.
struct Slots {
    free: Arc<Semaphore>,
    limits: AcceptLimits,
    warned: Mutex<Option<Instant>>,
}

impl Slots {
    fn new(limits: AcceptLimits) -> Self {
        let free = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        Self { free, limits, warned: Mutex::default() }
    }

    /// The semaphore is never closed, so this always ends with a permit.
    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(permit);
        }
        if self.is_warning_due() {
            let AcceptLimits { connections, name, .. } = self.limits;
            tracing::warn!(limit = connections, "{name} connections are open; further ones wait");
        }
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    fn is_warning_due(&self) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned.is_none_or(|last| last.elapsed() >= WARN_INTERVAL);
        if is_due {
            *warned = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::sync::mpsc;

    use super::*;

    async fn listening() -> (TcpListener, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn limits(connections: usize) -> AcceptLimits {
        AcceptLimits { connections, name: "limits.test", drain: Duration::ZERO }
    }

    #[tokio::test]
    async fn connection_limit_delays_further_connections() {
        let (listener, address) = listening().await;
        let (opened, mut connections) = mpsc::unbounded_channel();
        let shutdown = CancellationToken::new();
        let accepting = tokio::spawn(accept(listener, limits(1), shutdown.clone(), move |mut stream| {
            let opened = opened.clone();
            async move {
                let _ = opened.send(());
                // Ends with the client.
                let _ = stream.read_u8().await;
            }
        }));
        let first = TcpStream::connect(address).await.unwrap();
        connections.recv().await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        assert!(connections.try_recv().is_err());
        drop(first);
        connections.recv().await.unwrap();
        shutdown.cancel();
        accepting.await.unwrap();
    }

    #[tokio::test]
    async fn shutdown_drops_connections_after_the_drain_time() {
        let (listener, address) = listening().await;
        let shutdown = CancellationToken::new();
        let serve = |stream: TcpStream| async move {
            let _open = stream;
            std::future::pending::<()>().await;
        };
        let accepting = tokio::spawn(accept(listener, limits(9), shutdown.clone(), serve));
        let mut client = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        accepting.await.unwrap();
        assert!(client.read_u8().await.is_err());
    }
}
