//! The accept loop of a listener.

use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limit::{ConcurrencyLimit, Permit};

/// The pause after an error that concerns the listener.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Limits of a listener.
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
pub async fn accept_and_spawn<F>(
    listener: TcpListener,
    limits: AcceptLimits,
    shutdown: CancellationToken,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    let spawn = |stream, permit| {
        let (serving, abort) = (serve(stream), abort.clone());
        connections.spawn(async move {
            abort.run_until_cancelled(serving).await;
            drop(permit);
        });
    };
    accept(listener, limits.connections, limits.name, &shutdown, spawn).await;
    connections.close();
    if timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::debug!(connections = connections.len(), "connections dropped: not ended within the drain time");
        abort.cancel();
        connections.wait().await;
    }
}

/// Accepts connections and hands each to `begin`, until `shutdown` is cancelled; then the socket is closed. There are
/// at most `limit` connections whose permit has not been dropped, and `name` is how the log calls that limit.
pub async fn accept(
    listener: TcpListener,
    limit: usize,
    name: &'static str,
    shutdown: &CancellationToken,
    mut begin: impl FnMut(TcpStream, Permit),
) {
    let limit = ConcurrencyLimit::new(limit);
    let accepting = async {
        while let Some(permit) = permit(&limit, name).await {
            begin(next(&listener).await, permit);
        }
    };
    shutdown.run_until_cancelled(accepting).await;
}

async fn permit(limit: &ConcurrencyLimit, name: &'static str) -> Option<Permit> {
    if let Some(permit) = limit.try_acquire() {
        return Some(permit);
    }
    if limit.is_warning_due() {
        tracing::warn!(limit = limit.most(), "{name} connections are open; further ones wait");
    }
    limit.acquire().await
}

/// The next connection.
///
/// An error of one connection that ended before it was accepted concerns no other. Any other error is about the
/// process, most often that it has no file descriptors left: accepting again at once would spin, and giving up would
/// turn a shortage into an outage, so the loop pauses while connections close.
async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
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
        let accepting = tokio::spawn(accept_and_spawn(listener, limits(1), shutdown.clone(), move |mut stream| {
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
        let accepting = tokio::spawn(accept_and_spawn(listener, limits(9), shutdown.clone(), serve));
        let mut client = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        accepting.await.unwrap();
        assert!(client.read_u8().await.is_err());
    }
}
