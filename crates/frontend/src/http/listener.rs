//! The listener for clients. It accepts connections within limits, assigns each to a thread, and
//! drains them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_http::{
    AcceptedTogether, Admission, ClientStream, Endable, Ends, LiveTls, SocketReceiver, Usage,
    accept,
};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::connection::{HttpConnection, Serve};
use super::limits::LiveLimits;
use crate::settings::{FrontendSettings, LAST_ANSWERS};

/// The interval of [`Serve::clean_up`]. The timeouts that it checks are as inaccurate as this. A
/// constant, since it is much shorter than any of them.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(10);

/// Serves until `ends.shutdown`, and then lets requests finish for as long as `drain` says. After
/// that the core answers the rest with errors, and `ends.cut` ends what is left.
pub(crate) async fn serve<S: Serve>(
    sockets: SocketReceiver,
    tls: LiveTls,
    limits: &LiveLimits,
    endpoint: Arc<S>,
    settings: &Arc<FrontendSettings>,
    drain: impl Fn() -> Duration,
    ends: Ends<'_>,
) {
    let workers = Workers::new(&settings.workers);
    let begin = |stream: ClientStream, admission: Admission, together: &AcceptedTogether| {
        let (cut, limits) = (together.cut.child_token(), limits.connection_limits());
        let activity = Activity::new(&limits, together.shutdown.clone(), cut.clone());
        let open = OpenConnection {
            activity: Arc::clone(&activity),
            cut: cut.clone(),
        };
        let admitted = admission.enter(Arc::new(open));
        let connection = HttpConnection {
            endpoint: Arc::clone(&endpoint),
            limits,
            activity,
            cut,
        };
        let Ok(stream) = DetachedStream::new(stream) else {
            return;
        };
        let tls = tls.load();
        let (runtime, assignment) = workers.assign();
        let serving = connection.serve_attached(|| stream.attach(), tls, (admitted, assignment));
        together.tasks.spawn_on(serving, runtime);
    };
    let remaining = tokio::select! {
        biased;
        never = clean_up_periodically(&*endpoint) => match never {},
        remaining = accept(sockets, &limits.admissions, ends, &drain, begin) => remaining,
    };
    endpoint.drain();
    let finished = async || {
        remaining.ended().await;
        endpoint.finished().await;
    };
    if timeout(drain(), finished()).await.is_err() {
        tracing::warn!(
            connections = remaining.len(),
            "ending requests that did not finish in time"
        );
        settings.give_up.cancel();
        // Disconnect clients that do not even read these errors.
        let _ = timeout(LAST_ANSWERS, finished()).await;
    }
    ends.cut.cancel();
    remaining.ended().await;
    endpoint.finished().await;
}

/// A connection on its way to another runtime. A socket belongs to the runtime that opened it.
enum DetachedStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl DetachedStream {
    fn new(stream: ClientStream) -> io::Result<Self> {
        match stream {
            ClientStream::Tcp(stream) => stream.into_std().map(Self::Tcp),
            ClientStream::Unix(stream) => stream.into_std().map(Self::Unix),
        }
    }

    /// Attaches the connection to the current runtime.
    fn attach(self) -> io::Result<ClientStream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(ClientStream::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(ClientStream::Unix),
        }
    }
}

/// An open connection, which may be ended to make room for another.
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

async fn clean_up_periodically(endpoint: &impl Serve) -> std::convert::Infallible {
    let mut ticks = interval(CLEAN_UP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        endpoint.clean_up();
    }
}

/// The threads that serve connections.
struct Workers {
    /// The worker on which the listener runs.
    own: Worker,
    others: Vec<Worker>,
}

struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's assignment to a worker, until dropped.
struct Assignment(Arc<AtomicUsize>);

impl Workers {
    /// Uses the current runtime and `others`.
    fn new(others: &[Handle]) -> Self {
        let worker = |runtime| Worker {
            runtime,
            connections: Arc::default(),
        };
        Self {
            own: worker(Handle::current()),
            others: others.iter().cloned().map(worker).collect(),
        }
    }

    /// Assigns a connection to the worker with the fewest; returns the worker's runtime.
    fn assign(&self) -> (&Handle, Assignment) {
        let load = |worker: &&Worker| worker.connections.load(Ordering::Relaxed);
        let least = self
            .others
            .iter()
            .min_by_key(load)
            .filter(|other| load(other) < load(&&self.own));
        let worker = least.unwrap_or(&self.own);
        worker.connections.fetch_add(1, Ordering::Relaxed);
        (&worker.runtime, Assignment(Arc::clone(&worker.connections)))
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_assigned_to_the_worker_with_the_fewest() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
        };
        let (own, first, second) = (runtime(), runtime(), runtime());
        let _entered = own.enter();
        let workers = Workers::new(&[first.handle().clone(), second.handle().clone()]);
        let assigned: Vec<_> = (0..4)
            .map(|_| workers.assign())
            .map(|(runtime, assignment)| (runtime.id(), assignment))
            .collect();
        let ids: Vec<_> = assigned.iter().map(|(id, _)| *id).collect();
        assert_eq!(
            ids,
            [
                own.handle().id(),
                first.handle().id(),
                second.handle().id(),
                own.handle().id()
            ]
        );
        let (_, gone) = assigned.into_iter().nth(2).unwrap();
        drop(gone);
        assert_eq!(
            workers.assign().0.id(),
            own.handle().id(),
            "of workers with equally many, the listener's own comes first"
        );
    }
}
