//! Accepting connections and serving HTTP/1.1 on them within limits.
//!
//! Must not know: what is served.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::router::Router;
use crate::settings::AdminSettings;

/// How long accepting rests after an error, which most often is a want of file descriptors.
const ACCEPT_REST: Duration = Duration::from_secs(1);
/// How long what is being answered has to end at shutdown.
const GRACE: Duration = Duration::from_secs(1);
/// The smallest head limit that the HTTP library takes.
const MIN_HEADER: usize = 8 << 10;

/// Serves until `shutdown`.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Arc<Router>,
    settings: &Arc<AdminSettings>,
    shutdown: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(settings.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let accept = async {
        loop {
            // The semaphore is never closed, so there always is a slot in the end.
            let slot = Arc::clone(&slots).acquire_owned().await.ok();
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the admin listener cannot accept connections");
                    sleep(ACCEPT_REST).await;
                    continue;
                }
            };
            let connection = connection(stream, Arc::clone(&router), Arc::clone(settings), shutdown.clone());
            let cut = cut.clone();
            connections.spawn(async move {
                cut.run_until_cancelled(connection).await;
                drop(slot);
            });
        }
    };
    shutdown.run_until_cancelled(accept).await;
    connections.close();
    if timeout(GRACE, connections.wait()).await.is_err() {
        cut.cancel();
        connections.wait().await;
    }
}

async fn connection(stream: TcpStream, router: Arc<Router>, settings: Arc<AdminSettings>, shutdown: CancellationToken) {
    // Answers are small and complete; waiting to fill a segment only delays them.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(settings.write_timeout));
    let service = service_fn(|request: Request<Incoming>| {
        let router = Arc::clone(&router);
        async move { Ok::<_, Infallible>(router.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        .max_buf_size(settings.max_header.max(MIN_HEADER))
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the admin listener broke");
    }
}
