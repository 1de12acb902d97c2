//! A backend as the core sees it: one request's way through it, and its life.
//!
//! A request takes a place, then a connection, then is exchanged under the call's deadline. All of
//! it is [`Backend::answer`].
//!
//! Must not know: eras, transports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Response, Revision};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{BackendClient, BackendState, BackendStatus, Call, Pending};
use crate::connection::{Connection, Failure};
use crate::error::BackendError;
use crate::exchange::LinkContext;
use crate::http::HttpEndpoint;
use crate::settings::{BackendSettings, Timeouts, TransportSettings};
use crate::stdio::ProcessSettings;
use crate::supervisor::{Phase, State, Supervisor, Target};

/// Longest wait for everything to end: a process has two seconds each to end by itself, after
/// SIGTERM and after SIGKILL, and what it left behind as long again.
const STOPPING: Duration = Duration::from_secs(12);

/// One MCP server, kept connected.
pub struct Backend {
    name: Arc<str>,
    transport: &'static str,
    timeouts: Timeouts,
    concurrency: usize,
    /// Places for running and waiting requests: twice as many as may run.
    admission: Semaphore,
    running: Semaphore,
    state: watch::Receiver<State>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Backend {
    /// Begins to connect, in the background. `shutdown` ends the backend as [`Backend::stop`] does,
    /// but without waiting: cancel it once nothing is in flight that should still be answered.
    ///
    /// Needs a tokio runtime around it.
    #[must_use]
    pub fn start(settings: BackendSettings, shutdown: CancellationToken) -> Arc<Self> {
        let BackendSettings { name, transport, era, timeouts, limits, identity } = settings;
        let name: Arc<str> = name.into();
        let tasks = TaskTracker::new();
        let shutdown = shutdown.child_token();
        let context =
            LinkContext { name: Arc::clone(&name), limits, ids: Arc::new(AtomicI64::new(1)), tasks: tasks.clone() };
        let (transport, target) = match transport {
            TransportSettings::Stdio { command, args, env, cwd } => {
                ("stdio", Target::Stdio(ProcessSettings { command, args, env, cwd }))
            }
            TransportSettings::Http { url, headers } => {
                let endpoint = HttpEndpoint::new(&url, &headers, &identity, timeouts.connect, limits.concurrency);
                ("http", endpoint.map_or_else(Target::Unusable, |endpoint| Target::Http(Arc::new(endpoint))))
            }
        };
        let (sender, state) = watch::channel(State { phase: Phase::Connecting, revision: None, attempted: false });
        let own_info = identity.to_json();
        let supervisor =
            Supervisor { context, target, choice: era, timeouts, own_info, state: sender, shutdown: shutdown.clone() };
        tasks.spawn(supervisor.run());
        let concurrency = limits.concurrency.clamp(1, Semaphore::MAX_PERMITS / 2);
        Arc::new(Self {
            name,
            transport,
            timeouts,
            concurrency,
            admission: Semaphore::new(2 * concurrency),
            running: Semaphore::new(concurrency),
            state,
            shutdown,
            tasks,
        })
    }

    /// Ends the connection and the child process, and waits for that, for a few seconds at most.
    /// Requests fail from now on.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        if timeout(STOPPING, self.tasks.wait()).await.is_err() {
            tracing::warn!(backend = &*self.name, "backend did not stop in time");
        }
    }

    /// The way of one request.
    async fn answer(&self, call: Call) -> Result<Response, BackendError> {
        let sent = AtomicBool::new(false);
        let limit = self.timeouts.call;
        tokio::select! {
            biased;
            outcome = timeout(limit, self.exchange(&call, &sent)) => outcome
                .unwrap_or_else(|_| Err(BackendError::Timeout { after: limit, sent: sent.load(Ordering::Relaxed) })),
            () = self.shutdown.cancelled() => Err(match sent.load(Ordering::Relaxed) {
                true => BackendError::ClosedEarly,
                false => BackendError::ShuttingDown,
            }),
        }
    }

    async fn exchange(&self, call: &Call, sent: &AtomicBool) -> Result<Response, BackendError> {
        self.refuse_if_down()?;
        let _place = self.place().await?;
        let connection = self.ready().await?;
        match connection.request(call, sent).await {
            Err(Failure::NotRun { loss, instead }) => {
                sent.store(false, Ordering::Relaxed);
                connection.lose(loss);
                drop(connection);
                match self.ready().await {
                    Ok(fresh) => fresh.request(call, sent).await.or_else(Failure::settle),
                    // What the backend said of the request says more than that it is gone now.
                    Err(error) => instead.or(Err(error)),
                }
            }
            outcome => outcome.or_else(Failure::settle),
        }
    }

    /// A request to a backend that is down does not queue behind those that wait for a place.
    fn refuse_if_down(&self) -> Result<(), BackendError> {
        match &self.state.borrow().phase {
            Phase::Down { error, .. } => Err(error.clone()),
            Phase::Stopped => Err(BackendError::ShuttingDown),
            Phase::Connecting | Phase::Ready(_) => Ok(()),
        }
    }

    async fn place(&self) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), BackendError> {
        let busy = |_| BackendError::Busy { limit: self.concurrency };
        let admitted = self.admission.try_acquire().map_err(busy)?;
        // The semaphore is never closed.
        let running = self.running.acquire().await.map_err(|_| BackendError::ShuttingDown)?;
        Ok((running, admitted))
    }

    /// The connection, once there is one; the reason, once there is none.
    async fn ready(&self) -> Result<Arc<Connection>, BackendError> {
        if let Some(verdict) = self.state.borrow().verdict() {
            return verdict;
        }
        let limit = self.timeouts.connect;
        let mut state = self.state.clone();
        let settled = async move {
            match state.wait_for(|state| state.verdict().is_some()).await {
                Ok(state) => state.verdict().unwrap_or(Err(BackendError::ClosedEarly)),
                Err(_) => Err(BackendError::ShuttingDown),
            }
        };
        timeout(limit, settled).await.unwrap_or(Err(BackendError::Timeout { after: limit, sent: false }))
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.tasks.close();
    }
}

impl BackendClient for Backend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        Box::pin(async { Ok(self.ready().await?.description()) })
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        Box::pin(self.answer(call))
    }

    fn status(&self) -> BackendStatus {
        let state = self.state.borrow();
        BackendStatus {
            era: state.revision.map(Revision::era),
            revision: state.revision.map(Revision::as_str),
            transport: self.transport,
            attempted: state.attempted,
            state: match &state.phase {
                Phase::Ready(connection) if !connection.is_lost() => BackendState::Ready,
                Phase::Ready(_) | Phase::Connecting => BackendState::Connecting,
                Phase::Down { error, until } => BackendState::Down {
                    error: error.clone(),
                    retry_in: until.saturating_duration_since(Instant::now()),
                },
                Phase::Stopped => BackendState::Down { error: BackendError::ShuttingDown, retry_in: Duration::MAX },
            },
        }
    }
}
