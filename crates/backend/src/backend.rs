//! A backend as the core sees it: one request's way through it, and its life.
//!
//! A request takes a place, then a connection, then is exchanged under the call's deadline. All of
//! it is [`Backend::answer`].
//!
//! Must not know: eras, transports.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Response, Revision};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{BackendClient, BackendState, BackendStatus, Call, Pending, SessionKey};
use crate::clock::Course;
use crate::connection::Failure;
use crate::declared::Declared;
use crate::error::BackendError;
use crate::exchange::LinkContext;
use crate::http::HttpEndpoint;
use crate::hub::{Hub, Origin, Outlet};
use crate::listen::{Listen, Listening};
use crate::pool::{Lease, Pool};
use crate::settings::{BackendSettings, SessionPolicy, Timeouts, TransportSettings};
use crate::stdio::ProcessSettings;
use crate::supervisor::{ConnectSettings, Phase, Target};

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
    pool: Arc<Pool>,
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
        let BackendSettings { name, transport, era, sessions, timeouts, limits, identity } = settings;
        let name: Arc<str> = name.into();
        let tasks = TaskTracker::new();
        let shutdown = shutdown.child_token();
        let hub = Hub::new(Arc::clone(&name), limits.subscriptions, sessions == SessionPolicy::Shared);
        let context = LinkContext {
            name: Arc::clone(&name),
            limits,
            question: timeouts.question,
            declared: Arc::new(Declared::nothing()),
            outlet: Outlet::new(Arc::clone(&hub), Origin::Base).0,
            ids: Arc::new(AtomicI64::new(1)),
            tasks: tasks.clone(),
        };
        let (transport, target) = match transport {
            TransportSettings::Stdio { command, args, env, cwd } => {
                ("stdio", Target::Stdio(ProcessSettings { command, args, env, cwd }))
            }
            TransportSettings::Http { url, headers } => {
                let endpoint = HttpEndpoint::new(&url, &headers, &identity, timeouts.connect, limits.concurrency);
                ("http", endpoint.map_or_else(Target::Unusable, |endpoint| Target::Http(Arc::new(endpoint))))
            }
        };
        let connect = ConnectSettings {
            context,
            target,
            choice: era,
            timeouts,
            own_info: identity.to_json(),
            shutdown: shutdown.clone(),
        };
        let pool = Pool::start(connect, sessions, hub);
        let concurrency = limits.concurrency.clamp(1, Semaphore::MAX_PERMITS / 2);
        Arc::new(Self {
            name,
            transport,
            timeouts,
            concurrency,
            admission: Semaphore::new(2 * concurrency),
            running: Semaphore::new(concurrency),
            pool,
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
        let course = Course::default();
        let sent = || course.sent.load(Ordering::Relaxed);
        let limit = self.timeouts.call;
        tokio::select! {
            biased;
            outcome = course.clock.bound(limit, self.exchange(&call, &course)) => outcome
                .unwrap_or_else(|| Err(BackendError::Timeout { after: limit, sent: sent() })),
            () = self.shutdown.cancelled() => Err(match sent() {
                true => BackendError::ClosedEarly,
                false => BackendError::ShuttingDown,
            }),
        }
    }

    async fn exchange(&self, call: &Call, course: &Course) -> Result<Response, BackendError> {
        // A request to a backend that is down does not queue behind those that wait for a place.
        if let Some(error) = self.pool.down(&call.context) {
            return Err(error);
        }
        let _place = self.place().await?;
        let lease = self.pool.lease(&call.context).await?;
        if let Some(answer) = self.pool.local_answer(call, &lease).await {
            return Ok(answer);
        }
        let answer = self.send(call, course, lease).await?;
        self.pool.remember(call, &answer);
        Ok(answer)
    }

    /// Sends a request, and once more if it certainly did not run.
    async fn send(&self, call: &Call, course: &Course, lease: Lease) -> Result<Response, BackendError> {
        match lease.connection.request(call, course).await {
            Err(Failure::NotRun { loss, instead }) => {
                course.sent.store(false, Ordering::Relaxed);
                lease.lose(loss);
                match self.pool.lease(&call.context).await {
                    Ok(fresh) => fresh.connection.request(call, course).await.or_else(Failure::settle),
                    // What the backend said of the request says more than that it is gone now.
                    Err(error) => instead.or(Err(error)),
                }
            }
            outcome => outcome.or_else(Failure::settle),
        }
    }

    async fn place(&self) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), BackendError> {
        let busy = |_| BackendError::Busy { limit: self.concurrency };
        let admitted = self.admission.try_acquire().map_err(busy)?;
        // The semaphore is never closed.
        let running = self.running.acquire().await.map_err(|_| BackendError::ShuttingDown)?;
        Ok((running, admitted))
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
        Box::pin(async { Ok(self.pool.base().ready(self.timeouts.connect).await?.description()) })
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        Box::pin(self.answer(call))
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(self.pool.listen(listen))
    }

    fn end_session(&self, session: SessionKey) {
        self.pool.end_session(session);
    }

    fn status(&self) -> BackendStatus {
        let state = self.pool.base().state.borrow();
        BackendStatus {
            era: state.revision.map(Revision::era),
            revision: state.revision.map(Revision::as_str),
            transport: self.transport,
            attempted: state.attempted,
            state: match &state.phase {
                Phase::Ready(connection) if !connection.is_lost() => BackendState::Ready,
                Phase::Idle => BackendState::Idle,
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
