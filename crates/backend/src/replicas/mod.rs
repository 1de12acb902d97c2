//! A server with several equal endpoints: a [`Backend`] for each, and the choice of the endpoint
//! for each request.
//!
//! | request | endpoint |
//! |---|---|
//! | of a session | the one that opened the session; before that, one that follows from the session's key |
//! | about a task | the one that made the task; if unknown, those that answer, in turn |
//! | for a list | the primary one while it answers, so that pages and lists belong together |
//! | any other | the better one of two that are drawn (`choice`) |
//!
//! A request that certainly did not run, because its endpoint was unreachable, goes to another one
//! at once. No other request is repeated, unless the server's `retry` allows it.
//!
//! `tower`'s `balance` and `load` have the same choice and the same latency estimate, but treat all
//! services as equal. Here a session, task or list names its endpoint, an unresponsive endpoint
//! gets one trial call, and a repeated request leaves out the endpoints it has been to. Without
//! these parts, some twenty lines of tower would remain.

mod choice;
mod following;
mod load;
mod member;
mod places;
mod tending;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, EndpointStatus,
    Listen, Listening, Pending, SessionKey,
};
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Method, Notification, Response, code};
use fanlight_telemetry::BackendTelemetry;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::backend::{BackendLife, Readiness};
use crate::repeats;
use crate::settings::{BackendSettings, TransportSettings};
use crate::subscriptions::SessionSubscriptions;
use crate::tasks::owners::TaskOwners;
use choice::Tried;
use member::Member;
pub(crate) use places::Places;

/// An MCP server with several endpoints, each kept connected.
pub struct Replicas {
    group: Arc<Group>,
    life: BackendLife,
}

/// The endpoints of a server.
struct Group {
    name: Arc<str>,
    /// The settings of each endpoint, except for its URL.
    settings: BackendSettings,
    /// The transport in `settings`, with the current secrets.
    transport: Mutex<TransportSettings>,
    telemetry: BackendTelemetry,
    owners: Arc<TaskOwners>,
    subscribed: Arc<SessionSubscriptions>,
    /// The endpoints in the order of the configuration. After them come former endpoints that still
    /// have sessions, tasks or calls.
    members: ArcSwap<Vec<Arc<Member>>>,
    /// The endpoint for lists.
    primary: ArcSwapOption<Primary>,
    /// Notified when an endpoint is added, removed or changes its state, and when a session has
    /// left one.
    changes: watch::Sender<()>,
    /// Distributes sessions.
    hasher: RandomState,
    next_number: AtomicU64,
    life: BackendLife,
    shutdown: CancellationToken,
}

/// One of at most two attempts at a request.
#[derive(Clone, Copy, Default)]
struct Attempt<'a> {
    /// The number of times it was sent before.
    earlier: u32,
    /// The endpoint to avoid if there is another one.
    avoided: Option<u64>,
    /// Receives the chosen endpoint.
    noted: Option<&'a Noted>,
}

/// The destination of a request's first attempt.
struct Noted {
    /// The number of its last endpoint.
    endpoint: AtomicU64,
    /// Whether that endpoint says that repeating the request is harmless.
    is_safe: AtomicBool,
}

/// The endpoint for lists.
struct Primary {
    member: Arc<Member>,
    since: Instant,
}

impl Replicas {
    /// Begins to connect to all endpoints in the background; `places` has their locations.
    /// `shutdown` ends all of them as [`BackendLife::stop`] does, but without waiting.
    ///
    /// Needs a tokio runtime around it.
    pub(crate) fn start(
        settings: BackendSettings,
        places: Places,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let shutdown = shutdown.child_token();
        let name: Arc<str> = settings.name.as_str().into();
        let life = BackendLife::new(&name, shutdown.clone());
        let telemetry = settings.telemetry.clone().of(&name, &settings.transport);
        let group = Arc::new(Group {
            name,
            transport: Mutex::new(settings.transport.clone()),
            telemetry,
            owners: Arc::new(TaskOwners::new(
                settings.limits.tasks,
                settings.limits.task_state_bytes,
            )),
            subscribed: Arc::new(SessionSubscriptions::new(settings.limits.subscriptions)),
            settings,
            members: ArcSwap::default(),
            primary: ArcSwapOption::empty(),
            changes: watch::Sender::default(),
            hasher: RandomState::default(),
            next_number: AtomicU64::new(1),
            life: life.clone(),
            shutdown,
        });
        group.tend(places);
        Arc::new(Self { group, life })
    }

    /// Sends the headers in `settings` from the next message on, as
    /// [`crate::Backend::use_credentials`] does.
    pub fn use_credentials(&self, settings: &BackendSettings) {
        *self.group.transport.lock() = settings.transport.clone();
        self.group
            .members
            .load()
            .iter()
            .for_each(|member| member.backend.use_credentials(settings));
    }

    /// A handle that can end the server but does not keep it alive.
    pub fn life(&self) -> BackendLife {
        self.life.clone()
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.life.end();
    }
}

impl Group {
    fn tell(&self) {
        self.changes.send_replace(());
    }

    /// Waits until an endpoint can be used, or certainly none can.
    async fn settle(&self) {
        let mut changes = self.changes.subscribe();
        let settled = async {
            loop {
                changes.mark_unchanged();
                let best = choice::best(&self.members.load(), &[]);
                if best.is_some_and(|readiness| readiness != Readiness::Connecting)
                    || changes.changed().await.is_err()
                {
                    return;
                }
            }
        };
        let _ = timeout(self.settings.timeouts.connect, settled).await;
    }

    /// The first endpoint of a request that is not about a task.
    async fn first(&self, call: &Call) -> Option<Arc<Member>> {
        if choice::best(&self.members.load(), &[]).is_none_or(|best| best == Readiness::Connecting)
        {
            Box::pin(self.settle()).await;
        }
        self.choose(call, &[])
    }

    /// The endpoint of a request, except for those in `tried`.
    fn choose(&self, call: &Call, tried: &[u64]) -> Option<Arc<Member>> {
        let members = self.members.load();
        if let Some(session) = call.context.session() {
            return self.of_session(&members, &call.context, session, tried);
        }
        if call.method.is_list()
            && let Some(primary) = self
                .primary()
                .filter(|primary| tried.is_empty() && primary.backend.is_connected())
        {
            return Some(primary);
        }
        choice::better_of_two(&members, tried, &call.method)
    }

    /// The endpoint of a client's session.
    fn of_session(
        &self,
        members: &[Arc<Member>],
        client: &CallContext,
        session: SessionKey,
        tried: &[u64],
    ) -> Option<Arc<Member>> {
        let has_it = |member: &&Arc<Member>| {
            !tried.contains(&member.number) && member.backend.has_session(client)
        };
        match members.iter().find(has_it) {
            Some(member) => Some(Arc::clone(member)),
            None => choice::of_key(members, tried, |number| {
                self.hasher.hash_one((session, number))
            }),
        }
    }

    fn primary(&self) -> Option<Arc<Member>> {
        self.primary
            .load()
            .as_ref()
            .map(|primary| Arc::clone(&primary.member))
    }

    /// Whether all endpoints recently said that repeating the request is harmless.
    async fn is_safe(&self, call: &Call) -> bool {
        if call.method != Method::CallTool {
            return repeats::could_be_safe(call);
        }
        let members = self.members.load_full();
        let connected: Vec<_> = members
            .iter()
            .filter(|member| member.backend.is_connected())
            .collect();
        for member in &connected {
            if !member.backend.does_no_harm(call, repeats::RECENTLY).await {
                return false;
            }
        }
        !connected.is_empty()
    }

    /// Sends a request, and repeats it if it is safe and the settings allow that. The repetition
    /// goes to another endpoint, unless the request belongs to a session, which has its own.
    async fn repeated(&self, call: Call) -> Result<Response, BackendError> {
        let Some(repeats) = self
            .settings
            .repeats
            .as_ref()
            .filter(|_| repeats::could_be_safe(&call))
        else {
            return self.request(call, Attempt::default()).await;
        };
        let (reads, has_session) = (
            call.method != Method::CallTool,
            call.context.session().is_some(),
        );
        let noted = Noted {
            endpoint: AtomicU64::new(0),
            is_safe: AtomicBool::new(reads),
        };
        let noted = &noted;
        let first = |call| async move {
            let outcome = self
                .request(
                    call,
                    Attempt {
                        noted: Some(noted),
                        ..Attempt::default()
                    },
                )
                .await;
            (noted.is_safe.load(Ordering::Relaxed), outcome)
        };
        let again = |call| {
            let last = noted.endpoint.load(Ordering::Relaxed);
            self.request(
                call,
                Attempt {
                    avoided: (!has_session).then_some(last),
                    earlier: 1,
                    noted: None,
                },
            )
        };
        repeats
            .send(call, self.settings.timeouts.call, first, again)
            .await
    }

    /// Sends a request to one endpoint, and to another one whenever it certainly did not run.
    async fn request(&self, call: Call, attempt: Attempt<'_>) -> Result<Response, BackendError> {
        if is_about_one_task(&call.method) && call.context.session().is_none() {
            return Box::pin(self.about_task(call)).await;
        }
        let (begun, limit) = (Instant::now(), self.settings.timeouts.call);
        let avoided = attempt
            .avoided
            .and_then(|avoided| self.choose(&call, &[avoided]));
        let mut member = match avoided {
            Some(other) => other,
            None => self.first(&call).await.ok_or_else(|| self.nowhere())?,
        };
        let (mut tried, mut first_error) = (Tried::new(), None);
        loop {
            if let Some(noted) = attempt.noted {
                noted.endpoint.store(member.number, Ordering::Relaxed);
                noted.is_safe.store(
                    member.backend.does_no_harm(&call, Duration::MAX).await,
                    Ordering::Relaxed,
                );
            }
            if attempt.earlier > 0 && !member.backend.may_repeat(&call).await {
                return Err(repeats::no_longer_safe());
            }
            let error = match member.request(call.clone(), attempt.earlier).await {
                Err(error) if self.may_go_elsewhere(&error, &call) && begun.elapsed() < limit => {
                    error
                }
                outcome => {
                    if !tried.is_empty() {
                        // The session's listeners follow it.
                        self.tell();
                    }
                    return outcome;
                }
            };
            tried.push(member.number);
            // The first error is as informative as the others.
            let error = first_error.get_or_insert(error);
            match self.next(&call, &member, &tried) {
                Some(next) => member = next,
                None => return Err(error.clone()),
            }
        }
    }

    /// The next endpoint of a request after failures at the `tried` ones, the last of which is
    /// `left`. `None` if the rest are no better.
    fn next(&self, call: &Call, left: &Member, tried: &[u64]) -> Option<Arc<Member>> {
        let is_worth_it =
            choice::best(&self.members.load(), tried).is_some_and(|best| best != Readiness::Down);
        let next = self.choose(call, tried).filter(|_| is_worth_it)?;
        if let Some(session) = call
            .context
            .session()
            .filter(|_| left.backend.has_session(&call.context))
        {
            // Another endpoint opens a new session, and the subscriptions are repeated there. Other
            // knowledge of the old endpoint is lost.
            left.backend.leave_session(session);
        }
        Some(next)
    }

    /// Whether a request that an endpoint has not run may go to another one. A session does not
    /// leave a reachable endpoint.
    fn may_go_elsewhere(&self, error: &BackendError, call: &Call) -> bool {
        if error.may_have_run() || error.sign_in().is_some() || self.shutdown.is_cancelled() {
            return false;
        }
        match error {
            BackendError::Unreachable { .. }
            | BackendError::NotConnected { .. }
            | BackendError::ShuttingDown => true,
            BackendError::Timeout { .. }
            | BackendError::Starting { .. }
            | BackendError::Busy { .. }
            | BackendError::NoAnswers { .. }
            | BackendError::TooManySessions { .. } => call.context.session().is_none(),
            _ => false,
        }
    }

    /// Sends a request about a task to the endpoint that has it. If that is unknown or unreachable,
    /// asks the others, since a server's endpoints may share their tasks.
    async fn about_task(&self, call: Call) -> Result<Response, BackendError> {
        let home = self.home_of(&call);
        let first = match &home {
            Some(home) => Some(Arc::clone(home)),
            None => self.first(&call).await,
        };
        let first = first.ok_or_else(|| self.nowhere())?;
        let outcome = first.request(call.clone(), 0).await;
        let is_unsure = match &outcome {
            Ok(response) => home.is_none() && does_not_know(response),
            Err(error) => self.may_go_elsewhere(error, &call),
        };
        let members = self.members.load_full();
        let others = members
            .iter()
            .filter(|member| member.number != first.number && member.backend.is_connected());
        for other in others.filter(|_| is_unsure) {
            match other.request(call.clone(), 0).await {
                Ok(response) if does_not_know(&response) => {}
                Err(error) if self.may_go_elsewhere(&error, &call) => {}
                settled => return settled,
            }
        }
        outcome
    }

    /// The endpoint with the task that a request names.
    fn home_of(&self, call: &Call) -> Option<Arc<Member>> {
        let id = call.params.as_ref()?.get("taskId")?;
        let number = self
            .owners
            .endpoint_of(&id.as_str()?, &call.context.caller)?;
        self.members
            .load()
            .iter()
            .find(|member| member.number == number)
            .cloned()
    }

    /// The error of a request without an endpoint.
    fn nowhere(&self) -> BackendError {
        if self.shutdown.is_cancelled() {
            return BackendError::ShuttingDown;
        }
        BackendError::Unreachable {
            reason: "the addresses of its endpoints are not known".into(),
        }
    }

    /// The endpoint that represents the server.
    async fn speaker(&self) -> Result<Arc<Member>, BackendError> {
        self.settle().await;
        let members = self.members.load();
        let connected = self
            .primary()
            .filter(|primary| primary.backend.is_connected());
        connected
            .or_else(|| members.first().cloned())
            .ok_or_else(|| self.nowhere())
    }
}

/// Whether requests of this method are about a single named task.
fn is_about_one_task(method: &Method) -> bool {
    matches!(
        method,
        Method::GetTask | Method::TaskResult | Method::UpdateTask | Method::CancelTask
    )
}

/// Whether an endpoint refused a request because it does not know the task (2025-11-25
/// basic/utilities/tasks, Protocol Errors). It then did nothing.
fn does_not_know(response: &Response) -> bool {
    response.error_code() == Some(code::INVALID_PARAMS)
}

impl BackendClient for Replicas {
    fn name(&self) -> &str {
        &self.group.name
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        Box::pin(async move { self.group.speaker().await?.backend.describe().await })
    }

    fn describe_to<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        Box::pin(async move {
            let speaker = self.group.speaker().await?;
            let of_session = client.session().and_then(|session| {
                self.group
                    .of_session(&self.group.members.load(), client, session, &[])
            });
            of_session
                .unwrap_or(speaker)
                .backend
                .describe_to(client)
                .await
        })
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        Box::pin(self.group.repeated(call))
    }

    fn is_safe<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, bool> {
        Box::pin(self.group.is_safe(call))
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(following::listen(&self.group, listen))
    }

    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            let members = self.group.members.load_full();
            let has_session = |member: &Arc<Member>| member.backend.has_session(client);
            // Until one of them has the session, any may get it.
            let none = !members.iter().any(has_session);
            for member in members.iter().filter(|member| none || has_session(member)) {
                member.backend.notify(notification, client).await?;
            }
            Ok(())
        })
    }

    fn continue_session(&self, client: &Arc<CallContext>) {
        self.group
            .members
            .load()
            .iter()
            .for_each(|member| member.backend.continue_session(client));
    }

    fn end_session(&self, session: SessionKey) {
        self.group
            .members
            .load()
            .iter()
            .for_each(|member| member.backend.end_session(session));
    }

    fn connection_made(&self, since: Option<Instant>) -> BoxFuture<'_, Instant> {
        Box::pin(async move {
            let mut changes = self.group.changes.subscribe();
            loop {
                changes.mark_unchanged();
                let primary = self.group.primary.load_full();
                if let Some(primary) = &primary
                    && since.is_none_or(|since| since < primary.since)
                {
                    return primary.since;
                }
                let made = async {
                    match &primary {
                        Some(primary) => primary.member.backend.connection_made(since).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    made = made => return made,
                    // The sender lives as long as this.
                    _ = changes.changed() => {}
                }
            }
        })
    }

    /// The status of the endpoint in the best state.
    fn status(&self) -> BackendStatus {
        let members = self.group.members.load();
        let best = members
            .iter()
            .filter(|member| !member.is_leaving())
            .map(|member| member.backend.status());
        let rank = |status: &BackendStatus| status.state.rank();
        best.min_by_key(rank).unwrap_or(BackendStatus {
            attempted: false,
            state: BackendState::Connecting,
            era: None,
            revision: None,
            transport: "http",
            starting: None,
            failure: None,
        })
    }

    fn endpoints(&self) -> Vec<EndpointStatus> {
        self.group
            .members
            .load()
            .iter()
            .map(|member| member.status())
            .collect()
    }
}
