//! The life of a request in the core: [`Gateway::resolve`], then [`Gateway::run`]. Servers and
//! endpoints may be replaced while requests run.

mod answers;
mod lean;
mod lists;
mod operation;
mod operators;
mod policy;
mod results;
mod several;

use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    About, BackendClient, Call, CallContext, Detail, Endpoint, Listen, Listening, Pending, Policy,
    Rewritten, ServerMessages, SessionKey,
};
use fanlight_protocol::json::Json;
use fanlight_protocol::result::{ResultView as _, is_public};
use fanlight_protocol::{Method, Response, RpcError};
use futures_util::future::OptionFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio_util::sync::DropGuard;
use tracing::debug;

use crate::catalogue::{ListKind, ListWatcher, as_shown, describe_only};
use crate::cursor::{CursorSeal, KeyError, Keys};
use crate::fault;
use crate::notices::Notices;
use crate::reads::{CacheLimits, Reads, with_member};
use crate::results::{KeptResults, ResultFiles};
use crate::routing::{Asked, Directory, Routed, Target};
use crate::subscribed::SessionSubscriptions;
use crate::tasks::{self, CommonTaskOwners, Tasks};
use crate::topology::{
    BackendEntry, CurrentTopology, EndpointEntry, ListLimits, Member, NamingPolicy, Topology, View,
};
use crate::uris::{self, HandedOut, Opened};
use answers::shown_messages;
pub use operation::{Decided, ListenOperation, Notice, Operation};
pub use results::Shortening;
use several::send_to_all_with;

/// Settings of the core.
pub struct GatewaySettings {
    /// The servers in configuration order, which decides merging.
    pub backends: Vec<BackendEntry>,
    /// The endpoints, with the servers and entries that each shows.
    pub endpoints: Vec<EndpointEntry>,
    /// How clients' names are made from the servers' names.
    pub naming: NamingPolicy,
    /// The policy that decides what clients may do; `None` permits everything.
    pub policy: Option<Arc<dyn Policy>>,
    /// Limits for reading lists.
    pub lists: ListLimits,
    /// Limits for results that are served again.
    pub cache: CacheLimits,
    /// The task owners that the replicas share; `None` without replicas.
    pub common_tasks: Option<Arc<dyn CommonTaskOwners>>,
    /// The files of large results; `None` keeps them in memory only.
    pub result_files: Option<Arc<dyn ResultFiles>>,
    /// The keys that seal cursors. Without any, a random key is made, and cursors end with the
    /// process.
    pub keys: Keys,
    /// The `Implementation` object that describes Fanlight when it merges several servers.
    pub identity: Json,
}

/// URIs in results whose server is remembered, for all clients together; also clients whose apps (`ui://` resources) are
/// remembered.
const HANDED_OUT: usize = 10_000;

/// How long an app counts as open after its last use. While apps of two servers are open, a call by a name that tools of both
/// have is refused.
const OPEN_APPS: Duration = Duration::from_secs(3600);

/// The target of a request, once it has been found.
type FoundTarget = Option<Box<Result<Target, RpcError>>>;

/// Presents several servers as one.
pub struct Gateway {
    topology: Arc<CurrentTopology>,
    pub(crate) lists: Arc<ListWatcher>,
    pub(crate) reads: Arc<Reads>,
    directory: Directory,
    notices: Notices,
    /// The subscriptions of clients' sessions.
    pub subscribed: SessionSubscriptions,
    pub(crate) results: Arc<KeptResults>,
    seal: CursorSeal,
    identity: Arc<Json>,
    _ends_tasks: DropGuard,
}

fanlight_protocol::opaque!(Gateway);

impl Gateway {
    /// Creates a gateway for `settings.backends`. Sends them nothing yet.
    ///
    /// # Errors
    ///
    /// If a key cannot be used, or the system has no random numbers for one.
    pub fn new(settings: GatewaySettings) -> Result<Self, KeyError> {
        let seal = CursorSeal::new(&settings.keys)?;
        let results = KeptResults::new(&settings.keys, settings.result_files)?;
        let new = Topology::new(
            settings.backends,
            &settings.naming,
            settings.lists,
            settings.endpoints,
            settings.policy,
        );
        let topology = CurrentTopology::new(Arc::new(new));
        let reads = Reads::new(settings.cache);
        let lists = ListWatcher::new(&topology, &reads);
        let _ends_tasks = lists.background.guard();
        let tasks = Arc::new(Tasks::new(settings.common_tasks, &lists));
        let directory = Directory {
            lists: Arc::clone(&lists),
            handed_out: Arc::new(HandedOut::new(HANDED_OUT, OPEN_APPS)),
            tasks,
        };
        let notices = Notices {
            directory: directory.clone(),
            under_way: Arc::default(),
        };
        Ok(Self {
            topology,
            lists,
            reads,
            directory,
            notices,
            subscribed: SessionSubscriptions::default(),
            results,
            seal,
            identity: Arc::new(settings.identity),
            _ends_tasks,
        })
    }

    /// Ends the gateway's background tasks and waits for them. Call it when no more requests
    /// arrive, because lists are empty afterwards.
    pub async fn stop(&self) {
        self.lists.background.stop().await;
    }

    /// The view of a client.
    fn view_of(&self, client: &CallContext) -> View {
        View::for_client(self.topology.load(), client)
    }

    /// The view of an endpoint, for everything that is the same for all its clients.
    fn view(&self, endpoint: &Endpoint) -> View {
        View::for_endpoint(self.topology.load(), endpoint)
    }

    /// Passes a request to the only server.
    async fn pass(&self, view: &View, only: &Member, call: Call) -> Result<Response, RpcError> {
        let lists_tools_to = (call.method == Method::ListTools).then(|| Arc::clone(&call.context));
        if call.method == Method::Discover {
            return Box::pin(describe(view, only, &call.context)).await;
        }
        sent(
            &call.context,
            &call.method,
            call.params.as_ref(),
            Some(only),
        );
        let answer = self.ask(only, call).await;
        let response = answer.map_err(|error| view.no_answer(only.id, &error))?;
        match lists_tools_to {
            None => Ok(response),
            Some(client) => {
                self.compare_tools(view, &response);
                Ok(tasks::list_for(only, &client, response))
            }
        }
    }

    /// Marks the known tools as stale if a list passed to a client defines one differently.
    fn compare_tools(&self, view: &View, response: &Response) {
        let tools = self.lists.catalogue(ListKind::Tools, view);
        let Some(known) = tools.newest_snapshot(&self.topology.load()) else {
            return;
        };
        if response
            .result()
            .is_some_and(|list| !known.has_all_of(&list))
        {
            tools.mark_stale();
        }
    }

    async fn route(
        &self,
        view: &View,
        target: &mut FoundTarget,
        call: Call,
    ) -> Result<Response, RpcError> {
        if target.is_none() {
            let known = self
                .directory
                .lookup(view, &call.context)
                .known_target(&call.method, call.params.as_ref());
            *target = known.map(Box::new);
        }
        match target.as_deref() {
            Some(Ok(Target::One(routed))) => self.send(view, routed, call).await,
            // Boxed: most calls do not need the large future of everything else.
            _ => Box::pin(self.find_and_send(view, target, call)).await,
        }
    }

    /// Answers a request whose server has to be found by asking, or which concerns several servers.
    async fn find_and_send(
        &self,
        view: &View,
        target: &mut FoundTarget,
        call: Call,
    ) -> Result<Response, RpcError> {
        if let Some(kind) = ListKind::from_method(&call.method) {
            return self.list(view, kind, &call).await;
        }
        if target.is_none() {
            let found = self
                .directory
                .lookup(view, &call.context)
                .target(&call.method, call.params.as_ref())
                .await;
            *target = found.map(Box::new);
        }
        match target.as_deref() {
            Some(Ok(Target::One(routed))) => self.send(view, routed, call).await,
            Some(Ok(Target::FirstThatHas(uri))) => {
                let uri = uri.clone();
                self.ask_each(view, target, uri, call).await
            }
            Some(Ok(Target::AllWith(capability))) => {
                self.note_unreached(view, &call.context, &call.method, call.params.as_ref());
                send_to_all_with(view, capability, &call).await
            }
            Some(Err(error)) => {
                self.note_unreached(view, &call.context, &call.method, call.params.as_ref());
                Err(error.clone())
            }
            None => self.answer_unnamed(view, call).await,
        }
    }

    /// Asks each server in turn for an unlisted resource. Further rounds of input go to the server
    /// that answered.
    async fn ask_each(
        &self,
        view: &View,
        target: &mut FoundTarget,
        uri: String,
        call: Call,
    ) -> Result<Response, RpcError> {
        let (context, method, params) = (
            Arc::clone(&call.context),
            call.method.clone(),
            call.params.clone(),
        );
        let (backend, response) = self.find_resource(view, &uri, call).await?;
        sent(&context, &method, params.as_ref(), view.get(backend));
        let routed = Routed {
            backend,
            params: params.unwrap_or_default(),
            opens: uris::is_app(&uri).then_some(Opened::ByRead),
            asked: Some(Asked {
                original: uri.clone(),
                visible: uri,
            }),
            rewritten: Rewritten::empty(),
        };
        let answer = self
            .translate_answer(view, &context, backend, &method, response, Some(&routed))
            .await;
        *target = Some(Box::new(Ok(Target::One(routed))));
        Ok(answer)
    }

    /// Sends a request to one server.
    async fn send(&self, view: &View, routed: &Routed, call: Call) -> Result<Response, RpcError> {
        let backend = routed.backend;
        call.context.trace.record_rewriting(routed.rewritten);
        let call = Call {
            params: Some(routed.params.clone()),
            ..call
        };
        let (context, method) = (Arc::clone(&call.context), call.method.clone());
        sent(&context, &method, call.params.as_ref(), view.get(backend));
        let answer = match view.get(backend) {
            Some(member) => self.ask(member, call).await,
            None => view.request(backend, call).await,
        };
        let response = answer.map_err(|error| view.no_answer(backend, &error))?;
        Ok(self
            .translate_answer(view, &context, backend, &method, response, Some(routed))
            .await)
    }

    /// Asks a server, unless the requested resource is kept or being read. The error is the
    /// server's own.
    fn ask<'a>(&'a self, backend: &'a Member, call: Call) -> Pending<'a, Response> {
        match call.method {
            Method::ReadResource => Box::pin(self.reads.read(backend, call)),
            _ => backend.request(call),
        }
    }

    /// Carries out an operation. `messages` takes what the server sends before its response. Dropping
    /// the future cancels the request. Another run carries out the same operation again, for the
    /// next round of input.
    ///
    /// Never fails: a failure is an error response.
    ///
    /// [`Method::Discover`] asks for the description. Its result has the shape of an `initialize`
    /// or `server/discover` result. If it is merged from several servers, it has `capabilities`,
    /// `serverInfo`, `instructions` and `_meta`. The client edge renders it for the client.
    pub async fn run(&self, operation: &mut Operation, messages: ServerMessages) -> Response {
        if let Some(own) = &operation.own {
            // Boxed: few requests are answered here.
            return Box::pin(self.answer_own(operation, own)).await;
        }
        if operation.approval().is_some() {
            // An approval is for one execution of the call.
            operation.context().run_once();
        }
        let Operation {
            view,
            request,
            target,
            ..
        } = operation;
        let mut call = request.clone();
        call.messages = if view.has_filters() {
            shown_messages(view, &messages)
        } else {
            messages
        };
        let guarded = view
            .transparent_server()
            .filter(|only| Tasks::guard(&call.context, &call.method, only))
            .map(|only| only.id);
        let mut answer = match view.transparent_server() {
            Some(only) if guarded.is_none() || !call.method.is_about_tasks() => {
                self.pass(view, only, call).await
            }
            // Boxed to keep a call's future small when there is one server.
            _ => Box::pin(self.route(view, target, call)).await,
        };
        let Operation {
            view,
            request,
            target,
            ..
        } = &*operation;
        let answered = match target.as_deref() {
            Some(Ok(Target::One(routed))) => Some(routed.backend),
            _ => guarded,
        };
        if let (Ok(response), Some(backend)) = (&mut answer, answered)
            && tasks::created_task(response).is_some()
        {
            let made_by = operation
                .policy_subject()
                .filter(|_| request.method == Method::CallTool);
            let (tasks, made) = (&self.directory.tasks, response.clone());
            // Boxed: few calls create a task.
            *response = Box::pin(tasks.note(view, &request.context, backend, made, made_by)).await;
        }
        let answer = answer.unwrap_or_else(|error| {
            Response::from_error(&fault::adapt_to_client(
                error,
                &request.context.capabilities,
            ))
        });
        let answer = if view.has_policy() && request.method != Method::CallTool {
            made_private(answer)
        } else {
            answer
        };
        match request.method {
            Method::ListTools
            | Method::Discover
            | Method::ListResources
            | Method::ListResourceTemplates
                if view.has_results() =>
            {
                self.with_results(operation, answer)
            }
            _ => answer,
        }
    }

    /// The endpoint at this path of an HTTP request; `None` if there is none.
    pub fn endpoint(&self, path: &str) -> Option<Endpoint> {
        self.topology.load().endpoints.find(path)
    }

    /// Whether another replica can continue sessions at this endpoint. It cannot if one of the
    /// servers is a process on this machine, which would have the session's state.
    #[must_use]
    pub fn sessions_may_move(&self, endpoint: &Endpoint) -> bool {
        let view = View::for_endpoint(self.topology.load(), endpoint);
        let is_remote = |client: &Arc<dyn BackendClient>| client.status().transport != "stdio";
        view.backends().all(|member| {
            is_remote(&member.client)
                && member
                    .canary
                    .as_ref()
                    .is_none_or(|canary| is_remote(&canary.client))
        })
    }

    /// Listens for messages that servers send outside of calls, until the result is dropped.
    /// Listening goes on when the servers are replaced.
    ///
    /// With several servers, the gateway itself announces changes of lists when a merged list has
    /// changed. Everything else comes from the servers, under the names that the client knows.
    ///
    /// # Errors
    ///
    /// If the only server does not answer. With several servers, the parts of those that do not
    /// answer in time are not honoured.
    pub async fn listen(
        &self,
        operation: ListenOperation,
        messages: ServerMessages,
    ) -> Result<Listening, RpcError> {
        let ListenOperation {
            view,
            interest,
            context,
        } = operation;
        self.directory
            .listen(
                Listen {
                    interest,
                    context,
                    messages,
                },
                &view,
            )
            .await
    }

    /// Forwards a notification of a client's session that Fanlight does not know. Holds `session`
    /// until that is done, so that the session's end comes last. Must not block.
    pub fn notify(&self, notice: Notice, session: Arc<dyn Send + Sync>) {
        let Notice {
            view,
            notification,
            context,
        } = notice;
        self.notices.pass_on(view, notification, context, session);
    }

    /// Continues a client's session that another replica opened, with its sessions at servers. Must
    /// not block.
    pub fn continue_session(&self, client: &Arc<CallContext>) {
        self.topology
            .load()
            .clients()
            .for_each(|server| server.continue_session(client));
    }

    /// Tells all servers that the client's session has ended, so that they drop its state.
    pub fn end_session(&self, session: SessionKey) {
        self.subscribed.end(session);
        // A canary may have served the session, even before a change of its share.
        self.topology
            .load()
            .clients()
            .for_each(|client| client.end_session(session));
    }
}

/// Notes where a request is sent, on its span and for the audit log.
fn sent(context: &CallContext, method: &Method, params: Option<&Json>, backend: Option<&Member>) {
    let Some(backend) = backend else { return };
    if let Some(canary) = backend.canary_of(&context.caller) {
        context.trace.canary(canary.client.name());
    }
    note_target(context, method, params, backend);
}

/// Notes the server of a request, and the server's own name in `params`, for the audit log.
fn note_target(context: &CallContext, method: &Method, params: Option<&Json>, backend: &Member) {
    let Some(noted) = &context.noted else { return };
    noted.about.get_or_init(|| About {
        server: Some(backend.name().into()),
        item: operation::find_item(method, params).map(|(_, name)| name.into()),
        canary: backend
            .canary_of(&context.caller)
            .map(|canary| canary.client.name().into()),
    });
}

/// An answer that no cache may serve to another client, whose rights may differ (2026-07-28
/// server/utilities/caching).
fn made_private(answer: Response) -> Response {
    match answer.result() {
        Some(result) if is_public(&result) => {
            with_member(&answer, "cacheScope", r#""private""#).unwrap_or(answer)
        }
        _ => answer,
    }
}

/// The description of the only server for a client. It is unchanged if that server is transparent
/// and the endpoint has no instructions of its own.
async fn describe(view: &View, only: &Member, client: &CallContext) -> Result<Response, RpcError> {
    match only.serving(&client.caller).describe(client).await {
        Ok(description) if view.transparent_server().is_some() => Ok(Response::from_result(
            &as_shown(view, description.json().clone()),
        )),
        Ok(description) => Ok(Response::from_result(&as_shown(
            view,
            describe_only(only, description),
        ))),
        Err(error) => Err(view.no_answer(only.id, &error)),
    }
}

/// How many subscriptions are made again at the same time. No option: the limit spares servers, and
/// a reload is complete once all are made.
const AT_ONCE: usize = 32;

impl Gateway {
    /// Uses these servers, in this order, and these endpoints for new requests. Running requests
    /// keep theirs. A server with the id of a current one counts as unchanged, so its lists and
    /// kept reads stay.
    ///
    /// Listening clients keep listening. Clients with a different merged list are notified in the
    /// background. Must not run twice at the same time.
    pub async fn replace(
        self: &Arc<Self>,
        backends: Vec<BackendEntry>,
        naming: &NamingPolicy,
        lists: ListLimits,
        endpoints: Vec<EndpointEntry>,
        policy: Option<Arc<dyn Policy>>,
    ) {
        let old = self.topology.load();
        let new = Topology::replace(&old, backends, naming, lists, endpoints, policy);
        let has_same_canaries = new.has_canaries_of(&old);
        let shows_all_the_same = new.has_policy_of(&old) && has_same_canaries;
        if new.number == old.number {
            return self.topology.replace(new);
        }
        self.lists.catalogues.prepare_replacement(&old, &new).await;
        self.lists.catalogues.retain(&old, &new);
        self.topology.replace(Arc::clone(&new));
        let is_any_gone = !has_same_canaries || old.ids().any(|backend| new.get(backend).is_none());
        // After the listeners, so that announcements have a stream.
        let again = || self.subscribe_again(None, |_| true);
        let subscribing = OptionFuture::from(is_any_gone.then(again)).map(drop);
        let (directory, all) = (self.directory.clone(), self.lists.announcer.set_up());
        self.lists
            .spawn(directory.set_up_again(all, Arc::clone(&new), subscribing));
        let lists = Arc::clone(&self.lists);
        self.lists.spawn(async move {
            let changes = lists.catalogues.replaced(&new, shows_all_the_same).await;
            lists.announcer.announce_replacement(&changes);
        });
    }

    /// Makes subscriptions of sessions again, of one session (in requests with this context) or of
    /// all sessions. Removes those that `is_permitted` refuses.
    pub fn subscribe_again<P: Fn(&Operation) -> bool + Send + Sync>(
        self: &Arc<Self>,
        of_one: Option<Arc<CallContext>>,
        is_permitted: P,
    ) -> impl Future<Output = ()> + Send + use<P> {
        let requests = self.subscribed.requests(of_one);
        let again = Arc::new((Arc::downgrade(self), is_permitted));
        let subscribe = move |(session, uri, request): (SessionKey, String, Call)| {
            let again = Arc::clone(&again);
            async move {
                let (gateway, is_permitted) = &*again;
                let Some(gateway) = Weak::upgrade(gateway) else {
                    return;
                };
                if !gateway.subscribed.has(session, &uri) {
                    return;
                }
                let mut operation = gateway.resolve(request, Detail::Known).await;
                if !is_permitted(&operation) {
                    return gateway.subscribed.remove(session, &uri);
                }
                let response = gateway.run(&mut operation, ServerMessages::discard()).await;
                if response.is_error() {
                    debug!(
                        error = response.body().as_text(),
                        "subscription of a session not made again"
                    );
                }
                if !gateway.subscribed.knows(session) {
                    gateway.end_session(session);
                }
            }
        };
        stream::iter(requests).for_each_concurrent(AT_ONCE, subscribe)
    }
}
