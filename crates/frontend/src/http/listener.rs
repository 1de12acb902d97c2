//! Accepting connections within limits, and draining them.
//!
//! Must not know: what is served.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Addresses, Connection};
use super::reply::ReplyBody;
use super::slots::{Slot, Slots};
use super::workers::Workers;
use crate::error::FrontendError;
use crate::settings::FrontendSettings;

/// How often an endpoint's upkeep runs.
const UPKEEP: Duration = Duration::from_secs(10);
/// How long accepting rests after an error that concerns the listener.
const ACCEPT_REST: Duration = Duration::from_secs(1);

/// What answers the requests of a listener.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request, which arrived on a connection with these addresses. The future is dropped when the
    /// connection ends.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        addresses: Addresses,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// Called now and then.
    fn upkeep(&self) {}

    /// Called once no more connections are accepted: what would last as long as its client likes is
    /// to end.
    fn drain(&self) {}

    /// Waits for work that has outlived its connection.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Serves until `shutdown`, then lets requests finish for as long as the settings say, then
/// cancels `cut`, on which everything still there must end.
pub(crate) async fn serve<S: Serve>(
    listener: TcpListener,
    endpoint: Arc<S>,
    settings: &Arc<FrontendSettings>,
    shutdown: CancellationToken,
    cut: CancellationToken,
) -> Result<(), FrontendError> {
    let address = listener.local_addr().map_err(FrontendError::Listener)?;
    let slots = Slots::for_connections(settings);
    let workers = Workers::new(&settings.workers);
    let connections = TaskTracker::new();
    let mut upkeep = interval(UPKEEP);
    upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::debug!(%address, "listening");
    loop {
        let (stream, slot) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            _ = upkeep.tick() => {
                endpoint.upkeep();
                continue;
            }
            accepted = accept(&listener, &slots) => accepted,
        };
        let connection = Connection {
            endpoint: Arc::clone(&endpoint),
            settings: Arc::clone(settings),
            shutdown: shutdown.clone(),
            cut: cut.clone(),
        };
        // A socket belongs to the runtime that it was opened on.
        let Ok(stream) = stream.into_std() else { continue };
        let (runtime, place) = workers.place();
        let serving = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => connection.serve(stream).await,
                Err(error) => tracing::warn!(%error, "cannot serve a client connection"),
            }
            drop((slot, place));
        };
        connections.spawn_on(serving, runtime);
    }
    drop(listener);
    endpoint.drain();
    let deadline = Instant::now() + settings.drain;
    connections.close();
    let drained = timeout_at(deadline, async {
        connections.wait().await;
        endpoint.finished().await;
    });
    if drained.await.is_err() {
        tracing::warn!(connections = connections.len(), "closing connections that did not finish in time");
    }
    cut.cancel();
    connections.wait().await;
    endpoint.finished().await;
    Ok(())
}

/// The next connection, once there is room for it.
///
/// An error of one connection that ended before it was accepted concerns nobody else. Any other
/// error is about the process, most often that it has no file descriptors left: accepting again at
/// once would spin, and giving up would turn a shortage into an outage, so it rests for a moment
/// while connections close.
async fn accept(listener: &TcpListener, slots: &Slots) -> (TcpStream, Option<Slot>) {
    let slot = match slots.try_enter() {
        Some(slot) => Some(slot),
        None => {
            if slots.is_to_warn() {
                let limit = slots.limit();
                tracing::warn!(limit, "limits.connections client connections are open; further ones wait");
            }
            slots.enter().await
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) if concerns_one_connection(&error) => {
                tracing::debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
