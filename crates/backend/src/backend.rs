//! A backend as the core sees it: one request's way through it, and its life.
//!
//! All of a request's way runs under the call's deadline: [`Backend::answer`].
//!
//! Must not know: eras, transports.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Response, Revision};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caller::Caller;
use crate::deadline::{CallProgress, Expired};
use crate::declared::Declared;
use crate::exchange::LinkContext;
use crate::http::HttpEndpoint;
use crate::hub::{Hub, Origin, Outlet};
use crate::pool::Pool;
use crate::settings::{BackendSettings, Secret, SessionPolicy, Timeouts, TransportSettings};
use crate::stdio::ProcessSettings;
use crate::supervisor::{ConnectSettings, Phase, Target};
use crate::tasks::TaskBridge;
use fanlight_canonical::BackendError;
use fanlight_canonical::{BackendClient, BackendState, BackendStatus, Call, Pending, SessionKey};
use fanlight_canonical::{Listen, Listening};

/// Waits of [`Timeouts::process_stop`] until everything has ended: a process has three, and the processes that it left
/// behind have as many.
const STOP_STEPS: u32 = 6;

/// One MCP server, kept connected.
pub struct Backend {
    name: Arc<str>,
    transport: &'static str,
    timeouts: Timeouts,
    pool: Arc<Pool>,
    /// Translates between the two ways of speaking of tasks, and passes on everything else.
    bridge: Arc<TaskBridge>,
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
        let BackendSettings { name, transport, era, sessions, catalogue, timeouts, limits, identity, telemetry } =
            settings;
        let name: Arc<str> = name.into();
        let tasks = TaskTracker::new();
        let shutdown = shutdown.child_token();
        let root = telemetry.telemetry.root();
        let telemetry = telemetry.of(&name, &transport);
        let (hub, statuses) = Hub::new(Arc::clone(&name), limits.subscriptions, sessions == SessionPolicy::Shared);
        let context = LinkContext {
            name: Arc::clone(&name),
            limits,
            timeouts,
            question: timeouts.question,
            declared: Arc::new(Declared::nothing()),
            outlet: Outlet::new(Arc::clone(&hub), Origin::Base).0,
            ids: Arc::new(AtomicI64::new(1)),
            tasks: tasks.clone(),
            telemetry,
            root,
        };
        let bounds = (timeouts.connect, timeouts.idle_connection);
        let http = |url: &str, headers: &[(String, Secret)]| {
            let endpoint = HttpEndpoint::new(url, headers, &identity, bounds, limits.concurrency);
            endpoint.map_or_else(Target::Unusable, |endpoint| Target::Http(Arc::new(endpoint)))
        };
        let sse_first = matches!(transport, TransportSettings::Sse { .. });
        let (transport, target) = match transport {
            TransportSettings::Stdio { command, args, env, cwd } => {
                ("stdio", Target::Stdio(ProcessSettings { command, args, env, cwd }))
            }
            TransportSettings::Http { url, headers } => ("http", http(&url, &headers)),
            TransportSettings::Sse { url, headers } => ("sse", http(&url, &headers)),
        };
        let connect = ConnectSettings {
            context,
            target,
            choice: era,
            timeouts,
            sse_first,
            own_info: identity.to_json(),
            shutdown: shutdown.clone(),
        };
        let pool = Pool::start(connect, sessions, catalogue, Arc::clone(&hub));
        let caller = Arc::new(Caller::new(Arc::clone(&pool), timeouts, limits.concurrency));
        let bridge = TaskBridge::new(caller, Arc::clone(&hub), &limits, tasks.clone(), shutdown.clone());
        let (end, telling) = (shutdown.clone(), Arc::clone(&bridge).tell(hub, statuses));
        tasks.spawn(async move { end.run_until_cancelled(telling).await });
        Arc::new(Self { name, transport, timeouts, pool, bridge, shutdown, tasks })
    }

    /// Ends the connection and the child process, and waits for that, for a few seconds at most.
    /// Requests fail from now on.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        if timeout(self.timeouts.process_stop * STOP_STEPS, self.tasks.wait()).await.is_err() {
            tracing::warn!(backend = &*self.name, "backend did not stop in time");
        }
    }

    /// Sends one request, and ends it with its deadline or with the backend.
    fn answer(&self, call: Call) -> impl Future<Output = Result<Response, BackendError>> + Send {
        async move {
            let progress = CallProgress::default();
            let sent = || progress.sent.load(Ordering::Relaxed);
            let answer = pin!(self.bridge.answer(&call, &progress));
            tokio::select! {
                biased;
                outcome = progress.deadline.limit(self.timeouts.call, answer) => outcome.unwrap_or_else(|Expired| {
                    Err(BackendError::Timeout { after: self.timeouts.call, sent: sent() })
                }),
                () = self.shutdown.cancelled() => {
                    Err(if sent() { BackendError::ClosedEarly } else { BackendError::ShuttingDown })
                }
            }
        }
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
            transport: match &state.phase {
                Phase::Ready(connection) => connection.transport(),
                _ => self.transport,
            },
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

#[cfg(test)]
mod tests {
    use fanlight_protocol::Json;

    use super::*;
    use crate::settings::{EraChoice, Identity, Limits, SessionPolicy, TelemetrySettings};
    use fanlight_canonical::CallContext;

    const LONG: Duration = Duration::from_secs(20);

    fn at(url: &str) -> Arc<Backend> {
        let settings = BackendSettings {
            name: "tested".into(),
            transport: TransportSettings::Http { url: url.into(), headers: Vec::new() },
            era: EraChoice::Auto,
            sessions: SessionPolicy::PerClient,
            catalogue: false,
            timeouts: Timeouts {
                connect: LONG,
                probe: LONG,
                call: LONG,
                question: LONG,
                session_idle: LONG,
                task: LONG,
                process_stop: LONG,
                session_end: LONG,
                idle_connection: LONG,
                reconnect: crate::RetryDelays { shortest: LONG, longest: LONG },
            },
            limits: Limits {
                concurrency: 1,
                sessions: 1,
                subscriptions: 1,
                message_bytes: 1024,
                nesting: 8,
                tasks: 1,
                task_bytes: 1024,
                client_description: 1024,
                spare_bytes: 0,
            },
            identity: Identity { name: "fanlight".into(), version: "0".into() },
            telemetry: TelemetrySettings::default(),
        };
        Backend::start(settings, CancellationToken::new())
    }

    #[tokio::test]
    async fn a_change_of_a_legacy_task_is_told_where_it_is_complete() {
        let backend = at("http://127.0.0.1:1/mcp");
        let client = CallContext::internal();
        let changed = async |status: &'static str| {
            let told = backend.bridge.changed(&Json::literal(status), &client).await;
            told.map(|told| told.as_text().to_owned())
        };
        let working = r#"{ "taskId":"\u0041","status":"working","ttl":6e4}"#;
        assert_eq!(changed(working).await.unwrap(), r#"{ "taskId":"\u0041","status":"working","ttlMs":6e4}"#);
        assert!(changed(r#"{"taskId":"a","status":"cancelled","ttl":null}"#).await.is_some());
        // What came of it is with the server, which cannot be reached.
        assert_eq!(changed(r#"{"taskId":"a","status":"completed","ttl":null}"#).await, None);
        assert_eq!(changed(r#"{"taskId":"a","status":"input_required","ttl":null}"#).await, None);
    }
}
