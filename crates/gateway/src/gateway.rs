//! The life of a request in the core, in one function: [`Gateway::handle`].
//!
//! Must not know: what the client or any backend speaks.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendStatus, Call, CallContext, Core, Listen, Listening, Parent, Pending, SessionKey};
use fanlight_protocol::json::Json;
use fanlight_protocol::result::ResultView as _;
use fanlight_protocol::{Method, Response, RpcError};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout};
use tokio_util::sync::DropGuard;

use crate::cache::Reads;
use crate::catalogue::{Catalogues, ListKind, Served, Snapshot, Sources};
use crate::cursor::{CursorSeal, KeyError, Position};
use crate::naming::namings;
use crate::route::{self, Target};
use crate::settings::{BackendEntry, GatewaySettings};
use crate::tasks::Tasks;
use crate::watch::Watch;
use crate::{describe, fault, listen};

/// Several backends behind one face.
pub struct Gateway {
    sources: Arc<Sources>,
    catalogues: Arc<Catalogues>,
    reads: Arc<Reads>,
    watch: Arc<Watch>,
    tasks: Arc<Tasks>,
    seal: CursorSeal,
    identity: Json,
    _ends_watch: DropGuard,
}

/// What a request takes.
enum Way<'a> {
    /// The answer of one backend.
    Backend { backend: usize, answer: Pending<'a, Response>, then: Then },
    /// Anything else. In a box it makes no call's future larger.
    Rare(Pin<Box<dyn Future<Output = Result<Response, RpcError>> + Send + 'a>>),
}

/// What is learnt from the answer of one backend.
enum Then {
    Nothing,
    CompareTools,
    NoteTask(Arc<CallContext>),
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("backends", &self.sources.backends).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Puts `settings.backends` behind one face. Asks nothing of them yet.
    pub fn new(settings: GatewaySettings) -> Result<Self, KeyError> {
        let seal = CursorSeal::new(&settings.keys)?;
        let named: Vec<_> =
            settings.backends.iter().map(|backend| (backend.client.name(), backend.prefix.as_deref())).collect();
        let namings = namings(&named);
        let sources = Arc::new(Sources { backends: settings.backends, namings, limits: settings.lists });
        let reads = Reads::new(sources.backends.len(), settings.cache);
        let tasks = Arc::new(Tasks::new(&sources, settings.max_tasks));
        let watch = Watch::new(Arc::clone(&sources), Arc::clone(&reads));
        let catalogues = Arc::clone(&watch.catalogues);
        let _ends_watch = watch.background.guard();
        Ok(Self { sources, catalogues, reads, watch, tasks, seal, identity: settings.identity, _ends_watch })
    }

    /// Answers one request in canonical form. Never fails: what goes wrong is an error response.
    ///
    /// [`Method::Discover`] asks for the description: its result has the shape of an `initialize`
    /// or a `server/discover` result, or, merged from several, `capabilities`, `serverInfo`,
    /// `instructions` and `_meta`. The client's edge renders it.
    ///
    /// Nothing is sent before the future is polled. Dropping it cancels the request at the backend.
    pub fn handle(&self, call: Call) -> impl Future<Output = Response> + Send {
        // The call goes right to where it is needed: the future that is made here is small.
        let way = match self.transparent() {
            Some(only) => self.pass(only, call),
            None => self.route(call),
        };
        async move {
            let answer = match way {
                Way::Backend { backend, answer, then } => match answer.await {
                    Ok(response) => {
                        self.note(then, backend, &response);
                        return response;
                    }
                    Err(error) => Err(fault::no_answer(self.sources.name(backend), &error)),
                },
                Way::Rare(answer) => answer.await,
            };
            answer.unwrap_or_else(|error| Response::from_error(&error))
        }
    }

    /// The definition of the tool that clients know as `name`, as they see it in the list; `None` for
    /// an unknown tool. A list that has to be read for it is read within `trace`.
    pub async fn tool(&self, name: &str, trace: &Parent) -> Option<Arc<Json>> {
        if self.transparent().is_none() {
            self.watch.begin();
        }
        let known = self.catalogues.of(ListKind::Tools).trusted();
        match known.as_ref().and_then(|snapshot| snapshot.find(name)) {
            Some(tool) => Some(Arc::clone(&tool.visible)),
            // Boxed: calls of known tools do not need the large future of reading lists.
            None => Box::pin(self.read_tool(name, trace)).await,
        }
    }

    async fn read_tool(&self, name: &str, trace: &Parent) -> Option<Arc<Json>> {
        let tools = self.catalogues.of(ListKind::Tools);
        let from_all = async {
            let snapshot = tools.known(trace).await;
            if let Some(tool) = snapshot.find(name) {
                return Some(Arc::clone(&tool.visible));
            }
            let fresh = tools.recheck(trace).await?;
            fresh.find(name).map(|tool| Arc::clone(&tool.visible))
        };
        match route::by_prefix(&self.sources, name) {
            // Backends that are slow to list must not delay a call of this one's tool.
            Some((backend, original)) => tokio::select! {
                biased;
                found = from_all => found,
                found = tools.entry_of(backend, original, trace) => found,
            },
            None => from_all.await,
        }
    }

    /// Begins to listen to what servers send outside of calls, until the result is dropped.
    ///
    /// With several backends, changes of lists are announced by the gateway itself, when a merged
    /// list has changed. Everything else comes from the backends, under the names the client knows.
    ///
    /// # Errors
    ///
    /// If the only backend does not answer. Of several, those that do not answer in time are not
    /// honoured.
    pub async fn listen(&self, listen: Listen) -> Result<Listening, RpcError> {
        match self.transparent() {
            Some(only) => {
                let answer = only.client.listen(listen::evicting(listen, &self.watch)).await;
                answer.map_err(|error| fault::no_answer(only.client.name(), &error))
            }
            None => {
                self.watch.begin();
                let owners = self.tasks.owners_of(&listen.context, &listen.interest.tasks).await;
                Ok(listen::to_all(&self.watch, listen, &owners).await)
            }
        }
    }

    /// Ends what the gateway does without being asked, and waits for that. Call it when no more
    /// requests come: lists are empty from now on.
    pub async fn stop(&self) {
        self.watch.background.stop().await;
    }

    /// The client's session has ended: backends let go of what they keep for it.
    pub fn end_session(&self, session: SessionKey) {
        for backend in &self.sources.backends {
            backend.client.end_session(session);
        }
    }

    /// How every backend is doing, in configuration order.
    #[must_use]
    pub fn status(&self) -> Vec<(String, BackendStatus)> {
        let clients = self.sources.backends.iter().map(|backend| &backend.client);
        clients.map(|client| (client.name().to_owned(), client.status())).collect()
    }

    /// The merged list as it is now, asking every backend.
    pub async fn catalogue(&self, kind: ListKind) -> Arc<Snapshot> {
        self.catalogues.of(kind).refresh().await
    }

    /// The merged list as clients are served it: backends are asked only where nobody can know better.
    pub async fn listed(&self, kind: ListKind) -> Arc<Snapshot> {
        if self.transparent().is_none() {
            self.watch.begin();
        }
        self.catalogues.of(kind).current(&Parent::default()).await.snapshot
    }

    /// The only backend, if there is but one and nothing is renamed or hidden: then everything
    /// passes as it is, cursors and unknown methods included.
    fn transparent(&self) -> Option<&BackendEntry> {
        match self.sources.backends.as_slice() {
            [only] if only.permits_tool.is_none() && only.prefix.as_deref().is_none_or(str::is_empty) => Some(only),
            _ => None,
        }
    }

    fn pass<'a>(&'a self, only: &'a BackendEntry, call: Call) -> Way<'a> {
        let then = match call.method {
            Method::Discover => return Way::Rare(Box::pin(self.describe_only(only))),
            Method::ListTools => Then::CompareTools,
            _ => Then::Nothing,
        };
        Way::Backend { backend: 0, answer: self.ask(0, call), then }
    }

    fn route(&self, call: Call) -> Way<'_> {
        match route::known_target(&call.method, call.params.as_ref(), &self.watch, &call.context.trace) {
            Some(Ok(Target::One(backend, params))) => {
                let then = Then::NoteTask(Arc::clone(&call.context));
                let answer = self.ask(backend, Call { params: Some(params), ..call });
                Way::Backend { backend, answer, then }
            }
            _ => Way::Rare(Box::pin(self.find_and_send(call))),
        }
    }

    /// Answers a request whose way is not known without asking, or which is not for one backend alone.
    async fn find_and_send(&self, call: Call) -> Result<Response, RpcError> {
        if let Some(kind) = ListKind::of(&call.method) {
            return self.list(kind, &call).await;
        }
        match route::target(&call.method, call.params.as_ref(), &self.watch, &call.context.trace).await {
            Some(Ok(Target::One(backend, params))) => {
                let context = Arc::clone(&call.context);
                let response = self.send(backend, Call { params: Some(params), ..call }).await?;
                self.tasks.note(&context, backend, &response);
                Ok(response)
            }
            Some(Ok(Target::FirstThatHas(backends, params))) => {
                self.first_that_has(&backends, Call { params: Some(params), ..call }).await
            }
            Some(Ok(Target::AllWith(capability))) => self.send_to_all_with(capability, &call).await,
            Some(Err(error)) => Err(error),
            None => self.unnamed(call).await,
        }
    }

    /// Learns from an answer that goes to a client.
    fn note(&self, then: Then, backend: usize, response: &Response) {
        match then {
            Then::Nothing => {}
            Then::CompareTools => self.compare_tools(response),
            Then::NoteTask(context) => self.tasks.note(&context, backend, response),
        }
    }

    /// Requests that name neither a list nor anything in one.
    async fn unnamed(&self, call: Call) -> Result<Response, RpcError> {
        match (&call.method, self.sources.backends.as_slice()) {
            (Method::Discover, [only]) => self.describe_only(only).await,
            (Method::Discover, _) => {
                let described = describe::all(&self.sources, &self.identity, &call.context.trace).await;
                Ok(Response::from_result(&described))
            }
            (_, [_]) => self.sources.send(0, call).await,
            (method, _) if Tasks::are_concerned(method) => self.tasks.handle(call, &self.seal).await,
            (Method::SetLogLevel, _) => self.send_to_all_with("logging", &call).await,
            (method, _) => Err(fault::unknown_method(method.as_str())),
        }
    }

    async fn send(&self, backend: usize, call: Call) -> Result<Response, RpcError> {
        self.ask(backend, call).await.map_err(|error| fault::no_answer(self.sources.name(backend), &error))
    }

    /// Asks a backend, for a resource only if it is not being read or kept already; the error is the backend's own.
    fn ask(&self, backend: usize, call: Call) -> Pending<'_, Response> {
        match self.sources.backends.get(backend).filter(|_| call.method == Method::ReadResource) {
            Some(entry) => Box::pin(self.reads.read(backend, &entry.client, call)),
            None => self.sources.request(backend, call),
        }
    }

    async fn describe_only(&self, only: &BackendEntry) -> Result<Response, RpcError> {
        match only.client.describe().await {
            Ok(description) if self.transparent().is_some() => Ok(Response::from_result(description.json())),
            Ok(description) => Ok(Response::from_result(&describe::only(&description))),
            Err(error) => Err(fault::no_answer(only.client.name(), &error)),
        }
    }

    async fn list(&self, kind: ListKind, call: &Call) -> Result<Response, RpcError> {
        self.watch.begin();
        let catalogue = self.catalogues.of(kind);
        let trace = &call.context.trace;
        let cursor = call.params.as_ref().and_then(|params| params.get("cursor")).filter(|cursor| !cursor.is_null());
        let (Served { snapshot, ttl_left, is_cached }, start) = match cursor {
            None => {
                let served = catalogue.current(trace).await;
                catalogue.expired().into_iter().for_each(|backend| self.watch.read_anew(kind.change(), backend));
                (served, 0)
            }
            Some(cursor) => {
                let position = cursor.as_str().and_then(|text| self.seal.open(&text));
                let position = position.filter(|position| position.list == kind.index()).ok_or_else(|| {
                    fault::invalid_params("params.cursor is no cursor of this list; start from the first page")
                })?;
                let (snapshot, is_cached) = match catalogue.generation(position.generation) {
                    Some(snapshot) => (snapshot, true),
                    None => catalogue.newest_or_first(trace).await,
                };
                let ttl_left = catalogue.ttl_left(&snapshot, Instant::now());
                // A backend that has gone from the configuration has nothing left to list.
                let start = snapshot.position(position.backend, position.offset).unwrap_or(usize::MAX);
                (Served { snapshot, ttl_left, is_cached }, start)
            }
        };
        trace.cache_hit(is_cached);
        trace.partial_failures(snapshot.failures());
        let next_cursor = |backend, offset| {
            self.seal.seal(Position { list: kind.index(), generation: snapshot.generation(), backend, offset })
        };
        Ok(snapshot.page(start, self.sources.limits.page_size, ttl_left, next_cursor))
    }

    /// Asks backends in turn for a resource that none of them lists. The first result counts; if
    /// there is none, the resource is not found, unless a backend could not even be asked. One that
    /// takes longer than a list may is still waited for, but the next is asked meanwhile.
    async fn first_that_has(&self, backends: &[usize], call: Call) -> Result<Response, RpcError> {
        let (mut not_asked, mut refusal) = (None, None);
        let mut left = backends.iter();
        let mut asked = FuturesUnordered::new();
        loop {
            if let Some(next) = left.next() {
                asked.push(self.read_if_capable(*next, call.clone()));
            }
            let patience = if left.len() > 0 { self.sources.limits.timeout } else { Duration::MAX };
            match timeout(patience, asked.next()).await {
                Ok(Some(Some(Ok(response)))) if !response.is_error() => return Ok(response),
                Ok(Some(Some(Ok(response)))) => drop(refusal.get_or_insert(response)),
                Ok(Some(Some(Err(error)))) => drop(not_asked.get_or_insert(error)),
                Ok(Some(None)) | Err(_) => {}
                Ok(None) => break,
            }
        }
        match (not_asked, refusal) {
            (Some(error), _) => Err(error),
            (None, Some(refusal)) => Ok(refusal),
            (None, None) => {
                let uri = call.params.and_then(|params| params.get("uri"));
                Err(fault::unknown_resource(uri.as_ref().and_then(Json::as_str).as_deref().unwrap_or_default()))
            }
        }
    }

    /// Sends a request to a backend that has resources at all.
    async fn read_if_capable(&self, backend: usize, call: Call) -> Option<Result<Response, RpcError>> {
        match self.has_capability(backend, "resources").await {
            true => Some(self.send(backend, call).await),
            false => None,
        }
    }

    /// Sends to every backend with the capability; succeeds if any of them does.
    async fn send_to_all_with(&self, capability: &str, call: &Call) -> Result<Response, RpcError> {
        let answers = join_all((0..self.sources.backends.len()).map(|backend| async move {
            match self.has_capability(backend, capability).await {
                true => Some(self.sources.send_briefly(backend, call.clone()).await),
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

    async fn has_capability(&self, backend: usize, capability: &str) -> bool {
        self.sources.have_capability(backend, capability).await
    }

    /// Marks the known tools as stale if a list that is passed to a client defines one differently.
    fn compare_tools(&self, response: &Response) {
        let tools = self.catalogues.of(ListKind::Tools);
        let Some(known) = tools.newest() else { return };
        if response.result().is_some_and(|list| !known.has_all_of(&list)) {
            tools.mark_stale();
        }
    }
}

impl Core for Gateway {
    fn handle(&self, call: Call) -> impl Future<Output = Response> + Send {
        Self::handle(self, call)
    }

    fn tool(&self, name: &str, trace: &Parent) -> impl Future<Output = Option<Arc<Json>>> + Send {
        Self::tool(self, name, trace)
    }

    fn listen(&self, listen: Listen) -> impl Future<Output = Result<Listening, RpcError>> + Send {
        Self::listen(self, listen)
    }

    fn end_session(&self, session: SessionKey) {
        Self::end_session(self, session);
    }
}

#[cfg(test)]
mod tests;
