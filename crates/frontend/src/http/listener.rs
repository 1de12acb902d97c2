//! The listener for clients: accepts connections within limits, puts each on a thread, and drains them.

use std::sync::Arc;
use std::time::Duration;

use fanlight_http_edge::{AcceptLimits, Admission, Endable, Usage, accept};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::connection::Connection;
use super::serve::Serve;
use super::workers::Workers;
use crate::error::FrontendError;
use crate::settings::FrontendSettings;

/// How often [`Serve::clean_up`] is called. No option: time-outs are accurate to this, which is much less than any of
/// them.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(10);

/// Serves until `shutdown`, then lets requests finish for [`FrontendSettings::drain`], then has the core answer the rest
/// with errors, and cancels `cut`, which ends all that is left.
pub(crate) async fn serve<S: Serve>(
    listener: TcpListener,
    endpoint: Arc<S>,
    settings: &Arc<FrontendSettings>,
    shutdown: CancellationToken,
    cut: CancellationToken,
) -> Result<(), FrontendError> {
    let address = listener.local_addr().map_err(FrontendError::Listener)?;
    let workers = Workers::new(&settings.workers);
    let connections = TaskTracker::new();
    let begin = |stream: TcpStream, admission: Admission| {
        let (cut, activity) = (
            cut.child_token(),
            Activity::new(
                settings.header_timeout,
                settings.idle_connection,
                (settings.write_timeout, settings.write_rate),
            ),
        );
        let open = OpenConnection { activity: Arc::clone(&activity), cut: cut.clone() };
        let admitted = admission.enter(Arc::new(open));
        let connection = Connection {
            endpoint: Arc::clone(&endpoint),
            settings: Arc::clone(settings),
            activity,
            shutdown: shutdown.clone(),
            cut,
        };
        // A socket belongs to the runtime that it was opened on.
        let Ok(stream) = stream.into_std() else { return };
        let (runtime, assignment) = workers.assign();
        let serving = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => connection.serve(stream).await,
                Err(error) => tracing::warn!(%error, "cannot serve a client connection"),
            }
            drop((admitted, assignment));
        };
        connections.spawn_on(serving, runtime);
    };
    let limits = AcceptLimits {
        connections: settings.max_connections,
        waiting: settings.max_waiting_connections,
        longest_wait: settings.idle_connection,
        reserve: 0,
        per_peer: settings.max_peer_connections,
        name: "limits.connections client",
    };
    tracing::debug!(%address, "listening");
    tokio::select! {
        biased;
        () = clean_up_periodically(&*endpoint) => {}
        () = accept(listener, limits, &shutdown, begin) => {}
    }
    endpoint.drain();
    connections.close();
    let finished = async || {
        connections.wait().await;
        endpoint.finished().await;
    };
    if timeout(settings.drain, finished()).await.is_err() {
        tracing::warn!(connections = connections.len(), "ending requests that did not finish in time");
        settings.give_up.cancel();
        // Clients that do not take even these errors are disconnected.
        let _ = timeout(settings.last_answers, finished()).await;
    }
    cut.cancel();
    connections.wait().await;
    endpoint.finished().await;
    Ok(())
}

/// An open connection, which may end for another.
struct OpenConnection {
    activity: Arc<Activity>,
    cut: CancellationToken,
}

impl Endable for OpenConnection {
    fn usage(&self) -> Option<Usage> {
        (!self.cut.is_cancelled()).then(|| self.activity.usage())
    }

    fn end(&self) {
        self.cut.cancel();
    }
}

async fn clean_up_periodically(endpoint: &impl Serve) {
    let mut ticks = interval(CLEAN_UP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        endpoint.clean_up();
    }
}
