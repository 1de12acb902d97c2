//! A server that each principal reaches with its own credentials. Each principal has a separate
//! [`Group`](super::group::Group). So no connection, session, list, task or finding of one
//! principal can reach another.
//!
//! The first request of a principal with credentials starts its group. The group ends after being
//! unused for as long as a client's session may be.
//!
//! A client with a session is notified when its user has signed in. Modern clients repeat the call,
//! since their revision has no such notification (2025-11-25 client/elicitation, Completion
//! Notifications for URL Mode Elicitation).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    BackendError, BackendState, Call, CallContext, Caller, Interest, Listen, Listening, Principal,
    ServerMessage, ServerMessages, SessionKey, SignInWish,
};
use fanlight_protocol::method::ELICITATION_COMPLETE;
use fanlight_protocol::result::{ListToolsResult, ResultView as _, ServerDescription};
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::{
    ClientCapability, Json, Method, MissingCapability, Notification, ObjectBuilder, Response,
};
use futures_util::FutureExt as _;
use futures_util::future::join;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::ServerParts;
use super::members::{Lease, Members, Own};
use crate::credentials::{CredentialSource, NoCredentials, PrincipalCredentials};
use crate::settings::{BackendSettings, list_pages};

/// The assumed capabilities of a server before anybody has signed in. A client requests only lists
/// that are promised.
const UNKNOWN_CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;

/// How long a call waits for a user's sign-in in progress. People take some seconds, and clients
/// give up after a minute, which includes [`UNUSED_LINK`].
const LONGEST_SIGN_IN: Duration = Duration::from_secs(40);
/// The wait for the user of a call that has accepted a link, until they agree on the page that the
/// link opens.
const UNUSED_LINK: Duration = Duration::from_secs(15);

/// The connections with each principal's own credentials.
pub(super) struct PerPrincipal {
    server: Arc<ServerParts>,
    pub(super) credentials: Arc<dyn PrincipalCredentials>,
    pub(super) members: Arc<Members>,
    pub(super) wishes: OpenWishes,
    /// A weak reference to this value, for tasks that must not keep the server alive.
    itself: Weak<Self>,
}

impl PerPrincipal {
    /// Creates the server without connecting to it. At most `settings.limits.sessions` principals
    /// have connections at the same time.
    pub(super) fn start(
        settings: BackendSettings,
        credentials: Arc<dyn PrincipalCredentials>,
        server: &Arc<ServerParts>,
    ) -> Arc<Self> {
        let idle = settings.timeouts.session_idle;
        let itself = Arc::new_cyclic(|itself| Self {
            credentials,
            members: Members::new(settings, server, idle),
            wishes: OpenWishes::default(),
            itself: Weak::clone(itself),
            server: Arc::clone(server),
        });
        let fulfilled = fulfil_wishes(Arc::downgrade(&itself), Arc::clone(&itself.credentials));
        server.spawn(fulfilled);
        itself
    }

    fn source(&self, principal: &Principal) -> Arc<dyn CredentialSource> {
        let kept = self.members.source(principal);
        kept.unwrap_or_else(|| self.credentials.source(principal))
    }

    /// The group of a caller.
    async fn lease(&self, caller: &Caller) -> Result<Lease, BackendError> {
        if self.server.shutdown.is_cancelled() {
            return Err(BackendError::ShuttingDown);
        }
        let principal = &owner(caller);
        // Outside of the lock, since looking up credentials may take time.
        let source = self.source(principal);
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

    /// Waits for the user, if they are signing in right now or have accepted the link to do so: a
    /// user who follows a link need not be asked again. Returns whether there was a reason to wait.
    async fn await_sign_in(&self, client: &CallContext) -> bool {
        let caller = &client.caller;
        let signing_in = || self.credentials.source(&owner(caller)).signing_in();
        let mut begun = signing_in();
        if begun.is_none() {
            if client.has_accepted_link.get().is_none() {
                return false;
            }
            // The link may be one of an earlier sign-in, which the server does not accept any more.
            let there = timeout(UNUSED_LINK, self.has_credentials(caller));
            let _ = self.server.shutdown.run_until_cancelled(there).await;
            begun = signing_in();
        }
        if let Some(begun) = begun {
            let signed_in = timeout(LONGEST_SIGN_IN, begun);
            let _ = self.server.shutdown.run_until_cancelled(signed_in).await;
        }
        true
    }

    /// Waits until there are credentials for a caller.
    async fn has_credentials(&self, caller: &Caller) {
        loop {
            let changed = self.credentials.changed();
            if self.credentials.source(&owner(caller)).are_there().await {
                return;
            }
            changed.await;
        }
    }

    /// Sends a request to its caller's server.
    async fn ask(&self, call: Call) -> Result<Response, BackendError> {
        let caller = call.context.caller.clone();
        let lease = self.lease(&caller).await?;
        let answer = lease.group.request(call).await;
        // A server that could not connect for lack of credentials is replaced when there are some.
        let is_ready = || matches!(lease.group.status().state, BackendState::Ready);
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
        self.lease(&call.context.caller).await?;
        if self.is_listed(&call.context).await? {
            self.ask(call).await
        } else {
            Ok(connected(&self.server.name))
        }
    }

    /// Listens for a principal that has not signed in; begins after the sign-in.
    fn listen_once_signed_in(&self, listen: Listen) -> Listening {
        let (itself, credentials) = (Weak::clone(&self.itself), Arc::clone(&self.credentials));
        let honoured = Interest::from(listen.interest.lists);
        let listening = async move {
            loop {
                let changed = credentials.changed();
                let Some(server) = itself.upgrade() else {
                    return;
                };
                let lease = server.lease(&listen.context.caller).await;
                drop(server);
                if let Ok(lease) = lease
                    && let Ok(_until_the_end) = lease.group.listen(listen.clone()).await
                {
                    std::future::pending::<()>().await;
                }
                changed.await;
            }
        };
        Listening::new(honoured, self.server.run(listening))
    }

    /// The server's description for a client, or the assumed one before the user has signed in.
    pub(super) async fn describe(
        &self,
        client: &CallContext,
    ) -> Result<ServerDescription, BackendError> {
        let described = match self.lease(&client.caller).await {
            Ok(lease) => lease.group.describe(client).await,
            Err(error) => Err(error),
        };
        match described {
            Err(error) if error.sign_in().is_some() => {}
            described => return described,
        }
        let info = ObjectBuilder::new()
            .string("name", &self.server.name)
            .string("version", "")
            .finish();
        let description = ObjectBuilder::new()
            .member("capabilities", &Json::literal(UNKNOWN_CAPABILITIES))
            .member("serverInfo", &info)
            .finish();
        Ok(description.into())
    }

    /// Sends a request with its caller's credentials. A call without them waits for its user's
    /// sign-in and is sent again, since the server has not run it. The tool list without them
    /// consists of the tool `connect`.
    pub(super) async fn request(&self, call: Call) -> Result<Response, BackendError> {
        let has_connect_tool = self.credentials.has_connect_tool();
        let is_listed = has_connect_tool && call.method == Method::ListTools;
        let context = Arc::clone(&call.context);
        let send = async |call: Call| {
            if has_connect_tool && is_called(&call) {
                self.connect(call).await
            } else {
                self.ask(call).await
            }
        };
        // Without an accepted link, nobody waits for a sign-in that may have been given up.
        let may_wait = call.method == Method::CallTool
            && (context.has_accepted_link.get().is_some()
                || self.source(&owner(&context.caller)).sign_in().is_some());
        let again = may_wait.then(|| call.clone());
        let mut answer = send(call).await;
        let is_refused = |error: &BackendError| error.sign_in().is_some() && !error.may_have_run();
        if let Some(again) = again
            && answer.as_ref().is_err_and(is_refused)
            && self.await_sign_in(&context).await
        {
            answer = send(again).await;
        }
        let wish = answer.as_ref().err().and_then(BackendError::sign_in);
        if is_listed && wish.is_some() {
            return Ok(list(&self.server.name));
        }
        wish.iter()
            .for_each(|wish| self.wishes.remember(&context, wish));
        answer
    }

    /// Whether a repetition of the call does no harm. False for a caller without credentials:
    /// nothing could be sent for it.
    pub(super) async fn is_safe(&self, call: &Call) -> bool {
        match self.lease(&call.context.caller).await {
            Ok(lease) => lease.group.is_safe(call).await,
            Err(_) => false,
        }
    }

    /// Begins to listen for a client.
    pub(super) async fn listen(&self, listen: Listen) -> Result<Listening, BackendError> {
        // Fanlight listens to changes of everybody's lists.
        if listen.context.caller.is_gateway() {
            let honoured = Interest::from(listen.interest.lists);
            let (credentials, messages) = (Arc::clone(&self.credentials), listen.messages.clone());
            let signing_in = announce_changes(credentials, messages);
            let following = Arc::clone(&self.members).follow(listen, None);
            let listening = join(signing_in, following).map(drop);
            return Ok(Listening::new(honoured, self.server.run(listening)));
        }
        self.wishes.listen(&listen);
        let (listening, lease) = match self.lease(&listen.context.caller).await {
            Ok(lease) => (lease.group.listen(listen).await?, Some(lease)),
            Err(error) if error.sign_in().is_some() => (self.listen_once_signed_in(listen), None),
            Err(error) => return Err(error),
        };
        let honoured = listening.honoured.clone();
        Ok(Listening::new(honoured, (listening, lease)))
    }

    /// Forwards a client's notification, if there is a connection for it.
    pub(super) async fn notify(
        &self,
        notification: &Notification,
        client: &CallContext,
    ) -> Result<(), BackendError> {
        match self.members.find_group(&owner(&client.caller)) {
            Some(lease) => lease.group.notify(notification, client).await,
            None => Ok(()),
        }
    }

    /// Continues a client's session with the user's current credentials.
    pub(super) fn continue_session(&self, client: &Arc<CallContext>) {
        if !client
            .caller
            .server_sessions()
            .is_some_and(|sessions| sessions.are_waiting_at(&self.server.name))
        {
            return;
        }
        let (itself, client) = (Weak::clone(&self.itself), Arc::clone(client));
        self.server.spawn(async move {
            let Some(server) = itself.upgrade() else {
                return;
            };
            if let Ok(lease) = server.lease(&client.caller).await {
                lease.group.continue_session(&client);
            }
        });
    }

    /// Whether this user's server itself lists a tool called `connect`. Reads a limited number of
    /// pages of its list.
    async fn is_listed(&self, context: &CallContext) -> Result<bool, BackendError> {
        let capabilities = CallContext::list_capabilities();
        let context =
            CallContext::for_lists_of(context.caller.principal(), capabilities, &context.trace);
        let mut params = None;
        for _ in 0..list_pages() {
            let call = Call::new(Method::ListTools, params, Arc::clone(&context));
            let asked = Box::pin(self.request(call)).await?;
            let Some(page) = asked.view::<ListToolsResult>() else {
                return Ok(false);
            };
            if page.json().get("tools").is_some_and(|tools| has_it(&tools)) {
                return Ok(true);
            }
            let Some(cursor) = page.next_cursor().filter(|cursor| !cursor.is_null()) else {
                return Ok(false);
            };
            let next = ObjectBuilder::new().member("cursor", &cursor).finish();
            params = Some(next);
        }
        Ok(false)
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

/// Fulfils the wishes of principals that have signed in; ends with the server.
async fn fulfil_wishes(of: Weak<PerPrincipal>, credentials: Arc<dyn PrincipalCredentials>) {
    let mut changed = credentials.changed();
    loop {
        changed.await;
        changed = credentials.changed();
        let Some(server) = of.upgrade() else { return };
        for principal in server.wishes.principals() {
            if credentials.source(&principal).are_there().await {
                server.wishes.fulfill(&principal);
            }
        }
    }
}

/// Announces that lists may have changed whenever a principal has signed in or out; never returns.
async fn announce_changes(credentials: Arc<dyn PrincipalCredentials>, messages: ServerMessages) {
    let mut changed = credentials.changed();
    loop {
        changed.await;
        changed = credentials.changed();
        Interest::from(Lists::ALL).announce(&messages);
    }
}

pub(super) const NAME: &str = "connect";

/// The tool list of a server whose user has not signed in. It is private to that user (2026-07-28
/// server/utilities/caching), as is the list that replaces it.
fn list(server: &str) -> Response {
    let tool = ObjectBuilder::new()
        .string("name", NAME)
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
        )
        .finish();
    let result = ObjectBuilder::new()
        .member("tools", &Json::array([tool]))
        .integer("ttlMs", 0)
        .string("cacheScope", "private")
        .finish();
    Response::from_result(&result)
}

/// Whether a call is to this tool.
fn is_called(call: &Call) -> bool {
    call.method == Method::CallTool && call.param("name").is_some_and(|name| name.is_str(NAME))
}

/// The answer to a call of a user who has already signed in.
fn connected(server: &str) -> Response {
    let text = ObjectBuilder::new()
        .string("type", "text")
        .string(
            "text",
            &format!("Already connected to {server:?}: its tools can be used."),
        )
        .finish();
    let result = ObjectBuilder::new()
        .member("content", &Json::array([text]))
        .finish();
    Response::from_result(&result)
}

fn has_it(tools: &Json) -> bool {
    let mut named = tools.items().map(|tool| tool.get("name"));
    named.any(|name| name.is_some_and(|name| name.is_str(NAME)))
}

/// The maximum number of remembered links per server; the oldest are forgotten. A constant: clients
/// need not wait for the lost notifications.
const MOST: usize = 1000;
/// How long a link is remembered, which is as long as its page exists.
const LONGEST: Duration = Duration::from_secs(3600);

/// The links that clients of one server have received.
#[derive(Default)]
pub(super) struct OpenWishes(Mutex<Table>);

#[derive(Default)]
struct Table {
    given: VecDeque<Given>,
    /// The newest listener of each session.
    listeners: HashMap<SessionKey, Listen>,
}

/// A link that a client has received.
struct Given {
    caller: Caller,
    /// The id of the elicitation.
    id: String,
    at: Instant,
}

impl OpenWishes {
    /// Remembers a link for a client that accepts a notice of its completion.
    fn remember(&self, to: &CallContext, wish: &SignInWish) {
        let opens_links =
            MissingCapability::check(&to.capabilities, ClientCapability::ElicitationByUrl)
                .is_none();
        if wish.url.is_none() || to.caller.session().is_none() || !opens_links {
            return;
        }
        let mut table = self.0.lock();
        table.given.retain(|given| given.at.elapsed() < LONGEST);
        if table.given.len() >= MOST {
            table.given.pop_front();
        }
        table.given.push_back(Given {
            caller: to.caller.clone(),
            id: wish.id.clone(),
            at: Instant::now(),
        });
    }

    /// Adds a listener, if it is one of a session. Until the session ends, the newest one counts.
    fn listen(&self, listen: &Listen) {
        if let Some(session) = listen.context.session().filter(|_| listen.interest.session) {
            self.0.lock().listeners.insert(session, listen.clone());
        }
    }

    /// The principals that have received links.
    fn principals(&self) -> HashSet<Principal> {
        self.0
            .lock()
            .given
            .iter()
            .map(|given| given.caller.principal().clone())
            .collect()
    }

    /// Notifies the sessions of a principal that it has signed in. Messages that do not fit are
    /// lost, as with any listener.
    fn fulfill(&self, principal: &Principal) {
        let mut table = self.0.lock();
        let Table {
            given, listeners, ..
        } = &mut *table;
        let is_over = |given: &Given| given.caller.principal() == principal;
        let over: Vec<_> = given.iter().filter(|given| is_over(given)).collect();
        for Given { caller, id, .. } in over {
            let session = caller.session().and_then(|key| listeners.get(&key));
            let Some(listen) = session.filter(|listen| listen.context.caller == *caller) else {
                continue;
            };
            let params = ObjectBuilder::new().string("elicitationId", id).finish();
            let complete =
                Notification::new(Method::from_name(ELICITATION_COMPLETE), Some(&params));
            let _ = listen
                .messages
                .try_send(ServerMessage::Notification(complete));
        }
        given.retain(|given| !is_over(given));
    }

    /// Removes a session that has ended.
    pub(crate) fn end_session(&self, session: SessionKey) {
        let mut table = self.0.lock();
        table
            .given
            .retain(|given| given.caller.session() != Some(session));
        table.listeners.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fanlight_canonical::{Interest, ServerMessages};
    use fanlight_protocol::Json;

    use super::*;

    #[tokio::test]
    async fn session_that_listens_anew_is_told_when_its_earlier_stream_has_ended() {
        let wishes = OpenWishes::default();
        let principal = Principal::new("fanlight:key", "ann");
        let caller = Caller::session_of(principal.clone(), SessionKey::generate());
        let context = CallContext {
            caller,
            capabilities: Json::literal(r#"{"elicitation":{"url":{}}}"#),
            ..(*CallContext::internal()).clone()
        };
        let wish = SignInWish {
            id: "1".into(),
            url: Some("https://x".into()),
            message: String::new(),
        };
        wishes.remember(&context, &wish);
        let listen = |messages| Listen {
            interest: Interest {
                session: true,
                ..Interest::default()
            },
            context: Arc::new(context.clone()),
            messages,
        };
        let (first, _) = ServerMessages::channel(1);
        let (second, mut received) = ServerMessages::channel(1);
        wishes.listen(&listen(first));
        wishes.listen(&listen(second));
        wishes.fulfill(&principal);
        assert!(received.try_recv().is_some(), "the later one is told");
    }
}
