//! The life of a request in the core, in one function: [`Gateway::handle`].

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use fanlight_canonical::{
    BackendStatus, Call, CallContext, Core, Endpoint, Listen, Listening, Parent, Pending, ProcessOutput, ServerMessage,
    ServerMessages, SessionKey,
};
use fanlight_protocol::json::{ArrayBuilder, Json, ObjectBuilder, rewrite_object};
use fanlight_protocol::result::ResultView as _;
use fanlight_protocol::{Method, Notification, Response, RpcError, code};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered};
use tokio::time::{Instant, timeout};
use tokio_util::sync::DropGuard;
use tracing::debug;

use crate::catalogue::{
    Change, Entry, ListKind, ListView, ListWatcher, PageOf, Served, as_shown, describe_all, describe_only, updated_uri,
};
use crate::cursor::{CursorSeal, KeyError, Keys, Position};
use crate::listeners::{Listeners, SessionSubscriptions, SubscriptionRequest};
use crate::notices::Notices;
use crate::reads::{CacheLimits, Reads};
use crate::routing::{Lookup, Routed, Target, by_prefix};
use crate::tasks::{TaskLimits, Tasks, offered};
use crate::topology::{
    BackendEntry, BackendId, CurrentTopology, EndpointSettings, Filtered, ListLimits, Member, NamingPolicy, Topology,
    View,
};
use crate::uris::{self, Asked, HandedOut, Opened, Renaming};
use crate::{extensions, fault, uri_places};

/// Subscriptions of sessions that are made again at the same time.
const SUBSCRIBING_AT_ONCE: usize = 32;

/// Settings of the core.
pub struct GatewaySettings {
    /// The backends in configuration order, which decides merging.
    pub backends: Vec<BackendEntry>,
    /// Which of them, and of what they have, each endpoint shows.
    pub endpoints: EndpointSettings,
    /// How names are made of those of servers.
    pub naming: NamingPolicy,
    /// Bounds for reading lists.
    pub lists: ListLimits,
    /// Bounds for results that are served again.
    pub cache: CacheLimits,
    /// Bounds on the memory of which backend has which task.
    pub tasks: TaskLimits,
    /// URIs in results whose backend is remembered, and clients whose apps are.
    pub max_handed_out: usize,
    /// How long an app counts as open after its last use.
    pub open_apps: Duration,
    /// Resources that sessions subscribe to by requests, which are remembered so that they outlast a change of the
    /// backends.
    pub max_subscriptions: usize,
    /// The keys that seal cursors; made at random if there are none, so that cursors then end with
    /// the process.
    pub keys: Keys,
    /// `Implementation` object that describes Fanlight where several servers are one.
    pub identity: Json,
}

/// Several backends as one server.
pub struct Gateway {
    topology: Arc<CurrentTopology>,
    pub(crate) lists: Arc<ListWatcher>,
    pub(crate) reads: Arc<Reads>,
    tasks: Arc<Tasks>,
    handed_out: Arc<HandedOut>,
    notices: Notices,
    listeners: Arc<Listeners>,
    subscribed: Arc<SessionSubscriptions>,
    seal: CursorSeal,
    identity: Json,
    _ends_tasks: DropGuard,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("backends", &self.topology.load()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Makes `settings.backends` one server. Sends them nothing yet.
    ///
    /// # Errors
    ///
    /// If a key cannot be used, or the system has no random numbers for one.
    pub fn new(settings: GatewaySettings) -> Result<Self, KeyError> {
        let seal = CursorSeal::new(&settings.keys)?;
        let new = Topology::new(settings.backends, &settings.naming, settings.lists, settings.endpoints);
        let topology = CurrentTopology::new(new);
        let reads = Reads::new(settings.cache);
        let lists = ListWatcher::new(&topology, &reads);
        let _ends_tasks = lists.guard();
        let tasks = Arc::new(Tasks::new(settings.tasks));
        let handed_out = Arc::new(HandedOut::new(settings.max_handed_out, settings.open_apps));
        let notices = Notices::new(&lists, &handed_out, &tasks);
        let listeners = Listeners::new(&topology, &lists, &handed_out, &tasks);
        let subscribed = Arc::new(SessionSubscriptions::new(settings.max_subscriptions));
        let identity = settings.identity;
        Ok(Self {
            topology,
            lists,
            reads,
            tasks,
            handed_out,
            notices,
            listeners,
            subscribed,
            seal,
            identity,
            _ends_tasks,
        })
    }

    /// Answers one request in canonical form. Never fails: a failure is an error response.
    ///
    /// [`Method::Discover`] asks for the description: its result has the shape of an `initialize`
    /// or a `server/discover` result, or, merged from several, `capabilities`, `serverInfo`,
    /// `instructions` and `_meta`. The client's edge renders it.
    ///
    /// The request is handled by the topology that is current when the future is first polled. Nothing
    /// is sent before. Dropping the future cancels the request at the backend.
    pub async fn handle(&self, call: Call) -> Response {
        let view = self.view(call.context.caller.endpoint());
        let subscription = SubscriptionRequest::of(&call);
        let call =
            if view.has_filters() { Call { messages: shown_messages(&view, &call.messages), ..call } } else { call };
        let answer = match view.transparent() {
            Some(only) => self.pass(&view, only, call).await,
            None => self.route(&view, call).await,
        };
        match (answer, subscription) {
            (Ok(response), Some(request)) if !response.is_error() => {
                self.subscribed.note(request);
                response
            }
            (answer, _) => answer.unwrap_or_else(|error| Response::from_error(&error)),
        }
    }

    /// The endpoint at this path of a request.
    #[must_use]
    pub fn endpoint(&self, path: &str) -> Option<Endpoint> {
        self.topology.load().endpoints.at(path)
    }

    /// All endpoints with their paths, in configuration order.
    #[must_use]
    pub fn endpoints(&self) -> Vec<(String, Endpoint)> {
        self.topology.load().endpoints.list()
    }

    /// The names of the backends that an endpoint shows.
    #[must_use]
    pub fn shown_backends(&self, endpoint: &Endpoint) -> Vec<String> {
        self.view(endpoint).backends().map(|backend| backend.name().to_owned()).collect()
    }

    fn view(&self, endpoint: &Endpoint) -> View {
        View::of(self.topology.load(), endpoint)
    }

    /// The definition of the tool that clients of an endpoint know as `name`, as they see it in the list; `None` for
    /// an unknown tool. A list that has to be read for it is read within `trace`.
    pub async fn tool(&self, name: &str, endpoint: &Endpoint, trace: &Parent) -> Option<Arc<Json>> {
        let view = self.view(endpoint);
        if view.transparent().is_none() {
            self.lists.begin();
        }
        let known = self.lists.catalogues.of(ListKind::Tools).trusted(&view);
        match known.as_ref().and_then(|tools| tools.find(name).or_else(|| only_bare(&view, tools, name))) {
            Some(tool) => Some(Arc::clone(&tool.visible)),
            // Boxed: calls of known tools do not need the large future of reading lists.
            None => Box::pin(self.read_tool(&view, name, trace)).await,
        }
    }

    async fn read_tool(&self, view: &View, name: &str, trace: &Parent) -> Option<Arc<Json>> {
        let tools = self.lists.catalogues.of(ListKind::Tools);
        let from_all = async {
            let known = tools.known(view, trace).await;
            if let Some(tool) = known.find(name) {
                return Some(Arc::clone(&tool.visible));
            }
            let fresh = tools.recheck(view, trace).await?;
            fresh.find(name).map(|tool| Arc::clone(&tool.visible))
        };
        match by_prefix(view, name) {
            // Backends that are slow to list must not delay a call of this one's tool.
            Some((backend, original)) if backend.permits_tool(original) && view.permits_name(Filtered::Tools, name) => {
                tokio::select! {
                    biased;
                    found = from_all => found,
                    found = tools.entry_of(view.topology(), backend.id, original, trace) => {
                        let rewriting = backend.rewritings.of(original);
                        let rewrite = |tool: Arc<Json>| match rewriting {
                            Some(rewriting) => Arc::new(rewriting.definition(&tool)),
                            None => tool,
                        };
                        found.map(rewrite)
                    }
                }
            }
            _ => from_all.await,
        }
    }

    /// Begins to listen to what servers send outside of calls, until the result is dropped. It goes on when the backends
    /// are replaced.
    ///
    /// With several backends, changes of lists are announced by the gateway itself, when a merged
    /// list has changed. Everything else comes from the backends, under the names the client knows.
    ///
    /// # Errors
    ///
    /// If the only backend does not answer. Of several, those that do not answer in time are not
    /// honoured.
    pub async fn listen(&self, listen: Listen) -> Result<Listening, RpcError> {
        self.listeners.listen(listen).await
    }

    /// Has requests that arrive from now on handled by these backends, in this order, and endpoints. Running ones keep
    /// theirs. A backend with the id of a current one is taken as unchanged: its lists and kept reads stay.
    ///
    /// Clients that listen keep listening; those for whom a merged list differs are notified, in the background. Must not
    /// run twice at a time.
    pub async fn replace(
        self: &Arc<Self>,
        backends: Vec<BackendEntry>,
        naming: &NamingPolicy,
        lists: ListLimits,
        endpoints: EndpointSettings,
    ) {
        let old = self.topology.load();
        let new = Topology::replacing(&old, backends, naming, lists, endpoints);
        if new.number() == old.number() {
            return self.topology.replace(new);
        }
        self.lists.catalogues.prepare_replacement(&old).await;
        self.lists.catalogues.retain(&old, &new);
        self.topology.replace(Arc::clone(&new));
        let is_any_gone = old.ids().any(|backend| new.get(backend).is_none());
        // After the listeners, so that there is a stream for what is announced.
        let subscribing = self.subscribe_again(is_any_gone);
        self.lists.spawn(Arc::clone(&self.listeners).replaced(Arc::clone(&new), subscribing));
        let lists = Arc::clone(&self.lists);
        self.lists.spawn(async move {
            let changes = lists.catalogues.replaced(&new).await;
            lists.announcer.replaced(&changes);
        });
    }

    /// Makes the subscriptions of sessions again, where a backend that knew of one may be gone.
    fn subscribe_again(self: &Arc<Self>, is_any_gone: bool) -> impl Future<Output = ()> + Send + 'static {
        let requests = if is_any_gone { self.subscribed.requests() } else { Vec::new() };
        let gateway = Arc::downgrade(self);
        let subscribe = move |call: Call| {
            let gateway = Weak::clone(&gateway);
            async move {
                let (Some(gateway), Some(session)) = (gateway.upgrade(), call.context.session()) else { return };
                if !gateway.subscribed.has(session) {
                    return;
                }
                let response = gateway.handle(call).await;
                if response.is_error() {
                    debug!(
                        error = response.body().as_text(),
                        "subscription of a session lost by a change of the servers"
                    );
                }
                if !gateway.subscribed.has(session) {
                    gateway.end_session(session);
                }
            }
        };
        stream::iter(requests).for_each_concurrent(SUBSCRIBING_AT_ONCE, subscribe)
    }

    /// Ends the gateway's own tasks, and waits for that. Call it when no more requests arrive: lists are
    /// empty from now on.
    pub async fn stop(&self) {
        self.lists.stop().await;
    }

    /// The client's session has ended: backends drop what they keep for it.
    pub fn end_session(&self, session: SessionKey) {
        self.subscribed.end(session);
        for backend in self.topology.load().backends() {
            backend.client.end_session(session);
        }
    }

    /// Passes on a notification of a client's session that Fanlight does not know.
    pub fn notify(&self, notification: Notification, context: Arc<CallContext>) {
        self.notices.pass_on(self.view(context.caller.endpoint()), notification, context);
    }

    /// The state of every backend, in configuration order.
    #[must_use]
    pub fn status(&self) -> Vec<(String, BackendStatus)> {
        let topology = self.topology.load();
        topology.backends().iter().map(|backend| (backend.name().to_owned(), backend.client.status())).collect()
    }

    /// What the processes of the backend called `name` have written besides messages; `None` if there is no such backend.
    #[must_use]
    pub fn process_output(&self, name: &str) -> Option<ProcessOutput> {
        let topology = self.topology.load();
        let backend = topology.backends().iter().find(|backend| backend.name() == name)?;
        Some(backend.client.process_output())
    }

    /// The backends whose list was read in an earlier run of Fanlight and not yet in this one, and when it was.
    #[must_use]
    pub fn kept_lists(&self, kind: ListKind) -> HashMap<String, SystemTime> {
        let topology = self.topology.load();
        let kept = self.lists.catalogues.of(kind).kept_since();
        kept.into_iter().map(|(backend, read)| (topology.name(backend).to_owned(), read)).collect()
    }

    /// What an endpoint shows of the merged list as it is now, asking every backend.
    pub async fn catalogue(&self, kind: ListKind, endpoint: &Endpoint) -> ListView {
        self.lists.catalogues.of(kind).refresh(&self.view(endpoint)).await
    }

    /// What an endpoint shows of the merged list as clients are served it: backends are asked only if their list may have
    /// changed without an announcement.
    pub async fn listed(&self, kind: ListKind, endpoint: &Endpoint) -> ListView {
        let view = self.view(endpoint);
        if view.transparent().is_none() {
            self.lists.begin();
        }
        self.lists.catalogues.of(kind).current(&view, &Parent::default()).await.list
    }

    /// Passes a request to the only backend.
    async fn pass(&self, view: &View, only: &Member, call: Call) -> Result<Response, RpcError> {
        let lists_tools_to = (call.method == Method::ListTools).then(|| Arc::clone(&call.context));
        if call.method == Method::Discover {
            return Box::pin(describe(view, only, &call.context)).await;
        }
        let answer = self.ask(only, call).await;
        let response = answer.map_err(|error| fault::no_answer(only.name(), &error))?;
        match lists_tools_to {
            None => Ok(response),
            Some(client) => {
                self.compare_tools(&response);
                Ok(offered::list_for(only, &client, response))
            }
        }
    }

    /// Marks the known tools as stale if a list that is passed to a client defines one differently.
    fn compare_tools(&self, response: &Response) {
        let tools = self.lists.catalogues.of(ListKind::Tools);
        let Some(known) = tools.newest(&self.topology.load()) else { return };
        if response.result().is_some_and(|list| !known.has_all_of(&list)) {
            tools.mark_stale();
        }
    }

    async fn route(&self, view: &View, call: Call) -> Result<Response, RpcError> {
        let known = self.lookup(view, &call.context).known_target(&call.method, call.params.as_ref());
        match known {
            Some(Ok(Target::One(routed))) => self.send(view, routed, call).await,
            // Boxed: most calls do not need the large future of everything else.
            _ => Box::pin(self.find_and_send(view, call)).await,
        }
    }

    fn lookup<'a>(&'a self, view: &'a View, context: &'a CallContext) -> Lookup<'a> {
        Lookup { view, lists: &self.lists, handed_out: &self.handed_out, context }
    }

    /// Answers a request whose backend is not known without asking, or which is not for one backend alone.
    async fn find_and_send(&self, view: &View, call: Call) -> Result<Response, RpcError> {
        if let Some(kind) = ListKind::of(&call.method) {
            return self.list(view, kind, &call).await;
        }
        match self.lookup(view, &call.context).target(&call.method, call.params.as_ref()).await {
            Some(Ok(Target::One(routed))) => self.send(view, routed, call).await,
            Some(Ok(Target::FirstThatHas(uri))) => {
                let (context, method) = (Arc::clone(&call.context), call.method.clone());
                let (backend, response) = self.first_that_has(view, &uri, call).await?;
                let opens = uris::is_app(&uri).then_some(Opened::ByRead);
                let asked = Some(Asked { original: uri.clone(), visible: uri });
                Ok(self.received(view, &context, backend, &method, response, Given { asked, opens }).await)
            }
            Some(Ok(Target::AllWith(capability))) => send_to_all_with(view, capability, &call).await,
            Some(Err(error)) => Err(error),
            None => self.unnamed(view, call).await,
        }
    }

    /// Requests that name neither a list nor anything in one.
    async fn unnamed(&self, view: &View, call: Call) -> Result<Response, RpcError> {
        let whole = view.topology().backends();
        match (&call.method, whole, view.only()) {
            (Method::Discover, [only], _) if view.shows(only.id) => describe(view, only, &call.context).await,
            (Method::Discover, ..) => {
                let described = describe_all(view, &self.identity, &call.context).await;
                Ok(Response::from_result(&described))
            }
            (method, [_], Some(only)) if !matches!(method, Method::Other(_)) => view.send(only.id, call).await,
            (method, ..) if Tasks::are_concerned(method) => {
                let (context, method) = (Arc::clone(&call.context), method.clone());
                let (owner, response) = self.tasks.handle(view, call, &self.seal).await?;
                let Some(backend) = owner else { return Ok(response) };
                Ok(self.received(view, &context, backend, &method, response, Given::default()).await)
            }
            (Method::SetLogLevel, ..) => send_to_all_with(view, "logging", &call).await,
            _ => self.unknown(view, call).await,
        }
    }

    /// A method that Fanlight does not know: for the backend of what its parameters name, else for those that may have
    /// it, until one does.
    async fn unknown(&self, view: &View, call: Call) -> Result<Response, RpcError> {
        let unknown = fault::unknown_method(call.method.as_str());
        let Method::Other(method) = &call.method else { return Err(unknown) };
        if view.has_filters() {
            return Err(unknown);
        }
        let lookup = self.lookup(view, &call.context);
        if let Some(params) = &call.params {
            let task_owner = self.tasks.known_owner(view, &call.context, Some(params)).await;
            if let Some(routed) = lookup.target_of_unknown(params, task_owner).await? {
                return self.send(view, routed, call).await;
            }
        }
        if let ([_], Some(only)) = (view.topology().backends(), view.only()) {
            return view.send(only.id, call).await;
        }
        let described = join_all(view.ids().map(async |backend| {
            let capabilities = view.briefly(view.capabilities(backend)).await.ok()?;
            Some((backend, capabilities))
        }));
        let described: Vec<_> = described.await.into_iter().flatten().collect();
        for backend in extensions::that_may_have(method, &described) {
            let response = view.send(backend, call.clone()).await?;
            // It certainly has not carried out what it does not know.
            if response.error_code() != Some(code::METHOD_NOT_FOUND) {
                self.tasks.note(&call.context, backend, &response).await;
                return Ok(response);
            }
        }
        Err(unknown)
    }

    /// Sends a request to one backend, and remembers whose task it is if the answer has created one.
    async fn send(&self, view: &View, routed: Routed, call: Call) -> Result<Response, RpcError> {
        let Routed { backend, params, asked, opens, rewritten } = routed;
        call.context.trace.rewritten(rewritten);
        let call = Call { params: Some(params), ..call };
        let (context, method) = (Arc::clone(&call.context), call.method.clone());
        let answer = match view.get(backend) {
            Some(member) => self.ask(member, call).await,
            None => view.request(backend, call).await,
        };
        let response = answer.map_err(|error| fault::no_answer(view.name(backend), &error))?;
        self.tasks.note(&context, backend, &response).await;
        Ok(self.received(view, &context, backend, &method, response, Given { asked, opens }).await)
    }

    /// The answer of a backend as its client is to have it: with the URIs that the client knows.
    async fn received(
        &self,
        view: &View,
        context: &CallContext,
        backend: BackendId,
        method: &Method,
        response: Response,
        given: Given,
    ) -> Response {
        if response.is_error() {
            return response;
        }
        let response = match method {
            Method::ReadDirectory if view.filters(Filtered::Resources) => shown_directory(view, &response),
            _ => response,
        };
        // Names are those of all backends together, also where an endpoint shows only one.
        if view.topology().backends().len() < 2 {
            return response;
        }
        if let Some(how) = given.opens {
            self.handed_out.opened(&context.caller, backend, how);
        }
        let places = uri_places::in_response(method, &response);
        match view.get(backend) {
            Some(backend) if !places.is_empty() => {
                let (lists, handed_out) = (&self.lists, &*self.handed_out);
                let renaming = Renaming { view, lists, handed_out, context, backend };
                // Boxed: most answers name no URI.
                Box::pin(renaming.apply(response, places, given.asked.as_ref())).await
            }
            _ => response,
        }
    }

    /// Asks a backend, unless the request is for a resource that is being read or kept; the error is the
    /// backend's own.
    fn ask<'a>(&'a self, backend: &'a Member, call: Call) -> Pending<'a, Response> {
        match call.method {
            Method::ReadResource => Box::pin(self.reads.read(backend, call)),
            _ => backend.client.request(call),
        }
    }

    async fn list(&self, view: &View, kind: ListKind, call: &Call) -> Result<Response, RpcError> {
        self.lists.begin();
        self.lists.catalogues.declare_extensions(&call.context.capabilities);
        let catalogue = self.lists.catalogues.of(kind);
        let (trace, holder) = (&call.context.trace, call.context.caller.holder());
        let cursor = call.params.as_ref().and_then(|params| params.get("cursor")).filter(|cursor| !cursor.is_null());
        let (Served { list, ttl_left, is_cached }, start) = match cursor {
            None => {
                let served = catalogue.current(view, trace).await;
                catalogue.expired().into_iter().for_each(|backend| self.lists.read_again(kind.change(), backend));
                (served, 0)
            }
            Some(cursor) => {
                let position = cursor.as_str().and_then(|text| self.seal.open(&text, holder));
                let position = position.filter(|position| position.list == kind.index()).ok_or_else(|| {
                    fault::invalid_params("params.cursor is no cursor of this list; start from the first page")
                })?;
                let (list, is_cached) = match catalogue.generation(view, position.generation) {
                    Some(list) => (list, true),
                    None => catalogue.newest_or_first(view, trace).await,
                };
                let ttl_left = catalogue.ttl_left(&list, Instant::now());
                // A backend that is no longer configured has nothing left to list.
                let start = list.position(&position.backend, position.offset).unwrap_or(usize::MAX);
                (Served { list, ttl_left, is_cached }, start)
            }
        };
        trace.cache_hit(is_cached);
        trace.partial_failures(list.failures());
        let taking_tasks = match kind {
            ListKind::Tools => offered::backends_that_take_tasks(view, &call.context),
            _ => Vec::new(),
        };
        let lacking = list.lacking(&call.context.capabilities);
        trace.rewritten(list.rewritten());
        let next_cursor = |backend: &str, offset| {
            let (kind, generation) = (kind.index(), list.generation());
            self.seal.seal(&Position { list: kind, generation, backend: backend.into(), offset }, holder)
        };
        let page = PageOf { start, size: view.limits().page_size, ttl_left, holder, taking_tasks, lacking };
        Ok(list.page(page, next_cursor))
    }

    /// Asks backends in turn for a resource that none of them lists. The first result counts; if
    /// there is none, the resource is not found, unless a backend could not even be asked. One that
    /// takes longer than a list may is still waited for, but the next is asked meanwhile.
    async fn first_that_has(&self, view: &View, uri: &str, call: Call) -> Result<(BackendId, Response), RpcError> {
        let (mut not_asked, mut refusal) = (None, None);
        let mut left = view.backends().peekable();
        let mut asked = FuturesUnordered::new();
        loop {
            if let Some(next) = left.next() {
                asked.push(self.read_if_capable(view, next, call.clone()));
            }
            let patience = if left.peek().is_some() { view.limits().timeout } else { Duration::MAX };
            match timeout(patience, asked.next()).await {
                Ok(Some(Some((backend, Ok(response))))) if !response.is_error() => return Ok((backend, response)),
                Ok(Some(Some((backend, Ok(response))))) => drop(refusal.get_or_insert((backend, response))),
                Ok(Some(Some((_, Err(error))))) => drop(not_asked.get_or_insert(error)),
                Ok(Some(None)) | Err(_) => {}
                Ok(None) => break,
            }
        }
        match (not_asked, refusal) {
            (Some(error), _) => Err(error),
            (None, Some(refusal)) => Ok(refusal),
            (None, None) if call.method != Method::ReadResource => {
                Err(fault::invalid_params(format!("nothing is served at {uri}")))
            }
            (None, None) => Err(fault::unknown_resource(uri)),
        }
    }

    /// Sends a read to a backend if it has resources, or skills, at all.
    async fn read_if_capable(
        &self,
        view: &View,
        backend: &Member,
        call: Call,
    ) -> Option<(BackendId, Result<Response, RpcError>)> {
        let capabilities = view.briefly(view.capabilities(backend.id)).await.ok()?;
        let is_capable = match call.method {
            Method::GetSkill => ListKind::Skills.is_offered_by(&capabilities),
            Method::ReadDirectory => extensions::reads_directories(&capabilities),
            _ => capabilities.get("resources").is_some(),
        };
        if !is_capable {
            return None;
        }
        let answer = self.ask(backend, call).await;
        Some((backend.id, answer.map_err(|error| fault::no_answer(backend.name(), &error))))
    }
}

/// What a request is for, as far as its answer depends on that.
#[derive(Default)]
struct Given {
    /// The resource that it is for.
    asked: Option<Asked>,
    /// Whether the client gets an app by it.
    opens: Option<Opened>,
}

/// The only tool that its backend calls `name`, unless the name has a prefix.
fn only_bare<'a>(view: &View, tools: &'a ListView, name: &str) -> Option<&'a Entry> {
    let mut all = tools.find_bare(name);
    let only = all.next().filter(|_| by_prefix(view, name).is_none())?;
    all.next().is_none().then_some(only)
}

/// The description of the only backend for a client, unchanged if that is transparent and the endpoint has no
/// instructions of its own.
async fn describe(view: &View, only: &Member, client: &CallContext) -> Result<Response, RpcError> {
    match only.client.describe_to(client).await {
        Ok(description) if view.transparent().is_some() => {
            Ok(Response::from_result(&as_shown(view, description.json().clone())))
        }
        Ok(description) => Ok(Response::from_result(&as_shown(view, describe_only(&description)))),
        Err(error) => Err(fault::no_answer(only.name(), &error)),
    }
}

/// Sends to every backend with the capability; succeeds if any of them does.
async fn send_to_all_with(view: &View, capability: &str, call: &Call) -> Result<Response, RpcError> {
    let answers = join_all(view.ids().map(|backend| async move {
        match view.has_capability(backend, capability).await {
            true => {
                let answer = view.briefly(view.request(backend, call.clone())).await;
                Some(answer.map_err(|error| fault::no_answer(view.name(backend), &error)))
            }
            false => None,
        }
    }))
    .await;
    let is_done = |answer: &Result<Response, RpcError>| answer.as_ref().is_ok_and(|answer| !answer.is_error());
    let (done, mut failed): (Vec<_>, Vec<_>) = answers.into_iter().flatten().partition(is_done);
    if !done.is_empty() {
        call.context.trace.partial_failures(failed.len());
        return Ok(Response::from_result(&Json::empty_object()));
    }
    let first_error = (!failed.is_empty()).then(|| failed.swap_remove(0));
    first_error.unwrap_or_else(|| Err(fault::unknown_method(call.method.as_str())))
}

/// A listing of a directory of resources (SEP-2640, Directory Reading) without those that an endpoint hides.
fn shown_directory(view: &View, response: &Response) -> Response {
    const MEMBER: &str = "resources";
    let result = response.result().unwrap_or_else(Json::empty_object);
    let all = result.get(MEMBER).unwrap_or_else(Json::null);
    let mut shown = ArrayBuilder::default();
    for entry in all.elements().map(|place| all.slice(place)) {
        if entry.get("uri").is_some_and(|uri| uri.as_str().is_some_and(|uri| view.permits_uri(&uri))) {
            shown.push(&entry);
        }
    }
    let mut own = ObjectBuilder::new();
    own.member(MEMBER, &shown.finish());
    let own = own.finish();
    let added = own.bytes().slice(1..own.bytes().len() - 1);
    response.with_body(&rewrite_object(&result, |member| !member.is(&result, MEMBER), &added))
}

/// The channel to a client without what an endpoint hides: servers send more during a call than its progress.
fn shown_messages(view: &View, messages: &ServerMessages) -> ServerMessages {
    let view = view.clone();
    messages.mapped(move |message| {
        let ServerMessage::Notification(notification) = &message else { return Some(message) };
        let is_shown = match &notification.method {
            Method::Other(_) => false,
            method if Change::of(method).is_some() => false,
            Method::ResourceUpdated => updated_uri(notification).is_some_and(|uri| view.permits_uri(&uri)),
            _ => true,
        };
        is_shown.then_some(message)
    })
}

impl Core for Gateway {
    fn handle(&self, call: Call) -> impl Future<Output = Response> + Send {
        Self::handle(self, call)
    }

    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        Self::endpoint(self, path)
    }

    fn tool(&self, name: &str, endpoint: &Endpoint, trace: &Parent) -> impl Future<Output = Option<Arc<Json>>> + Send {
        Self::tool(self, name, endpoint, trace)
    }

    fn listen(&self, listen: Listen) -> impl Future<Output = Result<Listening, RpcError>> + Send {
        Self::listen(self, listen)
    }

    fn notify(&self, notification: Notification, context: Arc<CallContext>) {
        Self::notify(self, notification, context);
    }

    fn end_session(&self, session: SessionKey) {
        Self::end_session(self, session);
    }
}
