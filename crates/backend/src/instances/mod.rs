//! All connections of one server, in one table: which instance serves a call, which may be shared,
//! and when each ends.
//!
//! | | instances | chosen by |
//! |---|---|---|
//! | version | a canary is a server of its own | the name of the client (`Member::serving` in the gateway) |
//! | credentials | a [`Group`] per principal if each has its own (`sign_in`) | the principal, once signed in |
//! | process | a [`Group`] per principal at a modern server over stdio (`processes`) | the principal; the base for lists that are the same for all |
//! | endpoint | an [`Instance`] per endpoint (`group`) | session, task or list, or the better of two |
//! | client | a connection per session, client or request at a legacy server (`crate::sessions`) | the client |
//!
//! All others share: a server with one place, no sessions and one set of credentials has one
//! instance with one connection.

mod group;
mod instance;
mod load;
mod members;
mod places;
mod processes;
mod sign_in;

use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    BackendClient, BackendParts, BackendState, BackendStatus, BackendTraits, Call, CallContext,
    Listen, Listening, Outcome, Pending, ProcessOutput, SessionKey,
};
use fanlight_http::client::shortages;
use fanlight_protocol::{Notification, Response, ServerDescription};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::credentials::PrincipalCredentials;
use crate::process_log::ProcessLog;
use crate::sessions::CROWDED;
use crate::settings::{
    BackendSettings, KnownServer, Serves, TransportSettings, process_log_kept, process_stop,
};
use group::Group;
use instance::Instance;
use members::Members;
use places::Places;
use processes::Processes;
use sign_in::PerPrincipal;

/// The number of [`process_stop`] waits until everything has ended: three
/// for a process, and three for the processes that it left behind.
const STOP_STEPS: u32 = 6;

/// The limits of the interval between checks for idle connections. The interval is a part of the
/// allowed idle time.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

/// One MCP server, kept connected.
pub struct Backend {
    server: Arc<ServerParts>,
    reach: Reach,
}

/// The parts that all instances of a server have in common.
struct ServerParts {
    name: Arc<str>,
    /// The transport with the current secrets.
    transport: Mutex<TransportSettings>,
    /// The output of its processes besides messages.
    process_log: Arc<ProcessLog>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// The groups of instances, by the principals that may use them.
enum Reach {
    /// All principals share one.
    Shared(Arc<Group>),
    /// Each principal has one for its process.
    Processes(Processes),
    /// Each principal has one for its credentials.
    Credentials(Arc<PerPrincipal>),
}

/// The life of a server's connections. It ends when the last reference to the [`Backend`] is
/// dropped, or when it is stopped.
#[derive(Clone)]
pub struct BackendLife(Arc<ServerParts>);

impl Backend {
    /// Begins to connect in the background. Cancelling `shutdown` ends the server as
    /// [`Backend::stop`] does, but without waiting. Cancel it only when no request should still be
    /// answered.
    ///
    /// Needs a tokio runtime around it.
    pub fn start(settings: BackendSettings, shutdown: CancellationToken) -> Arc<Self> {
        Self::resume(settings, None, &shutdown)
    }

    /// Like [`Backend::start`], with facts about a server that is a process, from an earlier run
    /// (`known`). They apply until there is a connection.
    pub fn resume(
        settings: BackendSettings,
        known: Option<KnownServer>,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        Self::new(settings, shutdown, |settings, server| {
            match settings.processes.serves {
                Serves::Lists => Reach::Processes(Processes::start(settings, known, server)),
                Serves::Everybody | Serves::One => {
                    let places = Places::from_settings(&settings);
                    Reach::Shared(Group::start(settings, known, places, server))
                }
            }
        })
    }

    /// Like [`Backend::start`], for a server that each principal reaches with its own credentials.
    /// The connections of a principal begin with its first request.
    pub fn start_per_principal(
        settings: BackendSettings,
        credentials: Arc<dyn PrincipalCredentials>,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        Self::new(settings, shutdown, |settings, server| {
            Reach::Credentials(PerPrincipal::start(settings, credentials, server))
        })
    }

    fn new(
        settings: BackendSettings,
        shutdown: &CancellationToken,
        start: impl FnOnce(BackendSettings, &Arc<ServerParts>) -> Reach,
    ) -> Arc<Self> {
        let (server, unused) = (ServerParts::new(&settings, shutdown), idle_limit(&settings));
        let reach = start(settings, &server);
        let backend = Arc::new(Self { server, reach });
        backend
            .server
            .spawn(sweep(Arc::downgrade(&backend), unused));
        backend
    }

    /// Ends the connections and processes; waits for their end, a few seconds at most. Requests
    /// fail from now on.
    pub async fn stop(&self) {
        self.life().stop().await;
    }

    /// Sends the headers in `settings` from the next message on. The settings must be of the same
    /// server ([`BackendSettings::is_same_server`]); secrets in them may have been rotated.
    pub fn use_credentials(&self, settings: &BackendSettings) {
        *self.server.transport.lock() = settings.transport.clone();
        self.instances()
            .for_each(|instance| instance.use_credentials(settings));
    }

    /// Facts about the server, for a later run.
    pub fn facts(&self) -> Option<KnownServer> {
        self.only_instance()?.pool.facts()
    }

    /// A handle that can end the server but does not keep it alive.
    pub fn life(&self) -> BackendLife {
        BackendLife(Arc::clone(&self.server))
    }

    /// The group that serves what is the same for all; if each principal has its own credentials,
    /// their groups.
    fn shared_group(&self) -> Result<&Arc<Group>, &Arc<PerPrincipal>> {
        match &self.reach {
            Reach::Shared(base) | Reach::Processes(Processes { base, .. }) => Ok(base),
            Reach::Credentials(own) => Err(own),
        }
    }

    fn base_group(&self) -> Option<&Arc<Group>> {
        self.shared_group().ok()
    }

    /// The only instance of the group that serves what is the same for all.
    fn only_instance(&self) -> Option<&Instance> {
        self.base_group()?.only.as_deref()
    }

    fn members(&self) -> Option<&Members> {
        match &self.reach {
            Reach::Shared(_) => None,
            Reach::Processes(processes) => Some(&processes.members),
            Reach::Credentials(own) => Some(&own.members),
        }
    }

    fn instances(&self) -> impl Iterator<Item = Arc<Instance>> {
        let groups = self.groups();
        groups.flat_map(|group| group.members.load_full().to_vec())
    }

    fn groups(&self) -> impl Iterator<Item = Arc<Group>> {
        let of_principals = self
            .members()
            .map(|members| members.groups(None))
            .unwrap_or_default();
        self.base_group().cloned().into_iter().chain(of_principals)
    }
}

/// The shortest time after which anything of the server may end as idle.
fn idle_limit(settings: &BackendSettings) -> Duration {
    let longest = settings.timeouts.session_idle;
    settings.processes.idle.unwrap_or(longest).min(longest)
}

/// Ends idle connections and groups periodically, until the server is gone.
async fn sweep(backend: Weak<Backend>, unused: Duration) {
    let mut shortages = shortages();
    loop {
        let short = tokio::select! {
            () = sleep((unused / 4 / CROWDED).clamp(LOOK.0, LOOK.1)) => false,
            // The sender lives as long as the process.
            Ok(()) = shortages.changed() => true,
        };
        let Some(backend) = backend.upgrade() else {
            return;
        };
        let instances = backend.instances();
        instances.for_each(|instance| instance.pool.sweep(short));
        backend.members().iter().for_each(|members| members.sweep());
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.server.end();
    }
}

impl ServerParts {
    fn new(settings: &BackendSettings, shutdown: &CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            name: settings.name.as_str().into(),
            transport: Mutex::new(settings.transport.clone()),
            process_log: Arc::new(ProcessLog::new(process_log_kept())),
            tasks: TaskTracker::new(),
            shutdown: shutdown.child_token(),
        })
    }

    /// Runs a task until the result is dropped or the server ends.
    fn run(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDropHandle<Option<()>> {
        let end = self.shutdown.clone();
        AbortOnDropHandle::new(self.tasks.spawn(end.run_until_cancelled_owned(task)))
    }

    /// Runs a task until the server ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.run(task).detach());
    }

    fn end(&self) {
        self.shutdown.cancel();
        self.tasks.close();
    }
}

impl BackendLife {
    /// The server's configured name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Waits until nothing uses the server, or it has been stopped.
    pub async fn unused(&self) {
        self.0.shutdown.cancelled().await;
    }

    /// See [`Backend::stop`].
    pub async fn stop(&self) {
        self.0.end();
        if timeout(process_stop() * STOP_STEPS, self.0.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(backend = self.name(), "server did not stop in time");
        }
    }
}

impl BackendClient for Backend {
    fn name(&self) -> &str {
        &self.server.name
    }

    fn describe<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        match self.shared_group() {
            Ok(base) => Box::pin(base.describe(client)),
            Err(own) => Box::pin(own.describe(client)),
        }
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        match &self.reach {
            Reach::Shared(base) => base.request(call),
            Reach::Processes(processes) => Box::pin(processes.request(call)),
            Reach::Credentials(own) => Box::pin(own.request(call)),
        }
    }

    fn is_safe<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, bool> {
        match &self.reach {
            Reach::Shared(base) => Box::pin(base.is_safe(call)),
            Reach::Processes(processes) => Box::pin(processes.is_safe(call)),
            Reach::Credentials(own) => Box::pin(own.is_safe(call)),
        }
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        match &self.reach {
            Reach::Shared(base) => Box::pin(base.listen(listen)),
            Reach::Processes(processes) => Box::pin(processes.listen(listen)),
            Reach::Credentials(own) => Box::pin(own.listen(listen)),
        }
    }

    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        match self.shared_group() {
            Ok(base) => Box::pin(base.notify(notification, client)),
            Err(own) => Box::pin(own.notify(notification, client)),
        }
    }

    fn continue_session(&self, client: &Arc<CallContext>) {
        match self.shared_group() {
            Ok(base) => base.continue_session(client),
            Err(own) => own.continue_session(client),
        }
    }

    fn end_session(&self, session: SessionKey) {
        if let Err(own) = self.shared_group() {
            own.wishes.end_session(session);
        }
        self.instances()
            .for_each(|instance| instance.pool.end_session(session));
    }

    /// The status of the connection in the best state. A user's refused credentials say nothing
    /// about the server.
    fn status(&self) -> BackendStatus {
        if let Some(base) = self.base_group() {
            return base.status();
        }
        let all = self.groups().map(|group| group.status());
        let of_server = all.map(|status| match &status.state {
            BackendState::Down { error, .. } | BackendState::Failed { error }
                if matches!(
                    error.outcome(),
                    Outcome::SignInNeeded | Outcome::Unauthorized
                ) =>
            {
                BackendStatus {
                    state: BackendState::Idle,
                    failure: None,
                    ..status
                }
            }
            _ => status,
        });
        let best = of_server.min_by_key(|status| status.state.rank());
        best.unwrap_or_else(|| BackendStatus {
            attempted: true,
            state: BackendState::Idle,
            ..group::unknown_status(match &*self.server.transport.lock() {
                TransportSettings::Stdio { .. } => "stdio",
                _ => "http",
            })
        })
    }

    fn connection_made(&self, since: Option<Instant>) -> BoxFuture<'_, Instant> {
        let base = self.base_group();
        let connected = base.map(|base| base.common.connected.subscribe());
        Box::pin(async move {
            if let Some(mut connected) = connected
                // The sender lives as long as the group.
                && let Ok(made) = connected.wait_for(|made| *made > since).await
                && let Some(made) = *made
            {
                return made;
            }
            std::future::pending().await
        })
    }

    fn session_choice(&self) -> Pending<'_, Option<String>> {
        match self.only_instance() {
            Some(only) => Box::pin(only.pool.session_choice()),
            None => Box::pin(std::future::ready(Ok(None))),
        }
    }

    fn traits(&self) -> BackendTraits {
        let own = self.shared_group().err();
        BackendTraits {
            may_rest: self
                .only_instance()
                .is_some_and(|only| only.pool.may_rest()),
            knows_principals: own.is_some(),
            stand_in: own
                .and_then(|own| own.credentials.has_connect_tool().then_some(sign_in::NAME)),
        }
    }

    fn parts(&self) -> BackendParts {
        let members = self.base_group().map(|base| base.members.load());
        let members = members.iter().flat_map(|members| members.iter());
        BackendParts {
            endpoints: members
                .filter_map(|member| member.endpoint_status())
                .collect(),
            processes: self.server.process_log.running_processes(),
        }
    }

    fn process_output(&self) -> ProcessOutput {
        self.server.process_log.output()
    }
}
