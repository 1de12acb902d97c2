//! A connection to a server after the handshake: sends requests in the server's era, and interprets
//! failures.

pub(crate) mod attempt;
mod listening;
mod outgoing;
mod rejection;
pub(crate) mod supervised;
pub(crate) mod supervisor;
mod tools;

use std::future::pending;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, ServerSession, TaskDialect};
use fanlight_protocol::param_header::MAX_MIRRORED;
use fanlight_protocol::{
    Era, Json, LogLevel, Method, Notification, ObjectBuilder, Response, Revision,
    ServerDescription, code,
};
use fanlight_telemetry::{ErrorType, Parent};
use futures_util::future::OptionFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::handshake::{Agreed, Known};
use crate::request::deadline::CallProgress;
use crate::request::dialect::Dialect;
use crate::request::{Reply, TransportContext, span_outcome};
use crate::settings::list_bytes;
use crate::transport::Transport;
use crate::transport::http::{MAX_REDIRECTS, too_many_redirects};
use listening::{OutsideStream, SubscribedResources};
use tools::{HintReadings, MirroredMembers, ToolTable};

/// The time for subscribing a process to the resources that clients listen to, before a call. After it, the call is sent without.
const SUBSCRIBE_ON_CALL: Duration = Duration::from_secs(2);

/// A connection in use.
pub(crate) struct Connection {
    pub(crate) context: Arc<TransportContext>,
    transport: Transport,
    dialect: Dialect,
    description: Json,
    /// The identity of a legacy server, whose results do not contain it.
    server_info: Option<Arc<Json>>,
    declares_logging: bool,
    /// The log level set at the server; legacy only.
    log_level: Mutex<Option<LogLevel>>,
    /// The server's dialect of tasks; `None` if it has none.
    pub(crate) tasks: Option<TaskDialect>,
    /// The known tools, if requests depend on them: for modern HTTP, for legacy servers with tasks,
    /// and for servers whose safe calls are repeated.
    tools: Option<ToolTable>,
    tools_loaded: OnceCell<()>,
    /// Whether an odd number of calls have failed, errors in answers included.
    has_failed: AtomicBool,
    hints: HintReadings,
    since: Instant,
    /// Set for a legacy server over HTTP that may ask the client.
    outside: Option<OutsideStream>,
    /// Set for a process that serves clients without a session.
    resources: Option<SubscribedResources>,
    usage: ProcessUsage,
    /// The time when the server last made a task.
    last_task: Mutex<Option<Instant>>,
    /// Whether the connection was made because the era or the session was in doubt.
    pub(crate) reprobed: bool,
    /// Whether the connection continues a session that another process opened.
    pub(crate) is_continued: bool,
    gone: Option<CancellationToken>,
    lost: CancellationToken,
    loss: OnceLock<Loss>,
}

/// The reason why a connection can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The process ended, or the server is unreachable.
    Ended,
    /// The server has forgotten the session.
    SessionGone,
    /// The server rejects requests that its era requires it to accept.
    EraDoubt,
    /// Nothing has used the process for a while.
    Unused,
    /// The server did not answer a check.
    Unresponsive,
}

impl Loss {
    /// The error that ended a session; `None` after a regular end.
    pub(crate) fn error_type(self) -> Option<ErrorType> {
        match self {
            Self::Ended | Self::SessionGone => Some(ErrorType::ConnectionClosed),
            Self::Unresponsive => Some(ErrorType::Timeout),
            Self::EraDoubt | Self::Unused => None,
        }
    }
}

/// The reason why a request has no answer.
pub(crate) enum Failure {
    /// A retry would not help.
    Final(BackendError),
    /// The request may have run, and the connection can no longer be used.
    MayHaveRun {
        loss: Loss,
        outcome: Result<Response, BackendError>,
    },
    /// The request certainly did not run; it may be repeated on another connection.
    NotRun {
        loss: Loss,
        /// The outcome if it is not repeated.
        instead: Result<Response, BackendError>,
    },
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::Final(error)
    }
}

impl Failure {
    /// The outcome if the request is not repeated.
    pub(crate) fn settle(self) -> Result<Response, BackendError> {
        match self {
            Self::Final(error) => Err(error),
            Self::MayHaveRun { outcome, .. }
            | Self::NotRun {
                instead: outcome, ..
            } => outcome,
        }
    }
}

impl Connection {
    pub(crate) fn new(context: Arc<TransportContext>, agreed: Agreed, reprobed: bool) -> Self {
        let Agreed {
            transport,
            dialect,
            description,
            is_continued,
        } = agreed;
        let capabilities = ServerDescription::from(description.clone()).capabilities();
        let tasks = capabilities
            .as_ref()
            .and_then(|capabilities| dialect.tasks(capabilities));
        let table = |mirrors| ToolTable::new(mirrors, MAX_MIRRORED, list_bytes());
        let revision = dialect.revision();
        let mirrors = revision.mirrored.is_some() && transport.is_http();
        let has_legacy_tasks = tasks == Some(TaskDialect::Requested);
        let tools = (mirrors || has_legacy_tasks || context.knows_safe).then(|| table(mirrors));
        let has_stream = revision.has_sessions
            && transport.http().is_some()
            && (context.declared.can_be_asked() || context.outlet.is_of_session());
        let subscribes = |capabilities: &Json| {
            let resources = capabilities.get("resources");
            resources.is_some_and(|resources| resources.flag("subscribe"))
        };
        let is_process =
            revision.has_sessions && transport.is_stdio() && context.outlet.is_of_requests();
        let follows_resources = is_process && capabilities.as_ref().is_some_and(subscribes);
        Self {
            resources: follows_resources.then(SubscribedResources::new),
            outside: has_stream.then(OutsideStream::new),
            context,
            gone: transport.gone_token(),
            transport,
            declares_logging: capabilities
                .is_some_and(|capabilities| capabilities.get("logging").is_some()),
            server_info: server_info(revision, &description),
            dialect,
            description,
            log_level: Mutex::new(None),
            tasks,
            tools,
            tools_loaded: OnceCell::new(),
            has_failed: AtomicBool::new(false),
            hints: HintReadings::new(),
            since: Instant::now(),
            usage: ProcessUsage::default(),
            last_task: Mutex::new(None),
            reprobed,
            is_continued,
            lost: CancellationToken::new(),
            loss: OnceLock::new(),
        }
    }

    /// Sends one request and waits for its answer. The request's deadline records whether it may be
    /// running.
    pub(crate) fn request<'a>(
        &'a self,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, Failure>> + Send {
        async move {
            if let Some(answer) = self.answer_without_asking(call) {
                return Ok(answer);
            }
            let Some(_using) = self.usage.enter(call) else {
                let error = BackendError::Unreachable {
                    reason: "its unused process was just ended".into(),
                };
                return Err(Failure::NotRun {
                    loss: Loss::Unused,
                    instead: Err(error),
                });
            };
            // Boxed, since it is rare and large: this keeps the future of every call small.
            let _running = match &self.outside {
                Some(stream) => Some(Box::pin(stream.enter(self, &call.messages, progress)).await),
                None => None,
            };
            if let Some(resources) = &self.resources {
                Box::pin(
                    resources.reach(self.context.outlet.registry.generation(), SUBSCRIBE_ON_CALL),
                )
                .await;
            }
            if let Some(level) = self.log_level_to_raise(call) {
                Box::pin(self.raise_log_level(level, &call.context.trace)).await;
            }
            let (mut is_first, mut redirects) = (true, 0);
            let outcome = loop {
                let mirrored = match self.mirrored_members(call) {
                    MirroredMembers {
                        is_unread: true, ..
                    } if is_first => {
                        Box::pin(self.read_tools_once()).await;
                        self.mirrored_members(call)
                    }
                    known => known,
                };
                if let Some(refusal) = mirrored.refuses(call) {
                    return Ok(Response::from_error(&refusal));
                }
                let outcome = {
                    let (mut sending, propagation) = self.sending_of(call, progress, &mirrored);
                    let task = match self.tasks {
                        Some(TaskDialect::Requested) => self.follow_task(call, progress),
                        _ => None,
                    };
                    let outgoing =
                        self.outgoing_request(call, progress, mirrored, propagation, &sending);
                    let outcome = self.transport.exchange(outgoing).await;
                    if let (Some(task), Ok(Reply::Answer { response, .. })) = (task, &outcome) {
                        self.task_answered(call, task, response);
                    }
                    sending.end(&call.method, span_outcome(&outcome));
                    outcome
                };
                let response = match outcome {
                    Ok(Reply::Answer { response, .. }) => response,
                    Ok(Reply::Redirected) if redirects < MAX_REDIRECTS => {
                        redirects += 1;
                        progress.deadline.set_sent(false);
                        continue;
                    }
                    Ok(Reply::Redirected) => return Err(too_many_redirects().into()),
                    Ok(Reply::Rejected {
                        status,
                        error: body,
                        session,
                        pause,
                    }) => {
                        let error = BackendError::from_status(status, pause);
                        let rejection = self.rejection(call, (status, session), error, body);
                        return Box::pin(rejection).await;
                    }
                    // Nothing of the request was written, for example because the process ended
                    // before its turn.
                    Err(error)
                        if error.is_unreachable()
                            || (error.may_have_run() && !progress.deadline.is_sent()) =>
                    {
                        let error = error.while_connecting();
                        return Err(Failure::NotRun {
                            loss: Loss::Ended,
                            instead: Err(error),
                        });
                    }
                    Err(error) => break Err(error),
                };
                if !std::mem::take(&mut is_first) || !self.rejects_headers(call, &response) {
                    break Ok(response);
                }
                progress.deadline.set_sent(false);
                Box::pin(self.reload_tools()).await;
            };
            let response = if self.doubts_session(call, &outcome) {
                Box::pin(self.unless_forgotten(call, outcome)).await?
            } else {
                outcome?
            };
            if !self.revision().has_sessions
                && response.error_code() == Some(code::UNSUPPORTED_PROTOCOL_VERSION)
            {
                return Err(Failure::NotRun {
                    loss: Loss::EraDoubt,
                    instead: Ok(response),
                });
            }
            let response = self
                .dialect
                .canonical(&call.method, self.learn(call, response));
            Ok(match &self.server_info {
                Some(info) => response.from_server(Arc::clone(info)),
                None => response,
            })
        }
    }

    /// The answer to a call that the server need not or must not get.
    fn answer_without_asking(&self, call: &Call) -> Option<Response> {
        self.dialect
            .local_answer(&call.method)
            .or_else(|| self.dialect.lost_conversation(call))
    }

    /// The log level to set before this call; `None` if the current level suffices. A legacy server
    /// has one level per session, which follows the most verbose call.
    fn log_level_to_raise(&self, call: &Call) -> Option<LogLevel> {
        let wanted = call.context.log_level?;
        if !self.revision().has_sessions
            || !self.declares_logging
            || call.method == Method::SetLogLevel
        {
            return None;
        }
        let mut current = self.log_level.lock();
        if current.is_some_and(|current| current <= wanted) {
            return None;
        }
        // Stored at once, so that an unresponsive server delays only one call.
        *current = Some(wanted);
        Some(wanted)
    }

    async fn raise_log_level(&self, wanted: LogLevel, within: &Parent) {
        let params = ObjectBuilder::new()
            .string("level", wanted.as_str())
            .finish();
        let answer = self
            .ask_within(within, &Method::SetLogLevel, Some(&params))
            .await;
        if answer.is_none_or(|answer| answer.is_error()) {
            tracing::debug!(
                backend = &*self.context.name,
                level = wanted.as_str(),
                "log level not accepted"
            );
        }
    }

    /// Remembers facts from an answer that later requests need.
    fn learn(&self, call: &Call, response: Response) -> Response {
        match (&call.method, &self.tools) {
            (Method::ListTools, Some(table)) => table.observe(&self.context.name, response),
            (Method::SetLogLevel, _) if !response.is_error() => {
                let level = call.param("level");
                let level = level.and_then(|level| LogLevel::from_name(&level.as_str()?));
                *self.log_level.lock() = level;
                response
            }
            (Method::CallTool, _) if self.tasks.is_some() => {
                let made_one = |result: &Json| {
                    result
                        .get("task")
                        .or_else(|| result.get("taskId"))
                        .is_some()
                };
                if response.result().as_ref().is_some_and(made_one) {
                    *self.last_task.lock() = Some(Instant::now());
                }
                response
            }
            _ => response,
        }
    }

    /// Gives the connection up. The first reason counts.
    pub(crate) fn lose(&self, loss: Loss) {
        let _ = self.loss.set(loss);
        self.lost.cancel();
    }

    /// Whether the connection can no longer be used.
    pub(crate) fn is_lost(&self) -> bool {
        self.loss.get().is_some()
            || self
                .gone
                .as_ref()
                .is_some_and(CancellationToken::is_cancelled)
    }

    /// Waits until the connection can no longer be used.
    pub(crate) async fn lost(&self) -> Loss {
        tokio::select! {
            () = self.lost.cancelled() => self.loss.get().copied().unwrap_or(Loss::Ended),
            Some(()) = OptionFuture::from(self.gone.as_ref().map(CancellationToken::cancelled)) => Loss::Ended,
        }
    }

    /// Waits until it is doubtful whether the server still answers.
    pub(crate) async fn doubted(&self) {
        match self.transport.channel() {
            Some(channel) => channel.liveness.doubted().await,
            None => pending().await,
        }
    }

    /// Pings the server; gives the connection up without an answer within `limit`.
    async fn prove(&self, limit: Duration) {
        let [method, ..] = self.revision().harmless else {
            return;
        };
        let answer = self.ask_for(limit, &self.context.root, method, None).await;
        if answer.is_ok() || self.is_lost() {
            return;
        }
        match self.transport.channel() {
            Some(channel) => channel.give_up(format!("it answered no ping within {limit:?}")),
            None => self.lose(Loss::Unresponsive),
        }
    }

    /// The reason why the connection was given up, if it was.
    pub(crate) fn failure(&self) -> Option<BackendError> {
        self.transport.channel()?.liveness.failure()
    }

    /// Ends the session or begins to end the process. Takes a bounded time.
    pub(crate) async fn close(&self) {
        self.transport.close().await;
    }

    /// The session that the server assigned, for another process to continue.
    pub(crate) fn session(&self) -> Option<ServerSession> {
        let (description, moves) = (
            self.description.clone(),
            self.context.own_ids.as_ref()?.moves(),
        );
        Some(ServerSession {
            id: self.transport.session()?.into(),
            revision: self.revision().name.into(),
            description,
            moves,
        })
    }

    /// Prevents others from continuing the session, which has ended or is given up.
    fn forget_session(&self) {
        if let Some((kept, id)) = self.context.kept.as_ref().zip(self.transport.session()) {
            kept.remove(id);
        }
    }

    pub(crate) fn description(&self) -> ServerDescription {
        self.description.clone().into()
    }

    pub(crate) fn revision(&self) -> Revision {
        self.dialect.revision()
    }

    pub(crate) fn era(&self) -> Era {
        self.revision().era
    }

    fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Facts that a later connection to the server can rely on.
    pub(crate) fn facts(&self) -> Known {
        Known {
            era: self.era(),
            sse: self.transport.is_sse(),
        }
    }

    /// Sends a client's notification.
    pub(crate) async fn notify(&self, notification: &Notification) -> Result<(), BackendError> {
        self.transport
            .notify(notification.text.on_one_line().into_bytes())
            .await
    }

    /// The name of the transport.
    pub(crate) fn transport(&self) -> &'static str {
        self.transport.transport()
    }

    /// Whether the transport is a single channel that can break.
    fn is_channel(&self) -> bool {
        !self.transport.is_http()
    }
}

/// The limits of the interval between checks for an unused process. The interval is an eighth of
/// the allowed idle time, so it is no option.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(30));

/// The running requests of a connection. One lock covers adding a request and giving up an unused
/// process, so no request enters a process that is about to end.
#[derive(Default)]
struct ProcessUsage {
    state: Mutex<UsageState>,
    running: TaskTracker,
}

#[derive(Default)]
struct UsageState {
    /// The number of client requests so far.
    uses: u64,
    /// Whether the process has been given up as unused.
    is_retired: bool,
}

impl ProcessUsage {
    /// Counts a call as use of the process until the token is dropped; `None` if the process has
    /// been given up, so that the call needs another.
    fn enter(&self, call: &Call) -> Option<TaskTrackerToken> {
        let mut state = self.state.lock();
        if state.is_retired {
            return None;
        }
        state.uses += u64::from(!call.context.caller.is_gateway());
        Some(self.running.token())
    }

    /// Waits until the running requests have ended.
    async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// Gives the process up, unless a request is running or there were more than `uses` client
    /// requests. Returns whether it did.
    fn retire_after(&self, uses: u64) -> bool {
        let mut state = self.state.lock();
        state.is_retired = state.uses == uses && self.running.is_empty();
        state.is_retired
    }

    /// The number of client requests so far, and whether any request is running.
    fn look(&self) -> (u64, bool) {
        (self.state.lock().uses, !self.running.is_empty())
    }
}

impl Connection {
    /// Waits until nothing has used the process for `idle`, and then ends it. `is_needed` tells
    /// whether something other than a call needs the process.
    async fn retire_when_unused(&self, idle: Duration, is_needed: impl Fn() -> bool) {
        let (mut uses, mut since) = (None, Instant::now());
        loop {
            let (now, is_running) = self.usage.look();
            if uses != Some(now) || is_running || self.has_open_task() || is_needed() {
                (uses, since) = (Some(now), Instant::now());
            } else if since.elapsed() >= idle && self.usage.retire_after(now) {
                self.lose(Loss::Unused);
                return;
            }
            sleep((idle / 8).clamp(LOOK.0, LOOK.1)).await;
        }
    }

    /// Whether the server has made a task that may still be running.
    pub(crate) fn has_open_task(&self) -> bool {
        let last = *self.last_task.lock();
        last.is_some_and(|at| at.elapsed() < self.context.timeouts.task)
    }
}

#[cfg(test)]
mod usage_tests {
    use fanlight_canonical::CallContext;
    use fanlight_protocol::Method;

    use super::*;

    #[test]
    fn process_is_retired_only_while_no_request_is_in_it_and_none_enters_afterwards() {
        let call = Call::new(Method::ListTools, None, CallContext::internal());
        let usage = ProcessUsage::default();
        let token = usage.enter(&call).unwrap();
        assert!(!usage.retire_after(0));
        drop(token);
        assert!(!usage.retire_after(1));
        assert!(usage.enter(&call).is_some());
        assert!(usage.retire_after(0));
        assert!(usage.enter(&call).is_none());
    }
}

/// The maximum size of an `Implementation` object that is sent with each result, in bytes. Icons
/// can make it much larger.
const MOST_BYTES: usize = 1024;
/// The members of `Implementation` that identify a server.
const IDENTIFYING: [&str; 3] = ["name", "title", "version"];

/// The `Implementation` object of a server whose results do not contain it. A large one is reduced
/// to the identifying members; `None` if they are too large as well.
fn server_info(revision: Revision, description: &Json) -> Option<Arc<Json>> {
    if revision.results_name_server {
        return None;
    }
    let own = ServerDescription::from(description.clone())
        .server_info()
        .filter(Json::is_object)?;
    if own.bytes().len() <= MOST_BYTES {
        return Some(Arc::new(own.detached()));
    }
    let mut brief = ObjectBuilder::new();
    for name in IDENTIFYING {
        if let Some(value) = own.get(name) {
            brief.member(name, &value);
        }
    }
    let brief = brief.finish();
    (brief.bytes().len() <= MOST_BYTES).then(|| Arc::new(brief))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY: Revision = Revision::V2025_11_25;
    const MODERN: Revision = Revision::V2026_07_28;

    fn info(revision: Revision, own: &str) -> Option<String> {
        let description = format!(r#"{{"protocolVersion":"2025-11-25","serverInfo":{own}}}"#);
        let description = Json::parse(description.into(), 8).unwrap();
        server_info(revision, &description).map(|info| info.as_text().to_owned())
    }

    #[test]
    fn server_info_of_legacy_servers_is_kept_whole_unless_it_is_large() {
        let small = r#"{ "name":"s","version":"1","x":1.0}"#;
        assert_eq!(info(LEGACY, small).as_deref(), Some(small));
        assert_eq!(info(MODERN, small), None);
        let icon = "i".repeat(MOST_BYTES);
        let large = format!(r#"{{"version":"1E400","icons":"{icon}","name":"\u0073"}}"#);
        assert_eq!(
            info(LEGACY, &large).as_deref(),
            Some(r#"{"name":"\u0073","version":"1E400"}"#)
        );
        assert_eq!(info(LEGACY, &format!(r#"{{"name":"{icon}"}}"#)), None);
        assert_eq!(info(LEGACY, "7"), None);
        assert!(server_info(LEGACY, &Json::empty_object()).is_none());
    }
}
