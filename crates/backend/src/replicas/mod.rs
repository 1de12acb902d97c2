//! A server with several endpoints that serve the same: a [`Backend`] for each, and which of them a request goes to.
//!
//! | request | endpoint |
//! |---|---|
//! | of a session | the one that has opened the session; while none has, one that follows from the session's key |
//! | about a task | the one that has made it, else those that answer, in turn |
//! | for a list | the primary one, as long as it answers, so that pages and lists belong together |
//! | any other | the better one of two that are drawn (`choice`) |
//!
//! A request that certainly did not run, because its endpoint could not be reached, goes to another one at once. Nothing is sent
//! twice otherwise, unless the server's `retry` says so.
//!
//! `tower`'s `balance` and `load` have the same choice and the same estimate of latency. They are not used: a service of theirs
//! is one of equals, where here a session, a task or a list names its endpoint, an endpoint that is left alone gets one call
//! to try, and a request that did not run has to leave out where it has been. What is left of them are some twenty lines.

mod choice;
mod following;
mod load;
mod member;
mod places;
mod tending;

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, EndpointStatus,
    Listen, Listening, Pending, SessionKey,
};
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Method, Notification, Response, code};
use fanlight_telemetry::BackendTelemetry;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::backend::{BackendLife, Readiness};
use crate::repeats;
use crate::settings::{BackendSettings, TransportSettings};
use crate::subscriptions::{InMemorySubscriptions, SessionSubscriptions};
use crate::tasks::owners::InMemory as TaskOwners;
use choice::Tried;
use member::Member;
pub(crate) use places::Places;

/// One MCP server with several endpoints, each kept connected.
pub struct Replicas {
    group: Arc<Group>,
    life: BackendLife,
}

/// The endpoints of a server.
struct Group {
    name: Arc<str>,
    /// Those of each endpoint, but for its URL.
    settings: BackendSettings,
    /// That of `settings`, with secrets as they are now.
    transport: Mutex<TransportSettings>,
    telemetry: BackendTelemetry,
    owners: Arc<TaskOwners>,
    subscribed: Arc<dyn SessionSubscriptions>,
    /// In the order of the configuration; behind them those that are no longer among the server's endpoints and still have
    /// sessions, tasks or calls.
    members: ArcSwap<Vec<Arc<Member>>>,
    /// The one that lists are read from.
    primary: ArcSwapOption<Primary>,
    /// Told whenever an endpoint is added or removed, or its state changes, or a session has left one.
    changes: watch::Sender<()>,
    /// Spreads sessions.
    hasher: RandomState,
    next_number: AtomicU64,
    life: BackendLife,
    shutdown: CancellationToken,
}

/// One of at most two attempts to have a request answered.
#[derive(Clone, Copy, Default)]
struct Attempt<'a> {
    /// How often it was sent before.
    earlier: u32,
    /// The endpoint that it does not go to if there is another one.
    avoided: Option<u64>,
    /// Takes where it went.
    noted: Option<&'a Noted>,
}

/// Where the first attempt of a request went.
struct Noted {
    /// The number of the endpoint that it went to last.
    endpoint: AtomicU64,
    /// That endpoint says that the request does no harm if it runs twice.
    is_safe: AtomicBool,
}

/// The endpoint that lists are read from.
struct Primary {
    member: Arc<Member>,
    since: Instant,
}

impl Replicas {
    /// Begins to connect to all endpoints, in the background; `places` says where they are. `shutdown` ends all of them, as
    /// [`BackendLife::stop`] does, but without waiting.
    ///
    /// Needs a tokio runtime around it.
    pub(crate) fn start(
        settings: BackendSettings,
        places: Places,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let shutdown = shutdown.child_token();
        let name: Arc<str> = settings.name.as_str().into();
        let life = BackendLife::new(&name, settings.timeouts.process_stop, shutdown.clone());
        let telemetry = settings.telemetry.clone().of(&name, &settings.transport);
        let group = Arc::new(Group {
            name,
            transport: Mutex::new(settings.transport.clone()),
            telemetry,
            owners: Arc::new(TaskOwners::new(settings.limits.tasks)),
            subscribed: Arc::new(InMemorySubscriptions::new(settings.limits.subscriptions)),
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

    /// Sends the headers of `settings` from the next message on, as [`crate::Backend::use_credentials`] does.
    pub fn use_credentials(&self, settings: &BackendSettings) {
        *self
            .group
            .transport
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = settings.transport.clone();
        self.group
            .members
            .load()
            .iter()
            .for_each(|member| member.backend.use_credentials(settings));
    }

    /// Ends it without keeping it alive.
    #[must_use]
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

    /// Waits until some endpoint can be used, or it is known that none can.
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

    /// The endpoint that a request goes to which is neither about a task nor has been elsewhere.
    async fn first(&self, call: &Call) -> Option<Arc<Member>> {
        if choice::best(&self.members.load(), &[]).is_none_or(|best| best == Readiness::Connecting)
        {
            Box::pin(self.settle()).await;
        }
        self.choose(call, &[])
    }

    /// The endpoint that a request goes to, other than those that were tried.
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

    /// Whether all endpoints say, as they have recently, that a request does no harm if it runs twice.
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

    /// Sends a request, once more if it is safe and that is wanted: to another endpoint, unless it belongs to a session, which
    /// has one.
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

    /// Sends a request to one endpoint, and to another one each time that it certainly did not run.
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
                        // What listens for the session follows it.
                        self.tell();
                    }
                    return outcome;
                }
            };
            tried.push(member.number);
            // The error of the first attempt says as much as those of the others.
            let error = first_error.get_or_insert(error);
            match self.next(&call, &member, &tried) {
                Some(next) => member = next,
                None => return Err(error.clone()),
            }
        }
    }

    /// The endpoint for a request that has been to others in vain, the last of which was `left`; `None` if the rest are no better.
    fn next(&self, call: &Call, left: &Member, tried: &[u64]) -> Option<Arc<Member>> {
        let is_worth_it =
            choice::best(&self.members.load(), tried).is_some_and(|best| best != Readiness::Down);
        let next = self.choose(call, tried).filter(|_| is_worth_it)?;
        if let Some(session) = call
            .context
            .session()
            .filter(|_| left.backend.has_session(&call.context))
        {
            // It is opened anew elsewhere, where its subscriptions are made again: what else the endpoint knew of it is gone.
            left.backend.leave_session(session);
        }
        Some(next)
    }

    /// Whether a request that an endpoint has not run may be sent to another one. A session does not leave an endpoint that can
    /// be reached.
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

    /// Sends a request about a task to the endpoint that has it. Where that is not known, or the endpoint cannot be reached, the
    /// others are asked: a server may share its tasks among them.
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

    /// The endpoint that has the task which a request names.
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

    /// The error of a request for which there is no endpoint.
    fn nowhere(&self) -> BackendError {
        if self.shutdown.is_cancelled() {
            return BackendError::ShuttingDown;
        }
        BackendError::Unreachable {
            reason: "the addresses of its endpoints are not known".into(),
        }
    }

    /// The endpoint that speaks for the server.
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

/// Whether a request names a task and is about that alone.
fn is_about_one_task(method: &Method) -> bool {
    matches!(
        method,
        Method::GetTask | Method::TaskResult | Method::UpdateTask | Method::CancelTask
    )
}

/// Whether an endpoint has refused a request because it does not know the task (2025-11-25 basic/utilities/tasks, Protocol
/// Errors): then it did nothing.
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

    fn is_safe<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
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
            match members
                .iter()
                .find(|member| member.backend.has_session(client))
            {
                Some(member) => member.backend.notify(notification, client).await,
                None => Ok(()),
            }
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

    fn connection_made(
        &self,
        since: Option<Instant>,
    ) -> Pin<Box<dyn Future<Output = Instant> + Send + '_>> {
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

    /// That of the endpoint that is best off.
    fn status(&self) -> BackendStatus {
        let members = self.group.members.load();
        let best = members
            .iter()
            .filter(|member| !member.is_leaving())
            .map(|member| member.backend.status());
        let rank = |status: &BackendStatus| match status.state {
            BackendState::Ready => 0,
            BackendState::Ejected { .. } => 1,
            BackendState::Idle | BackendState::Connecting => 2,
            BackendState::Down { .. } => 3,
            BackendState::Failed { .. } => 4,
        };
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
