//! A server that each principal reaches with credentials of its own: a [`Server`] for each, so that nothing that belongs to
//! one (connections, sessions, lists, tasks, what was found out of the server) can reach another.
//!
//! It is started by the first request of a principal that has credentials, and ended once it has not been used for as long as a
//! session of a client may be.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, Caller, Interest, Listen, Listening,
    Pending, Principal, ProcessOutput, ServerMessage, ServerMessages, SessionKey,
};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Json, Method, Notification, Response};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backend::BackendLife;
use crate::connect_tool;
use crate::credentials::{CredentialSource, NoCredentials, PrincipalCredentials};
use crate::open_wishes::OpenWishes;
use crate::replicas::Places;
use crate::server::Server;
use crate::settings::{BackendSettings, Secret, TransportSettings};

/// What a server that nobody has signed in to may have: a client asks only for the lists that it is promised.
const UNKNOWN_CAPABILITIES: &str =
    r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;

/// How long a call waits for its user, who is signing in: people take some seconds, and clients give calls up after a minute.
const LONGEST_SIGN_IN: Duration = Duration::from_secs(50);

/// Most processes of one principal for sessions that cannot share one. No option: `limits.processes` bounds the principals.
const SESSION_PROCESSES: usize = 8;

const LIST_CHANGES: [Method; 3] = [Method::ToolsChanged, Method::PromptsChanged, Method::ResourcesChanged];

/// One MCP server with credentials for each principal.
pub struct BackendPerPrincipal {
    name: Arc<str>,
    credentials: Arc<dyn PrincipalCredentials>,
    settings: BackendSettings,
    /// Of its endpoints, if it has several.
    places: Option<Places>,
    /// That of `settings`, with secrets as they are now.
    transport: Mutex<TransportSettings>,
    members: Mutex<HashMap<Principal, Member>>,
    watchers: Arc<Watchers>,
    wishes: Arc<OpenWishes>,
    /// This, for tasks that do not keep it alive.
    itself: Weak<Self>,
    life: BackendLife,
    shutdown: CancellationToken,
}

/// Those who are told that lists may have changed: Fanlight's own listening.
#[derive(Default)]
struct Watchers(Mutex<Vec<ServerMessages>>);

/// The backend of one principal.
struct Member {
    server: Server,
    source: Arc<dyn CredentialSource>,
    /// The variables that its process was given.
    environment: Vec<(String, Secret)>,
    used: Instant,
    /// Held by whatever uses it.
    uses: Arc<()>,
}

/// The backend of one principal, which is not ended for being idle as long as this is held.
struct Lease {
    backend: Arc<dyn BackendClient>,
    _use: Arc<()>,
}

impl Member {
    fn lease(&mut self) -> Lease {
        self.used = Instant::now();
        Lease { backend: self.server.client(), _use: Arc::clone(&self.uses) }
    }

    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.uses) == 1
    }

    fn is_idle(&self, idle: Duration) -> bool {
        self.is_unused() && self.used.elapsed() >= idle
    }
}

impl BackendPerPrincipal {
    /// Connects nowhere until a principal with credentials sends a request. At most `settings.limits.sessions` principals
    /// have connections at the same time. `shutdown` ends all of them, as [`BackendLife::stop`] does, but without waiting.
    ///
    /// Needs a tokio runtime around it.
    #[must_use]
    pub fn start(
        settings: BackendSettings,
        credentials: Arc<dyn PrincipalCredentials>,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let shutdown = shutdown.child_token();
        let name: Arc<str> = settings.name.as_str().into();
        let life = BackendLife::new(&name, settings.timeouts.process_stop, shutdown.clone());
        let itself = Arc::new_cyclic(|itself| Self {
            name,
            credentials,
            transport: Mutex::new(settings.transport.clone()),
            places: Places::of(&settings),
            settings,
            members: Mutex::default(),
            watchers: Arc::default(),
            wishes: Arc::default(),
            itself: Weak::clone(itself),
            life,
            shutdown,
        });
        let (idle, end) = (itself.settings.timeouts.session_idle, itself.shutdown.clone());
        let tended = tend(Arc::downgrade(&itself), Arc::clone(&itself.credentials), idle);
        itself.life.spawn(async move {
            end.run_until_cancelled(tended).await;
        });
        itself
    }

    /// Sends the headers of `settings` from the next message on, as `Backend::use_credentials` does.
    pub fn use_credentials(&self, settings: &BackendSettings) {
        *self.transport.lock().unwrap_or_else(PoisonError::into_inner) = settings.transport.clone();
        self.servers().iter().for_each(|server| server.use_credentials(settings));
    }

    /// Ends it without keeping it alive.
    #[must_use]
    pub fn life(&self) -> BackendLife {
        self.life.clone()
    }

    /// The backend of a caller.
    async fn of(&self, caller: &Caller) -> Result<Lease, BackendError> {
        if self.shutdown.is_cancelled() {
            return Err(BackendError::ShuttingDown);
        }
        let principal = &owner(caller);
        let known = self.members().get(principal).map(|member| Arc::clone(&member.source));
        // Not under the lock: whoever has the credentials may look them up.
        let source = known.unwrap_or_else(|| self.credentials.of(principal));
        let environment = match (source.sign_in(), source.environment()) {
            (Some(wish), _) => Err(NoCredentials::SignIn(wish)),
            (None, Some(environment)) => environment.await,
            (None, None) => Ok(Vec::new()),
        };
        match environment {
            Ok(environment) => self.member(principal, source, environment),
            Err(missing) => {
                self.forget(caller);
                Err(missing.into())
            }
        }
    }

    /// The backend of a principal, which is started if there is none. One whose process has other variables by now is replaced
    /// once nothing uses it.
    fn member(
        &self,
        principal: &Principal,
        source: Arc<dyn CredentialSource>,
        environment: Vec<(String, Secret)>,
    ) -> Result<Lease, BackendError> {
        let mut members = self.members();
        if let Some(member) = members.get_mut(principal)
            && (member.environment == environment || !member.is_unused())
        {
            return Ok(member.lease());
        }
        // Dropped once the lock is free.
        let _outdated = members.remove(principal);
        if members.len() >= self.settings.limits.sessions.max(1) && !remove_unused(&mut members) {
            return Err(BackendError::TooManySessions { limit: self.settings.limits.sessions });
        }
        let server =
            Server::at(self.settings_of(&source, &environment), self.places.clone(), None, self.shutdown.clone());
        let life = server.life();
        let mut member = Member { server, source, environment, used: Instant::now(), uses: Arc::default() };
        let lease = member.lease();
        members.insert(principal.clone(), member);
        drop(members);
        self.watch(&lease.backend, life);
        Ok(lease)
    }

    /// The settings of the backend of one principal.
    fn settings_of(&self, source: &Arc<dyn CredentialSource>, environment: &[(String, Secret)]) -> BackendSettings {
        let mut settings = self.settings.clone();
        settings.transport = self.transport.lock().unwrap_or_else(PoisonError::into_inner).clone();
        settings.credentials = Some(Arc::clone(source));
        if let TransportSettings::Stdio { env, .. } = &mut settings.transport {
            env.extend_from_slice(environment);
            settings.limits.sessions = settings.limits.sessions.min(SESSION_PROCESSES);
        }
        settings
    }

    /// The backend of a caller. Where its user is signing in at this moment, the end of that is waited for: a user who has
    /// followed a link need not ask again.
    async fn once_signed_in(&self, caller: &Caller) -> Result<Lease, BackendError> {
        let found = self.of(caller).await;
        if !found.as_ref().is_err_and(|error| error.sign_in().is_some()) {
            return found;
        }
        let Some(signing_in) = self.credentials.of(&owner(caller)).signing_in() else { return found };
        let _ = self.shutdown.run_until_cancelled(timeout(LONGEST_SIGN_IN, signing_in)).await;
        self.of(caller).await
    }

    /// Sends a request to the backend of its caller.
    async fn ask(&self, call: Call) -> Result<Response, BackendError> {
        let caller = call.context.caller.clone();
        let lease = match call.method {
            Method::CallTool => self.once_signed_in(&caller).await?,
            _ => self.of(&caller).await?,
        };
        let answer = lease.backend.request(call).await;
        // One that could not connect for want of credentials begins anew once there are some.
        let is_ready = || matches!(lease.backend.status().state, BackendState::Ready);
        if answer.as_ref().is_err_and(|error| error.sign_in().is_some()) && !is_ready() {
            self.forget(&caller);
        }
        answer
    }

    /// Answers a call of the tool `connect`, which is the server's own if it lists one.
    async fn connect(&self, call: Call) -> Result<Response, BackendError> {
        self.once_signed_in(&call.context.caller).await?;
        match connect_tool::is_listed(self, &call.context, self.settings.limits.list_pages).await? {
            true => self.ask(call).await,
            false => Ok(connect_tool::connected(&self.name)),
        }
    }

    /// Has changes of a principal's lists announced.
    fn watch(&self, backend: &Arc<dyn BackendClient>, life: BackendLife) {
        let (watched, watchers) = (Arc::downgrade(backend), Arc::clone(&self.watchers));
        let pause = self.settings.timeouts.reconnect.longest;
        let listening = async move {
            while let Some(backend) = watched.upgrade() {
                let (messages, _receiver) = ServerMessages::channel(1);
                let watchers = Arc::clone(&watchers);
                let messages = messages.mapped(move |message| {
                    watchers.tell(&message);
                    None
                });
                let interest = Interest { tools: true, prompts: true, resources: true, ..Interest::default() };
                let listen = Listen { interest, context: CallContext::internal(), messages };
                let listening = backend.listen(listen).await;
                drop(backend);
                match listening {
                    Ok(_until_the_end) => std::future::pending().await,
                    Err(_) => sleep(pause).await,
                }
            }
        };
        self.life.spawn(async move {
            tokio::select! {
                () = listening => {}
                () = life.unused() => {}
            }
        });
    }

    /// A principal has signed in or out: what it may see has changed.
    async fn announce_change(&self) {
        for change in LIST_CHANGES {
            self.watchers.tell(&ServerMessage::Notification(Notification::new(change, None)));
        }
        for principal in self.wishes.principals() {
            if self.credentials.of(&principal).are_there().await {
                self.wishes.fulfilled(&principal);
            }
        }
    }

    /// Listens for a principal that has not signed in: to nothing before it has.
    fn listen_once_signed_in(&self, listen: Listen) -> Listening {
        let (end, itself, credentials) =
            (self.shutdown.child_token(), Weak::clone(&self.itself), Arc::clone(&self.credentials));
        let (guard, honoured) = (end.clone().drop_guard(), lists_of(&listen.interest));
        let listening = async move {
            loop {
                let changed = credentials.changed();
                let Some(server) = itself.upgrade() else { return };
                let lease = server.of(&listen.context.caller).await;
                drop(server);
                if let Ok(lease) = lease
                    && let Ok(_until_the_end) = lease.backend.listen(listen.clone()).await
                {
                    std::future::pending::<()>().await;
                }
                changed.await;
            }
        };
        self.life.spawn(async move {
            end.run_until_cancelled(listening).await;
        });
        Listening::new(honoured, guard)
    }

    /// Ends the backends that nothing has used for a while.
    fn end_idle(&self, idle: Duration) {
        // Dropped once the lock is free.
        let ended: Vec<_> = self.members().extract_if(|_, member| member.is_idle(idle)).collect();
        drop(ended);
    }

    /// All that are running, to be used without the lock.
    fn servers(&self) -> Vec<Server> {
        self.members().values().map(|member| member.server.clone()).collect()
    }

    fn members(&self) -> MutexGuard<'_, HashMap<Principal, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the backend of a principal whose credentials have turned out to be gone.
    fn forget(&self, caller: &Caller) {
        let gone = self.members().remove(&owner(caller));
        drop(gone);
    }

    /// What the server says of itself, or may say once its user has signed in.
    fn or_placeholder(
        &self,
        described: Result<ServerDescription, BackendError>,
    ) -> Result<ServerDescription, BackendError> {
        if !described.as_ref().is_err_and(|error| error.sign_in().is_some()) {
            return described;
        }
        let mut info = ObjectBuilder::new();
        info.string("name", &self.name).string("version", "");
        let mut description = ObjectBuilder::new();
        description.member("capabilities", &Json::literal(UNKNOWN_CAPABILITIES)).member("serverInfo", &info.finish());
        Ok(description.finish().into())
    }
}

/// Whose credentials a caller uses. What Fanlight asks for on its own behalf it asks for as every client that is not
/// authenticated: where clients are, nobody has credentials for that.
fn owner(caller: &Caller) -> Principal {
    if caller.is_gateway() { Principal::anonymous() } else { caller.principal().clone() }
}

/// Removes the backend that was used longest ago, if any is not in use. Returns whether there was one.
fn remove_unused(members: &mut HashMap<Principal, Member>) -> bool {
    let unused = members.iter().filter(|(_, member)| member.is_unused());
    let oldest = unused.min_by_key(|(_, member)| member.used).map(|(principal, _)| principal.clone());
    oldest.is_some_and(|oldest| members.remove(&oldest).is_some())
}

/// Announces changes of who has signed in, and ends what is idle.
async fn tend(of: Weak<BackendPerPrincipal>, credentials: Arc<dyn PrincipalCredentials>, idle: Duration) {
    let mut changed = credentials.changed();
    loop {
        tokio::select! {
            () = &mut changed => {
                changed = credentials.changed();
                let Some(backend) = of.upgrade() else { return };
                backend.announce_change().await;
            }
            () = sleep(idle / 2) => {
                let Some(backend) = of.upgrade() else { return };
                backend.end_idle(idle);
            }
        }
    }
}

impl Drop for BackendPerPrincipal {
    fn drop(&mut self) {
        self.life.end();
    }
}

impl BackendClient for BackendPerPrincipal {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        Box::pin(async move {
            self.or_placeholder(match self.of(&Caller::gateway()).await {
                Ok(lease) => lease.backend.describe().await,
                Err(error) => Err(error),
            })
        })
    }

    fn describe_to<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        Box::pin(async move {
            self.or_placeholder(match self.of(&client.caller).await {
                Ok(lease) => lease.backend.describe_to(client).await,
                Err(error) => Err(error),
            })
        })
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        let has_connect_tool = self.credentials.has_connect_tool();
        let is_listed = has_connect_tool && call.method == Method::ListTools;
        Box::pin(async move {
            let context = Arc::clone(&call.context);
            let answer = match has_connect_tool && connect_tool::is_called(&call) {
                true => self.connect(call).await,
                false => self.ask(call).await,
            };
            let wish = answer.as_ref().err().and_then(BackendError::sign_in);
            if is_listed && wish.is_some() {
                return Ok(connect_tool::list(&self.name));
            }
            wish.iter().for_each(|wish| self.wishes.given(&context, wish));
            answer
        })
    }

    /// Not for a caller without credentials: nothing of it could be sent.
    fn is_safe<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            match self.of(&call.context.caller).await {
                Ok(lease) => lease.backend.is_safe(call).await,
                Err(_) => false,
            }
        })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(async move {
            // Fanlight's own listening is told of changes of anybody's lists.
            if listen.context.caller.is_gateway() {
                let honoured = lists_of(&listen.interest);
                self.watchers.add(listen.messages);
                return Ok(Listening::new(honoured, ()));
            }
            let told = self.wishes.listen(&listen);
            let (listening, lease) = match self.of(&listen.context.caller).await {
                Ok(lease) => (lease.backend.listen(listen).await?, Some(lease)),
                Err(error) if error.sign_in().is_some() => (self.listen_once_signed_in(listen), None),
                Err(error) => return Err(error),
            };
            let honoured = listening.honoured.clone();
            Ok(Listening::new(honoured, (listening, lease, told)))
        })
    }

    fn notify<'a>(&'a self, notification: &'a Notification, client: &'a CallContext) -> Pending<'a, ()> {
        let backend = self.members().get(&owner(&client.caller)).map(|member| member.server.client());
        Box::pin(async move {
            match backend {
                Some(backend) => backend.notify(notification, client).await,
                None => Ok(()),
            }
        })
    }

    fn end_session(&self, session: SessionKey) {
        self.wishes.end_session(session);
        self.servers().iter().for_each(|server| server.client().end_session(session));
    }

    fn knows_principals(&self) -> bool {
        true
    }

    /// That of any principal's processes, if one has written something.
    fn process_output(&self) -> ProcessOutput {
        let mut outputs = self.servers().into_iter().map(|server| server.client().process_output());
        outputs.find(|output| *output != ProcessOutput::default()).unwrap_or_default()
    }

    fn stand_in(&self) -> Option<&'static str> {
        self.credentials.has_connect_tool().then_some(connect_tool::NAME)
    }

    /// That of a connection that is ready, if any is, and else of any.
    fn status(&self) -> BackendStatus {
        let all = self.servers();
        let mut statuses = all.iter().map(|server| server.client().status());
        let first = statuses.next();
        let is_ready = |status: &BackendStatus| matches!(status.state, BackendState::Ready);
        let best = match first {
            Some(first) if is_ready(&first) => Some(first),
            first => statuses.find(is_ready).or(first),
        };
        best.unwrap_or(BackendStatus {
            attempted: true,
            state: BackendState::Idle,
            era: None,
            revision: None,
            transport: match self.settings.transport {
                TransportSettings::Stdio { .. } => "stdio",
                _ => "http",
            },
            starting: None,
            failure: None,
        })
    }
}

impl Watchers {
    fn add(&self, watcher: ServerMessages) {
        let mut watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(ServerMessages::is_connected);
        watchers.push(watcher);
    }

    /// Tells all of them what a server has announced. What does not fit is lost, as with any listener.
    fn tell(&self, message: &ServerMessage) {
        let ServerMessage::Notification(notification) = message else { return };
        let watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for watcher in watchers {
            let _ = watcher.try_send(ServerMessage::Notification(notification.clone()));
        }
    }
}

/// The lists of an interest.
fn lists_of(interest: &Interest) -> Interest {
    let Interest { tools, prompts, resources, .. } = *interest;
    Interest { tools, prompts, resources, ..Interest::default() }
}
