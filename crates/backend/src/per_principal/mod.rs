//! A server that each principal reaches with its own credentials. Each principal has a separate
//! [`Server`](crate::Server). So no connection, session, list, task or finding of one principal can
//! reach another.
//!
//! The first request of a principal with credentials starts its server. The server ends after being
//! unused for as long as a client's session may be.

mod apart;
mod members;

use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, Caller, Interest,
    Listen, Listening, Outcome, Pending, Principal, ProcessOutput, RunningProcess, ServerMessage,
    ServerMessages, SessionKey,
};
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_protocol::result::{ListToolsResult, ResultView as _, ServerDescription};
use fanlight_protocol::subscription::Change;
use fanlight_protocol::{Json, Method, Notification, Response};
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::backend::BackendLife;
use crate::credentials::{NoCredentials, PrincipalCredentials};
use crate::open_wishes::OpenWishes;
use crate::process_log::ProcessLog;
use crate::settings::{BackendSettings, TransportSettings, list_pages, process_log_kept};
use members::{Lease, Members, Own};

pub use apart::BackendApart;

/// The assumed capabilities of a server before anybody has signed in. A client requests only lists
/// that are promised.
const UNKNOWN_CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;

/// How long a call waits for a user's sign-in in progress. People take some seconds, and clients
/// give up after a minute.
const LONGEST_SIGN_IN: Duration = Duration::from_secs(50);
/// The wait for the user of a call that has accepted a link, while nobody signs in.
const UNUSED_LINK: Duration = Duration::from_secs(5);

/// An MCP server with separate credentials for each principal.
pub struct BackendPerPrincipal {
    name: Arc<str>,
    credentials: Arc<dyn PrincipalCredentials>,
    members: Members,
    wishes: Arc<OpenWishes>,
    /// A reference for tasks that do not keep the server alive.
    itself: Weak<Self>,
    shutdown: CancellationToken,
}

impl BackendPerPrincipal {
    /// Creates the server without a connection. Connections begin when a principal with credentials
    /// sends a request. At most `settings.limits.sessions` principals have connections at the same
    /// time. `shutdown` ends all of them as [`BackendLife::stop`] does, but without waiting.
    ///
    /// Needs a tokio runtime around it.
    pub fn start(
        settings: BackendSettings,
        credentials: Arc<dyn PrincipalCredentials>,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let shutdown = shutdown.child_token();
        let (idle, log) = (
            settings.timeouts.session_idle,
            ProcessLog::new(process_log_kept()),
        );
        let itself = Arc::new_cyclic(|itself| Self {
            name: settings.name.as_str().into(),
            credentials,
            members: Members::new(settings, Arc::new(log), shutdown.clone()),
            wishes: Arc::default(),
            itself: Weak::clone(itself),
            shutdown,
        });
        let (of, end) = (Arc::downgrade(&itself), itself.shutdown.clone());
        let announced = announce_changes(Weak::clone(&of), Arc::clone(&itself.credentials));
        itself.members.life.spawn(async move {
            let tended = Members::tend(of, idle, |of: &Self| &of.members);
            end.run_until_cancelled(async { tokio::join!(tended, announced) })
                .await;
        });
        itself
    }

    /// Sends the headers in `settings` from the next message on, as `Backend::use_credentials`
    /// does.
    pub fn use_credentials(&self, settings: &BackendSettings) {
        self.members.use_credentials(settings);
    }

    /// A handle that can end the server but does not keep it alive.
    pub fn life(&self) -> BackendLife {
        self.members.life.clone()
    }

    /// The server of a caller.
    async fn of(&self, caller: &Caller) -> Result<Lease, BackendError> {
        if self.shutdown.is_cancelled() {
            return Err(BackendError::ShuttingDown);
        }
        let principal = &owner(caller);
        // Outside of the lock, since looking up credentials may take time.
        let source = self
            .members
            .source(principal)
            .unwrap_or_else(|| self.credentials.of(principal));
        let environment = match (source.sign_in(), source.environment()) {
            (Some(wish), _) => Err(NoCredentials::SignIn(wish)),
            (None, Some(environment)) => environment.await,
            (None, None) => Ok(Vec::new()),
        };
        match environment {
            Ok(environment) => self.members.lease(
                principal,
                Own {
                    source: Some(source),
                    environment,
                },
            ),
            Err(missing) => {
                self.members.forget(principal);
                Err(missing.into())
            }
        }
    }

    /// The server of a caller. If the user is signing in right now, or has accepted the link to do
    /// so, waits for that: a user who follows a link need not be asked again.
    async fn once_signed_in(&self, client: &CallContext) -> Result<Lease, BackendError> {
        let caller = &client.caller;
        let found = self.of(caller).await;
        if !found.as_ref().is_err_and(|error| error.sign_in().is_some()) {
            return found;
        }
        let signing_in = || self.credentials.of(&owner(caller)).signing_in();
        let mut begun = signing_in();
        if begun.is_none() {
            if client.has_accepted_link.get().is_none() {
                return found;
            }
            // The link may be one of an earlier sign-in, which the server does not accept any more.
            let there = timeout(UNUSED_LINK, self.has_credentials(caller));
            let _ = self.shutdown.run_until_cancelled(there).await;
            begun = signing_in();
        }
        if let Some(begun) = begun {
            let signed_in = timeout(LONGEST_SIGN_IN, begun);
            let _ = self.shutdown.run_until_cancelled(signed_in).await;
        }
        self.of(caller).await
    }

    /// Waits until there are credentials for a caller.
    async fn has_credentials(&self, caller: &Caller) {
        loop {
            let changed = self.credentials.changed();
            if self.credentials.of(&owner(caller)).are_there().await {
                return;
            }
            changed.await;
        }
    }

    /// Sends a request to its caller's server.
    async fn ask(&self, call: Call) -> Result<Response, BackendError> {
        let caller = call.context.caller.clone();
        let lease = match call.method {
            Method::CallTool => self.once_signed_in(&call.context).await?,
            _ => self.of(&caller).await?,
        };
        let answer = lease.backend.request(call).await;
        // A server that could not connect for lack of credentials is replaced when there are some.
        let is_ready = || matches!(lease.backend.status().state, BackendState::Ready);
        if answer
            .as_ref()
            .is_err_and(|error| error.sign_in().is_some())
            && !is_ready()
        {
            self.members.forget(&owner(&caller));
        }
        answer
    }

    /// Answers a call of the tool `connect`, or passes it on if the server itself lists that tool.
    async fn connect(&self, call: Call) -> Result<Response, BackendError> {
        self.once_signed_in(&call.context).await?;
        match is_listed(self, &call.context, list_pages()).await? {
            true => self.ask(call).await,
            false => Ok(connected(&self.name)),
        }
    }

    /// Announces that lists have changed, since a principal has signed in or out.
    async fn announce_change(&self) {
        for change in Change::ALL {
            self.members
                .watchers
                .tell(&ServerMessage::Notification(Notification::new(
                    change.method(),
                    None,
                )));
        }
        for principal in self.wishes.principals() {
            if self.credentials.of(&principal).are_there().await {
                self.wishes.fulfilled(&principal);
            }
        }
    }

    /// Listens for a principal that has not signed in; begins after the sign-in.
    fn listen_once_signed_in(&self, listen: Listen) -> Listening {
        let (end, itself, credentials) = (
            self.shutdown.child_token(),
            Weak::clone(&self.itself),
            Arc::clone(&self.credentials),
        );
        let (guard, honoured) = (
            end.clone().drop_guard(),
            Interest::from(listen.interest.lists),
        );
        let listening = async move {
            loop {
                let changed = credentials.changed();
                let Some(server) = itself.upgrade() else {
                    return;
                };
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
        self.members.life.spawn(async move {
            end.run_until_cancelled(listening).await;
        });
        Listening::new(honoured, guard)
    }

    /// The server's description, or the assumed one before the user has signed in.
    fn or_placeholder(
        &self,
        described: Result<ServerDescription, BackendError>,
    ) -> Result<ServerDescription, BackendError> {
        if !described
            .as_ref()
            .is_err_and(|error| error.sign_in().is_some())
        {
            return described;
        }
        let mut info = ObjectBuilder::new();
        info.string("name", &self.name).string("version", "");
        let mut description = ObjectBuilder::new();
        description
            .member("capabilities", &Json::literal(UNKNOWN_CAPABILITIES))
            .member("serverInfo", &info.finish());
        Ok(description.finish().into())
    }
}

/// The principal whose credentials a caller uses. Fanlight's own requests use the credentials of
/// unauthenticated clients; if clients are authenticated, there are none.
fn owner(caller: &Caller) -> Principal {
    if caller.is_gateway() {
        Principal::anonymous()
    } else {
        caller.principal().clone()
    }
}

/// Announces changes of signed-in users.
async fn announce_changes(
    of: Weak<BackendPerPrincipal>,
    credentials: Arc<dyn PrincipalCredentials>,
) {
    let mut changed = credentials.changed();
    loop {
        changed.await;
        changed = credentials.changed();
        let Some(backend) = of.upgrade() else { return };
        backend.announce_change().await;
    }
}

impl Drop for BackendPerPrincipal {
    fn drop(&mut self) {
        self.members.life.end();
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
            let answer = match has_connect_tool && is_called(&call) {
                true => self.connect(call).await,
                false => self.ask(call).await,
            };
            let wish = answer.as_ref().err().and_then(BackendError::sign_in);
            if is_listed && wish.is_some() {
                return Ok(list(&self.name));
            }
            wish.iter()
                .for_each(|wish| self.wishes.given(&context, wish));
            answer
        })
    }

    /// False for a caller without credentials: nothing could be sent for it.
    fn is_safe<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match self.of(&call.context.caller).await {
                Ok(lease) => lease.backend.is_safe(call).await,
                Err(_) => false,
            }
        })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(async move {
            // Fanlight listens to changes of everybody's lists.
            if listen.context.caller.is_gateway() {
                let honoured = Interest::from(listen.interest.lists);
                self.members.watchers.add(listen.messages);
                return Ok(Listening::new(honoured, ()));
            }
            self.wishes.listen(&listen);
            let (listening, lease) = match self.of(&listen.context.caller).await {
                Ok(lease) => (lease.backend.listen(listen).await?, Some(lease)),
                Err(error) if error.sign_in().is_some() => {
                    (self.listen_once_signed_in(listen), None)
                }
                Err(error) => return Err(error),
            };
            let honoured = listening.honoured.clone();
            Ok(Listening::new(honoured, (listening, lease)))
        })
    }

    fn notify<'a>(
        &'a self,
        notification: &'a Notification,
        client: &'a CallContext,
    ) -> Pending<'a, ()> {
        let lease = self.members.existing(&owner(&client.caller));
        Box::pin(async move {
            match lease {
                Some(lease) => lease.backend.notify(notification, client).await,
                None => Ok(()),
            }
        })
    }

    /// Continues it with the user's current credentials.
    fn continue_session(&self, client: &Arc<CallContext>) {
        if !client
            .caller
            .server_sessions()
            .is_some_and(|sessions| sessions.are_waiting_at(&self.name))
        {
            return;
        }
        let (itself, client, end) = (
            Weak::clone(&self.itself),
            Arc::clone(client),
            self.shutdown.clone(),
        );
        let continued = async move {
            let Some(server) = itself.upgrade() else {
                return;
            };
            if let Ok(lease) = server.of(&client.caller).await {
                lease.backend.continue_session(&client);
            }
        };
        self.members.life.spawn(async move {
            end.run_until_cancelled(continued).await;
        });
    }

    fn end_session(&self, session: SessionKey) {
        self.wishes.end_session(session);
        self.members
            .servers()
            .iter()
            .for_each(|server| server.client().end_session(session));
    }

    fn knows_principals(&self) -> bool {
        true
    }

    fn processes(&self) -> Vec<RunningProcess> {
        self.members.process_log.running()
    }

    fn process_output(&self) -> ProcessOutput {
        self.members.process_log.output()
    }

    fn stand_in(&self) -> Option<&'static str> {
        self.credentials.has_connect_tool().then_some(NAME)
    }

    /// The status of the connection in the best state. A user's refused credentials say nothing
    /// about the server.
    fn status(&self) -> BackendStatus {
        let all = self.members.servers();
        let statuses = all.iter().map(|server| server.client().status());
        let of_server = statuses.map(|status| match &status.state {
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
        best.unwrap_or(BackendStatus {
            attempted: true,
            state: BackendState::Idle,
            era: None,
            revision: None,
            transport: match self.members.settings.transport {
                TransportSettings::Stdio { .. } => "stdio",
                _ => "http",
            },
            starting: None,
            failure: None,
        })
    }
}

pub(crate) const NAME: &str = "connect";

/// The tool list of a server whose user has not signed in. It is private to that user (2026-07-28
/// server/utilities/caching), as is the list that replaces it.
pub(crate) fn list(server: &str) -> Response {
    let mut tool = ObjectBuilder::new();
    tool.string("name", NAME)
        .string("title", &format!("Connect to {server}"))
        .string(
            "description",
            &format!(
                "Asks the user to sign in to {server:?}. Its tools are listed once the user has."
            ),
        )
        .member(
            "inputSchema",
            &Json::literal(r#"{"type":"object","properties":{}}"#),
        );
    let mut result = ObjectBuilder::new();
    result
        .member("tools", &only(&tool.finish()))
        .integer("ttlMs", 0)
        .string("cacheScope", "private");
    Response::from_result(&result.finish())
}

/// A list of one element.
fn only(element: &Json) -> Json {
    let mut list = ArrayBuilder::default();
    list.push(element);
    list.finish()
}

/// Whether a call is to this tool.
pub(crate) fn is_called(call: &Call) -> bool {
    call.method == Method::CallTool
        && call
            .params
            .as_ref()
            .and_then(|params| params.get("name"))
            .is_some_and(|name| name.is_str(NAME))
}

/// The answer to a call of a user who has already signed in.
pub(crate) fn connected(server: &str) -> Response {
    let mut text = ObjectBuilder::new();
    text.string("type", "text").string(
        "text",
        &format!("Already connected to {server:?}: its tools can be used."),
    );
    let mut result = ObjectBuilder::new();
    result.member("content", &only(&text.finish()));
    Response::from_result(&result.finish())
}

/// Whether this user's server itself lists a tool with this name. Reads at most `pages` pages of
/// its list.
pub(crate) async fn is_listed(
    server: &impl BackendClient,
    context: &CallContext,
    pages: usize,
) -> Result<bool, BackendError> {
    let capabilities = CallContext::list_capabilities();
    let context =
        CallContext::for_lists_of(context.caller.principal(), capabilities, &context.trace);
    let mut params = None;
    for _ in 0..pages {
        let (method, context) = (Method::ListTools, Arc::clone(&context));
        let asked = server
            .request(Call {
                method,
                params,
                context,
                messages: ServerMessages::discard(),
            })
            .await?;
        let Some(page) = asked.view::<ListToolsResult>() else {
            return Ok(false);
        };
        if page.json().get("tools").is_some_and(|tools| has_it(&tools)) {
            return Ok(true);
        }
        let Some(cursor) = page.next_cursor().filter(|cursor| !cursor.is_null()) else {
            return Ok(false);
        };
        let mut next = ObjectBuilder::new();
        next.member("cursor", &cursor);
        params = Some(next.finish());
    }
    Ok(false)
}

fn has_it(tools: &Json) -> bool {
    let mut named = tools.elements().map(|tool| tools.slice(tool).get("name"));
    named.any(|name| name.is_some_and(|name| name.is_str(NAME)))
}
