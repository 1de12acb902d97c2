//! The instances of a server with one set of credentials: one, or one for each of several equal
//! endpoints, and the choice of the endpoint for each request.
//!
//! | request | endpoint |
//! |---|---|
//! | of a session | the one that opened the session; before that, one that follows from the session's key |
//! | about a task | the one that made the task; if unknown, those that answer, in turn |
//! | for a list | the primary one while it answers, so that pages and lists belong together |
//! | any other | a usable one, the less busy of two that are drawn |
//!
//! A request that certainly did not run, because its endpoint was unreachable, goes to another one
//! at once. No other request is repeated, unless the server's `retry` allows it.
//!
//! `tower`'s `balance` and `load` have the same choice and the same latency estimate, but treat all
//! services as equal. Here a session, task or list names its endpoint, an unresponsive endpoint
//! gets one trial call, and a repeated request leaves out the endpoints it has been to. Without
//! these parts, some twenty lines of tower would remain.
//!
//! "The power of two choices" is almost as good as comparing all endpoints. And unlike the least
//! busy one, the choice differs between gateways at the same moment.

mod following;
mod tending;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_canonical::{
    BackendError, BackendState, BackendStatus, Call, CallContext, Caller, Listen, Listening,
    Pending, SessionKey,
};
use fanlight_protocol::{Method, Notification, Response, ServerDescription, code};
use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::DropGuard;

use super::ServerParts;
use super::instance::{Common, Instance, Readiness};
use super::places::Places;
use crate::health::Item;
use crate::repeats::{self, Repeats};
use crate::settings::{BackendSettings, KnownServer, telemetry_of};
use crate::subscriptions::SessionSubscriptions;
use crate::tasks::owners::TaskOwners;

/// The instances of a server with one set of credentials. They end when this is dropped.
pub(super) struct Group {
    server: Arc<ServerParts>,
    /// The settings of each instance, except for its URL.
    pub(super) settings: BackendSettings,
    pub(super) common: Common,
    /// The only instance, unless the server has several endpoints.
    pub(super) only: Option<Arc<Instance>>,
    /// The endpoints in the order of the configuration. After them come former endpoints that still
    /// have sessions, tasks or calls.
    pub(super) members: ArcSwap<Vec<Arc<Instance>>>,
    /// The endpoint for lists.
    primary: ArcSwapOption<Instance>,
    /// Notified when an endpoint is added, removed or changes its state, and when a session has
    /// left one.
    changes: watch::Sender<()>,
    /// Distributes sessions.
    hasher: RandomState,
    next_number: AtomicU64,
    _end: DropGuard,
}

impl Group {
    /// Begins to connect in the background: to all endpoints at `places`, or to the only one.
    /// `known` has facts about the only one from an earlier run.
    pub(super) fn start(
        settings: BackendSettings,
        known: Option<KnownServer>,
        places: Option<Places>,
        server: &Arc<ServerParts>,
    ) -> Arc<Self> {
        let shutdown = server.shutdown.child_token();
        let (limits, end) = (&settings.limits, shutdown.clone().drop_guard());
        let common = Common {
            telemetry: telemetry_of(&settings.telemetry, &settings.name, &settings.transport),
            owners: Arc::new(TaskOwners::new(limits.tasks, limits.task_state_bytes)),
            subscribed: Arc::new(SessionSubscriptions::new(limits.subscriptions)),
            process_log: Arc::clone(&server.process_log),
            connected: watch::Sender::default(),
            states: watch::Sender::default(),
            tasks: server.tasks.clone(),
            shutdown,
        };
        let only = match &places {
            Some(_) => None,
            None => Some(Instance::start(settings.clone(), known, None, &common)),
        };
        let group = Arc::new(Self {
            server: Arc::clone(server),
            settings,
            common,
            members: ArcSwap::from_pointee(only.iter().cloned().collect()),
            only,
            primary: ArcSwapOption::empty(),
            changes: watch::Sender::default(),
            hasher: RandomState::default(),
            next_number: AtomicU64::new(1),
            _end: end,
        });
        places.into_iter().for_each(|places| group.tend(places));
        group
    }

    fn tell(&self) {
        self.changes.send_replace(());
    }

    /// Waits until an endpoint can be used, or it is certain that none can.
    async fn settle(&self) {
        let mut changes = self.changes.subscribe();
        let settled = async {
            loop {
                changes.mark_unchanged();
                let best = best(&self.members.load(), &[]);
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
    async fn first_instance(&self, call: &Call) -> Option<Arc<Instance>> {
        if self.only.is_some() {
            return self.only.clone();
        }
        if best(&self.members.load(), &[]).is_none_or(|best| best == Readiness::Connecting) {
            Box::pin(self.settle()).await;
        }
        self.choose(call, &[])
    }

    /// The endpoint of a request, except for those in `tried`.
    fn choose(&self, call: &Call, tried: &[u64]) -> Option<Arc<Instance>> {
        let members = self.members.load();
        if let Some(session) = call.context.session() {
            return self.session_member(&members, &call.context, session, tried);
        }
        if call.method.is_list()
            && let Some(primary) = self
                .primary
                .load_full()
                .filter(|primary| tried.is_empty() && primary.is_connected())
        {
            return Some(primary);
        }
        better_of_two(&members, tried, &call.method)
    }

    /// The endpoint of a client's session.
    fn session_member(
        &self,
        members: &[Arc<Instance>],
        client: &CallContext,
        session: SessionKey,
        tried: &[u64],
    ) -> Option<Arc<Instance>> {
        let has_it = |member: &&Arc<Instance>| {
            !tried.contains(&member.number) && member.pool.has_session(client)
        };
        match members.iter().find(has_it) {
            Some(member) => Some(Arc::clone(member)),
            None => choose_by_value(members, tried, |number| {
                self.hasher.hash_one((session, number))
            }),
        }
    }

    /// Whether all endpoints recently said that repeating the request is harmless.
    pub(super) async fn is_safe(&self, call: &Call) -> bool {
        if call.method != Method::CallTool {
            return repeats::could_be_safe(call);
        }
        let members = self.members.load_full();
        let connected: Vec<_> = members
            .iter()
            .filter(|member| member.is_connected())
            .collect();
        for member in &connected {
            if !member.does_no_harm(call, repeats::RECENTLY).await {
                return false;
            }
        }
        !connected.is_empty()
    }

    /// Sends a request, and repeats it if it is safe and the settings allow that.
    pub(super) fn request(&self, call: Call) -> Pending<'_, Response> {
        let repeats = self.settings.repeats.as_ref();
        match (
            repeats.filter(|_| repeats::could_be_safe(&call)),
            &self.only,
        ) {
            (Some(repeats), _) => Box::pin(self.repeated(repeats, call)),
            (None, Some(only)) => only.send(call, 0),
            (None, None) => Box::pin(self.attempt(call, (0, None), None)),
        }
    }

    /// Sends a request, and repeats it if it is safe. The repetition goes to another endpoint,
    /// unless the request belongs to a session, which has its own.
    async fn repeated(&self, repeats: &Repeats, call: Call) -> Result<Response, BackendError> {
        let has_session = call.context.session().is_some();
        let first = |call: Call| async move {
            let mut safe_at = (call.method != Method::CallTool).then_some(0);
            let outcome = self.attempt(call, (0, None), Some(&mut safe_at)).await;
            (safe_at, outcome)
        };
        let again = |call, last| self.attempt(call, (1, (!has_session).then_some(last)), None);
        repeats
            .send(call, self.settings.timeouts.call, first, again)
            .await
    }

    /// Sends a request to one endpoint, and to another one whenever it certainly did not run.
    /// It was sent `earlier` times before; `avoided` is left out if there is another endpoint.
    /// `safe_at` gets the number of the last endpoint if that says that a repetition is harmless.
    async fn attempt(
        &self,
        call: Call,
        (earlier, avoided): (u32, Option<u64>),
        mut safe_at: Option<&mut Option<u64>>,
    ) -> Result<Response, BackendError> {
        if self.only.is_none() && call.method.is_about_task() && call.context.session().is_none() {
            return Box::pin(self.about_task(call)).await;
        }
        let (begun, limit) = (Instant::now(), self.settings.timeouts.call);
        let other = avoided.and_then(|avoided| self.choose(&call, &[avoided]));
        let mut member = match other {
            Some(other) => other,
            None => self
                .first_instance(&call)
                .await
                .ok_or_else(|| self.nowhere())?,
        };
        let (mut tried, mut first_error) = (Tried::new(), None);
        loop {
            if let Some(safe_at) = &mut safe_at {
                let is_safe = member.does_no_harm(&call, Duration::MAX).await;
                **safe_at = is_safe.then_some(member.number);
            }
            if earlier > 0 && !member.may_repeat(&call).await {
                return Err(repeats::no_longer_safe());
            }
            let error = match member.request(call.clone(), earlier).await {
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

    /// The next endpoint for a request that failed at the `tried` ones, most recently at `left`.
    /// `None` if no other endpoint is more suitable.
    fn next(&self, call: &Call, left: &Instance, tried: &[u64]) -> Option<Arc<Instance>> {
        let is_worth_it =
            best(&self.members.load(), tried).is_some_and(|best| best != Readiness::Down);
        let next = self.choose(call, tried).filter(|_| is_worth_it)?;
        if let Some(session) = call
            .context
            .session()
            .filter(|_| left.pool.has_session(&call.context))
        {
            // Another endpoint opens a new session, and the subscriptions are repeated there. Other
            // knowledge of the old endpoint is lost.
            left.pool.leave_session(session);
        }
        Some(next)
    }

    /// Whether a request that an endpoint has not run may go to another one. A session does not
    /// leave a reachable endpoint.
    fn may_go_elsewhere(&self, error: &BackendError, call: &Call) -> bool {
        if error.may_have_run() || error.sign_in().is_some() || self.common.shutdown.is_cancelled()
        {
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
        let task = call.param("taskId").and_then(|id| id.to_str());
        let home = task.and_then(|task| self.home_of(&task, &call.context.caller));
        let first = match &home {
            Some(home) => Some(Arc::clone(home)),
            None => self.first_instance(&call).await,
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
            .filter(|member| member.number != first.number && member.is_connected());
        for other in others.filter(|_| is_unsure) {
            match other.request(call.clone(), 0).await {
                Ok(response) if does_not_know(&response) => {}
                Err(error) if self.may_go_elsewhere(&error, &call) => {}
                settled => return settled,
            }
        }
        outcome
    }

    /// The endpoint with a caller's task.
    fn home_of(&self, task: &str, caller: &Caller) -> Option<Arc<Instance>> {
        let number = self.common.owners.endpoint_of(task, caller)?;
        let members = self.members.load();
        let home = members.iter().find(|member| member.number == number);
        home.cloned()
    }

    /// The error of a request without an endpoint.
    fn nowhere(&self) -> BackendError {
        if self.common.shutdown.is_cancelled() {
            return BackendError::ShuttingDown;
        }
        BackendError::Unreachable {
            reason: "the addresses of its endpoints are not known".into(),
        }
    }

    /// The endpoint of a client's session, or else the one that represents the server.
    fn home(&self, client: &CallContext) -> Result<Arc<Instance>, BackendError> {
        let members = self.members.load();
        let session = client.session();
        let of_session = session.and_then(|key| self.session_member(&members, client, key, &[]));
        let primary = || self.primary.load_full();
        let connected = || primary().filter(|primary| primary.is_connected());
        of_session
            .or_else(connected)
            .or_else(|| members.first().cloned())
            .ok_or_else(|| self.nowhere())
    }

    /// The description of the server for a client, in the era in which the client will be served.
    pub(super) async fn describe(
        &self,
        client: &CallContext,
    ) -> Result<ServerDescription, BackendError> {
        if self.only.is_none() {
            self.settle().await;
        }
        self.home(client)?.pool.describe(client).await
    }

    /// Begins to listen.
    pub(super) async fn listen(
        self: &Arc<Self>,
        listen: Listen,
    ) -> Result<Listening, BackendError> {
        match &self.only {
            Some(only) => only.tasks.listen(listen).await,
            None => following::listen(self, listen).await,
        }
    }

    /// Forwards a client's notification to the endpoint of its session. Until one has the session,
    /// any may get it.
    pub(super) async fn notify(
        &self,
        notification: &Notification,
        client: &CallContext,
    ) -> Result<(), BackendError> {
        let members = self.members.load_full();
        let has_session = |member: &Arc<Instance>| member.pool.has_session(client);
        let none = !members.iter().any(has_session);
        for member in members.iter().filter(|member| none || has_session(member)) {
            member.notify(notification, client).await?;
        }
        Ok(())
    }

    /// Continues a session that another process opened for a client's session.
    pub(super) fn continue_session(&self, client: &CallContext) {
        for member in self.members.load().iter() {
            member.pool.continue_session(client);
        }
    }

    /// The status of the instance in the best state.
    pub(super) fn status(&self) -> BackendStatus {
        let members = self.members.load();
        let present = members.iter().filter(|member| !member.is_leaving());
        present
            .map(|member| member.status())
            .min_by_key(|status| status.state.rank())
            .unwrap_or_else(|| unknown_status("http"))
    }

    /// Whether it keeps anything that its clients wait for or that would be lost with it, as far as
    /// known.
    pub(super) fn is_needed(&self) -> bool {
        self.only.as_ref().is_some_and(|only| only.pool.is_needed())
    }

    /// Whether a client's requests run on a connection that not everybody shares. Waits until that
    /// is clear.
    pub(super) async fn has_own_connection(
        &self,
        client: &CallContext,
    ) -> Result<bool, BackendError> {
        match &self.only {
            Some(only) => only.pool.has_own_connection_for(client).await,
            None => Ok(false),
        }
    }

    /// Starts the process that serves lists, if it rests. Called when another process of the server
    /// is in use, whose lists may be newer.
    pub(super) fn wake(&self) {
        self.only.iter().for_each(|only| only.pool.base.wake());
    }
}

/// The status of a server without an instance.
pub(super) fn unknown_status(transport: &'static str) -> BackendStatus {
    BackendStatus {
        attempted: false,
        state: BackendState::Connecting,
        era: None,
        revision: None,
        transport,
        starting: None,
        failure: None,
    }
}

/// Whether an endpoint refused a request because it does not know the task (2025-11-25
/// basic/utilities/tasks, Protocol Errors). It then did nothing.
fn does_not_know(response: &Response) -> bool {
    response.error_code() == Some(code::INVALID_PARAMS)
}

/// The numbers of the endpoints that a request has been to.
type Tried = SmallVec<[u64; 4]>;

/// Equally suitable endpoints.
type Equals<'a> = SmallVec<[&'a Arc<Instance>; 8]>;

/// The readiness of the best untried endpoint, if there is one.
fn best(members: &[Arc<Instance>], tried: &[u64]) -> Option<Readiness> {
    open(members, tried).map(|member| member.readiness()).min()
}

/// The less busy of two endpoints drawn from the most suitable ones. If an endpoint's trial is due
/// and a request of this method can end it, that endpoint.
fn better_of_two(
    members: &[Arc<Instance>],
    tried: &[u64],
    method: &Method,
) -> Option<Arc<Instance>> {
    let may_try = Item::is_of(method);
    let (mut fit, trial) = best_suited(members, tried, may_try);
    if let Some(trial) = trial {
        return Some(Arc::clone(trial));
    }
    fastrand::shuffle(&mut fit);
    let drawn = fit.into_iter().take(2);
    drawn.min_by_key(|member| member.load.cost()).cloned()
}

/// The most suitable endpoint with the highest value. It stays the same while the most suitable
/// endpoints do.
fn choose_by_value(
    members: &[Arc<Instance>],
    tried: &[u64],
    value: impl Fn(u64) -> u64,
) -> Option<Arc<Instance>> {
    let (fit, _) = best_suited(members, tried, true);
    fit.into_iter()
        .max_by_key(|member| value(member.number))
        .cloned()
}

/// The most suitable endpoints, and one of them whose trial is due. `may_try` tells whether the
/// request can show that such an endpoint answers calls again.
fn best_suited<'a>(
    members: &'a [Arc<Instance>],
    tried: &[u64],
    may_try: bool,
) -> (Equals<'a>, Option<&'a Arc<Instance>>) {
    let (mut fit, mut trial, mut best) = (Equals::new(), None, Readiness::Down);
    for member in open(members, tried) {
        let (readiness, is_trial) = match member.readiness() {
            Readiness::Trial if may_try => (Readiness::Ready, true),
            Readiness::Trial => (Readiness::Down, false),
            other => (other, false),
        };
        if readiness < best {
            (fit, trial, best) = (Equals::new(), None, readiness);
        }
        if readiness == best {
            trial = trial.or(is_trial.then_some(member));
            fit.push(member);
        }
    }
    (fit, trial)
}

fn open<'a>(
    members: &'a [Arc<Instance>],
    tried: &[u64],
) -> impl Iterator<Item = &'a Arc<Instance>> {
    members
        .iter()
        .filter(|member| !member.is_leaving() && !tried.contains(&member.number))
}
