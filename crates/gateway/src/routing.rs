//! Finds the server for a request, and that server's name for the subject of the request.

use std::ops::Range;
use std::sync::Arc;

use fanlight_canonical::{Call, CallContext, LONGEST_URI, Outcome, PolicyAction, Rewritten};
use fanlight_protocol::{Edits, Json, Method, RpcError};

use crate::catalogue::{Entry, ListKind, ListView, ListWatcher};
use crate::tasks::Tasks;
use crate::topology::{BackendId, Filtered, Member, ToolRewriting, View};
use crate::uris::{self, Claims, HandedOut, Opened};
use crate::{extensions, fault};

/// The destination of a request.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One server.
    One(Routed),
    /// Each server in turn, until one has the resource with this URI.
    FirstThatHas(String),
    /// Every server with this capability, with the same parameters.
    AllWith(&'static str),
}

/// A request for one server.
#[derive(Clone, Debug)]
pub(crate) struct Routed {
    pub(crate) backend: BackendId,
    /// The parameters with the names that the server knows.
    pub(crate) params: Json,
    /// The resource that the request asks for.
    pub(crate) asked: Option<Asked>,
    /// The app that the client opens with the request, if any.
    pub(crate) opens: Option<Opened>,
    /// The parts of the request that the configuration has changed.
    pub(crate) rewritten: Rewritten,
}

/// The resource that a request asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The server's URI for it.
    pub(crate) original: String,
    /// The client's URI for it.
    pub(crate) visible: String,
}

/// The location of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The resource belongs to this server, under this URI.
    At(BackendId, String),
    /// No list has the URI, so any server with resources may have it.
    Unlisted,
    /// Unknown, because the URI is too long to be compared with lists.
    Unroutable,
    /// The resource is hidden from the client, or only a withheld entry can have the URI.
    Withheld,
}

/// The parts of the gateway that know the items of each server. Requests share them with work in
/// the background.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(crate) lists: Arc<ListWatcher>,
    pub(crate) handed_out: Arc<HandedOut>,
    pub(crate) tasks: Arc<Tasks>,
}

impl Directory {
    /// The context for looking up names for a client.
    pub(crate) fn lookup<'a>(&'a self, view: &'a View, context: &'a CallContext) -> Lookup<'a> {
        Lookup {
            view,
            directory: self,
            context,
        }
    }
}

/// The context for looking up names: the client's view of the topology and of the servers' lists.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) view: &'a View,
    pub(crate) directory: &'a Directory,
    /// The client. Lists are read within its span.
    pub(crate) context: &'a CallContext,
}

impl Lookup<'_> {
    /// The newest list as `view` shows it; read first if there is none.
    async fn newest(self, kind: ListKind, view: &View) -> ListView {
        let (lists, trace) = (&self.directory.lists, &self.context.trace);
        lists.newest_view(kind, view, trace).await
    }

    /// The lists that tell which server owns `uri`, as `view` shows them.
    async fn claims<'a>(self, view: &'a View, uri: &str) -> Claims<'a> {
        let (lists, trace) = (&self.directory.lists, &self.context.trace);
        Claims::read(view, lists, std::iter::once(uri), trace).await
    }

    /// The target of a request that names a tool or a prompt, if no server has to be asked.
    pub(crate) fn known_target(
        self,
        method: &Method,
        params: Option<&Json>,
    ) -> Option<Result<Target, RpcError>> {
        let kind = match method {
            Method::CallTool => ListKind::Tools,
            Method::GetPrompt => ListKind::Prompts,
            _ => return None,
        };
        Router::new(params, self).resolve_known_name(kind, &["name"])
    }

    /// The target of a call of this listed tool.
    pub(crate) fn target_of_tool(
        self,
        params: Option<&Json>,
        tool: &Entry,
    ) -> Result<Target, RpcError> {
        let router = Router::new(params, self);
        let (range, _) = router.string_at(&["name"])?;
        router.to_entry(tool, range)
    }

    /// The target of a request that names a tool, a prompt or a resource. `None` if the method
    /// names none.
    pub(crate) async fn target(
        self,
        method: &Method,
        params: Option<&Json>,
    ) -> Option<Result<Target, RpcError>> {
        let router = Router::new(params, self);
        match method {
            Method::CallTool => Some(router.resolve_name(ListKind::Tools, &["name"]).await),
            Method::GetPrompt => Some(router.resolve_name(ListKind::Prompts, &["name"]).await),
            Method::ReadResource | Method::GetSkill | Method::ReadDirectory => {
                let action = match method {
                    Method::GetSkill => PolicyAction::GetSkill,
                    _ => PolicyAction::Read,
                };
                Some(router.resolve_uri(&["uri"], action).await)
            }
            Method::Subscribe => Some(router.subscription(PolicyAction::Subscribe).await),
            Method::Unsubscribe => Some(router.subscription(PolicyAction::Read).await),
            Method::Complete => Some(router.resolve_reference().await),
            _ => None,
        }
    }

    /// The target of an unknown method: the server that owns a name in its parameters. `None` if
    /// they name nothing known.
    pub(crate) async fn target_of_unknown(self, params: &Json) -> Result<Option<Routed>, RpcError> {
        let (tasks, names) = (&self.directory.tasks, extensions::names(params));
        let task = tasks.known(self.view, self.context, Some(params)).await;
        let mut found = task.map(|known| known.backend);
        let mut edits = Edits::new(params.bytes().clone());
        let mut is_edited = false;
        for name in &names {
            let Some((backend, original)) = self.find_owner(&name.text).await? else {
                continue;
            };
            if found.is_some_and(|other| other != backend) {
                return Err(fault::invalid_params(
                    "params name things of several servers",
                ));
            }
            found = Some(backend);
            if original != name.text {
                edits.replace(name.place.clone(), Json::string(&original).into_bytes());
                is_edited = true;
            }
        }
        let params = if is_edited {
            edits.finish_json()
        } else {
            params.clone()
        };
        let rewritten = Rewritten::empty();
        Ok(found.map(|backend| Routed {
            backend,
            params,
            asked: None,
            opens: None,
            rewritten,
        }))
    }

    /// The server that owns the clients' name `name`, and the server's own name for the same thing.
    async fn find_owner(self, name: &str) -> Result<Option<(BackendId, String)>, RpcError> {
        let view = self.view;
        for kind in [ListKind::Tools, ListKind::Prompts] {
            let list = self.newest(kind, view).await;
            let entry = list.find(name);
            if entry.is_some_and(|entry| {
                entry
                    .rewriting
                    .as_ref()
                    .is_some_and(|tool| tool.guards_arguments())
            }) {
                return Err(fault::only_by_call(name));
            }
            if let Some((entry, original)) =
                entry.and_then(|entry| Some((entry, entry.original.as_ref()?.as_str()?)))
            {
                return Ok(Some((entry.backend, original.into_owned())));
            }
        }
        if view.backends().any(|backend| backend.withholds(name)) {
            return Err(fault::unknown_name("name", name, &[]));
        }
        if let Some((backend, original)) = find_by_prefix(view, name) {
            // A filter on calls must not be bypassed by other methods.
            return if backend.has_listed_tools_only || !view.passes_all_of(backend.id) {
                Err(fault::unknown_name("name", name, &[]))
            } else {
                Ok(Some((backend.id, original.to_owned())))
            };
        }
        match name.contains(':').then_some(self.locate(name)) {
            Some(place) => match place.await {
                Place::At(backend, original) => Ok(Some((backend, original))),
                Place::Unlisted | Place::Unroutable => Ok(None),
                Place::Withheld => Err(fault::unknown_resource(name)),
            },
            None => Ok(None),
        }
    }

    /// The location of the resource that the client knows as `uri`.
    pub(crate) async fn locate(self, uri: &str) -> Place {
        match self.locate_anywhere(uri).await {
            // A list has it, but not for this client.
            Place::Unlisted if self.view.rights().is_some() && self.is_listed(uri).await => {
                Place::Withheld
            }
            Place::At(backend, original) if !self.shows(backend, uri, &original).await => {
                Place::Withheld
            }
            Place::At(backend, original) if self.withholds(backend, uri, &original).await => {
                Place::Withheld
            }
            place => place,
        }
    }

    /// Whether a list names or explains the URI, for whichever client.
    async fn is_listed(self, uri: &str) -> bool {
        let everything = self.view.without_filters();
        self.claims(&everything, uri).await.may_list(uri)
    }

    /// Whether the URI may belong to something that is withheld: an entry of this server is
    /// withheld, and nothing else that the server lists explains the URI.
    async fn withholds(self, backend: BackendId, uri: &str, original: &str) -> bool {
        let Some(templates) = self.templates_beside_withheld(backend).await else {
            return false;
        };
        !templates.whole().explains(original, backend)
            && !self.is_listed_by(backend, uri, original).await
    }

    /// The list of templates, if a template, a resource or a skill of this server is withheld.
    async fn templates_beside_withheld(self, backend: BackendId) -> Option<ListView> {
        let topology = self.view.topology();
        // Most servers have no pins or guards that could withhold an entry.
        topology
            .get(backend)
            .filter(|member| member.can_withhold())?;
        let everything = self.view.without_filters();
        let of_kind = async |kind| self.newest(kind, &everything).await;
        let templates = of_kind(ListKind::ResourceTemplates).await;
        let is_any_withheld = templates.whole().withholds_of(backend)
            || of_kind(ListKind::Resources)
                .await
                .whole()
                .withholds_of(backend)
            || of_kind(ListKind::Skills)
                .await
                .whole()
                .withholds_of(backend);
        is_any_withheld.then_some(templates)
    }

    /// Whether a server may be asked for a resource that no list has.
    pub(crate) async fn may_have_unlisted(self, backend: BackendId) -> bool {
        self.templates_beside_withheld(backend).await.is_none()
    }

    async fn locate_anywhere(self, uri: &str) -> Place {
        let Self {
            view,
            directory,
            context,
        } = self;
        if uri.len() > LONGEST_URI {
            return Place::Unroutable;
        }
        if let Some((backend, original)) = view.unalias(uri) {
            return Place::At(backend.id, original);
        }
        let resources = self
            .newest(ListKind::Resources, &view.without_filters())
            .await;
        let listed = resources.whole().backend_naming(uri);
        let owner = match listed.filter(|owner| view.shows(*owner) && view.permits_uri(*owner, uri))
        {
            Some(backend) => Some(backend),
            None => self.claims(view, uri).await.owner(uri),
        };
        let handed_out = || {
            let owner = directory.handed_out.owner(&context.caller, uri);
            owner.filter(|owner| view.topology().get(*owner).is_some())
        };
        match owner.or_else(handed_out) {
            Some(backend) => Place::At(backend, uri.to_owned()),
            None => Place::Unlisted,
        }
    }

    /// Whether the client's endpoint and the policy show the resource that the server calls
    /// `original` and clients call `uri`.
    async fn shows(self, backend: BackendId, uri: &str, original: &str) -> bool {
        let view = self.view;
        if !view.shows(backend) {
            return false;
        }
        if !view.filters(Filtered::Resources) {
            return true;
        }
        if !view.permits_uri(backend, original) {
            return false;
        }
        // A skill is hidden with all its files if one of them is.
        let skills = self.newest(ListKind::Skills, view).await;
        if skills.whole().find(uri).is_some() && skills.find(uri).is_none() {
            return false;
        }
        if view.permits_unlisted_uri(backend, original) {
            return true;
        }
        // A listed URI is read as its server means it. A URI in a result may be the client's own
        // text.
        self.is_listed_by(backend, uri, original).await
    }

    /// Whether a list of this server names the URI.
    async fn is_listed_by(self, backend: BackendId, uri: &str, original: &str) -> bool {
        let naming = [
            ListKind::Resources,
            ListKind::ResourceTemplates,
            ListKind::Skills,
        ];
        let tools = uris::is_app(original).then_some(ListKind::Tools);
        for kind in naming.into_iter().chain(tools) {
            let list = self.newest(kind, self.view).await;
            if list.whole().backend_naming(uri) == Some(backend) {
                return true;
            }
        }
        false
    }
}

/// The server with the longest prefix of `name`, and the rest of the name. `None` if `view` does
/// not show that server.
pub(crate) fn find_by_prefix<'a>(view: &'a View, name: &'a str) -> Option<(&'a Member, &'a str)> {
    // Of equally long prefixes the first visible server's counts, and `max_by_key` returns the last.
    let prefixed = view
        .topology()
        .backends()
        .iter()
        .rev()
        .filter(|backend| backend.naming.prefix_len() > 0);
    let found = prefixed.filter_map(|backend| Some((backend, backend.naming.original_name(name)?)));
    found
        .max_by_key(|(backend, _)| (backend.naming.prefix_len(), view.shows(backend.id)))
        .filter(|(backend, _)| view.shows(backend.id))
}

/// The client's alias for the resource that a server calls `uri`, as far as the known lists tell.
/// `None` if clients know it by its own URI.
pub(crate) fn alias_in_use(
    backend: BackendId,
    uri: &str,
    client: &CallContext,
    lists: &ListWatcher,
    handed_out: impl FnOnce(&str) -> Option<BackendId>,
) -> Option<String> {
    let view = View::for_client(lists.topology(), client);
    let topology = view.topology();
    let needs_alias = Claims::from_newest_lists(&view, lists).needs_alias(uri, backend);
    let is_needed =
        needs_alias.unwrap_or_else(|| handed_out(uri).is_some_and(|owner| owner != backend));
    is_needed.then(|| topology.get(backend).map(|member| member.naming.alias(uri)))?
}

struct Router<'a> {
    lookup: Lookup<'a>,
    params: Json,
}

impl<'a> Router<'a> {
    fn new(params: Option<&Json>, lookup: Lookup<'a>) -> Self {
        Self {
            lookup,
            params: params.cloned().unwrap_or_else(Json::empty_object),
        }
    }

    async fn resolve_name(&self, kind: ListKind, path: &[&str]) -> Result<Target, RpcError> {
        if let Some(known) = self.resolve_known_name(kind, path) {
            return known;
        }
        let (range, name) = self.string_at(path)?;
        let Lookup {
            view,
            directory: Directory { lists, .. },
            context,
        } = self.lookup;
        let catalogue = lists.catalogue(kind, view);
        let newest = catalogue.newest_in(view);
        let is_missing = |backend: &Member| {
            newest.as_ref().is_none_or(|list| {
                let mut missing = list.unlisted_servers().into_iter();
                missing.any(|(name, _)| name == backend.name())
            })
        };
        // Slow servers must not delay a call of another server's tool.
        if let Some((backend, original)) = find_by_prefix(view, &name)
            && is_missing(backend)
            && backend.permits_tool(original)
            && let Some(definition) = match kind {
                ListKind::Tools => lists.tool_of(view, backend, original, &context.trace).await,
                _ => {
                    let (topology, trace) = (view.topology(), &context.trace);
                    catalogue
                        .entry_of(topology, backend.id, original, trace)
                        .await
                }
            }
            && view.permits_name(kind.change(), backend.id, original, Some(&definition))
        {
            return self.to_unlisted(backend, original, kind, range);
        }
        let fresh = match newest {
            None => Some(self.lookup.newest(kind, view).await),
            Some(_) => catalogue.recheck(view, &context.trace).await,
        };
        if let Some(entry) = fresh.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            return self.to_entry(entry, range);
        }
        match fresh
            .as_ref()
            .and_then(|snapshot| self.resolve_bare_name(snapshot, &name, range.clone()))
        {
            Some(found) => found,
            None => {
                let mut unlisted = fresh
                    .or(newest)
                    .map(|snapshot| snapshot.unlisted_servers())
                    .unwrap_or_default();
                // A server where the client may not sign in has nothing for that client.
                unlisted.retain(|(missing, outcome)| {
                    *outcome != Outcome::SignInNeeded
                        || self
                            .backend(missing)
                            .is_none_or(|it| view.permits_sign_in(it.id))
                });
                let sign_in_first = match self.to_sign_in(&name, &unlisted) {
                    // The server itself reports how to sign in.
                    Some(backend)
                        if !self.is_by_list(kind, backend) && backend.naming.prefix_len() == 0 =>
                    {
                        return self.to_unlisted(backend, &name, kind, range);
                    }
                    Some(backend) => Box::pin(self.sign_in_first(backend)).await,
                    None => None,
                };
                match sign_in_first {
                    Some(error) => Err(error),
                    None => self
                        .to_stood_for(kind, &name, range)
                        .unwrap_or_else(|| Err(fault::unknown_name(noun(kind), &name, &unlisted))),
                }
            }
        }
    }

    /// The server of an unlisted name, if only a server that requires a sign-in can have it.
    fn to_sign_in(&self, name: &str, unlisted: &[(String, Outcome)]) -> Option<&'a Member> {
        let prefix = find_by_prefix(self.lookup.view, name).map(|(backend, _)| backend.name());
        let backend = match (prefix, unlisted) {
            (Some(backend), _) => self.backend(backend)?,
            (None, [(only, _)]) => self.backend(only)?,
            (None, _) => return None,
        };
        let known = unlisted
            .iter()
            .find(|(missing, _)| missing == backend.name());
        known
            .is_some_and(|(_, outcome)| *outcome == Outcome::SignInNeeded)
            .then_some(backend)
    }

    /// Asks a server for a list to learn how its user can sign in, because it permits no call of an
    /// unlisted name. `None` if it no longer requires a sign-in.
    async fn sign_in_first(&self, backend: &Member) -> Option<RpcError> {
        let Lookup { view, context, .. } = self.lookup;
        let call = Call::new(Method::ListTools, None, context.without_progress());
        let error = view
            .wait_briefly(view.request(backend.id, call))
            .await
            .err();
        error
            .filter(|error| error.sign_in().is_some())
            .map(|error| view.no_answer(backend.id, &error))
    }

    fn backend(&self, name: &str) -> Option<&'a Member> {
        self.lookup
            .view
            .backends()
            .find(|backend| backend.name() == name)
    }

    /// The target of an unlisted name at a server whose list is replaced by a stand-in tool: the
    /// stand-in, or a tool that it stands for. `None` if the server permits listed names only,
    /// except for the stand-in.
    fn to_stood_for(
        &self,
        kind: ListKind,
        name: &str,
        range: Range<usize>,
    ) -> Option<Result<Target, RpcError>> {
        let view = self.lookup.view;
        let takes_it = |backend: &&Member| {
            let is_open = backend.traits.stand_in.is_some() && !self.is_by_list(kind, backend);
            let own = backend
                .naming
                .original_name(name)
                .filter(|own| is_open || backend.is_stand_in(own));
            own.is_some_and(|own| view.permits_name(Filtered::Tools, backend.id, own, None))
        };
        let mut found = view
            .backends()
            .filter(takes_it)
            .filter(|_| kind == ListKind::Tools);
        let (Some(backend), None) = (found.next(), found.next()) else {
            return None;
        };
        Some(self.to_unlisted(backend, backend.naming.original_name(name)?, kind, range))
    }

    /// Whether only listed names of this server may be called. That holds with a filter or a
    /// rewriting, because a server can know a tool by more names than they cover.
    fn is_by_list(&self, kind: ListKind, backend: &Member) -> bool {
        self.lookup.view.filters(kind.change())
            || match kind {
                ListKind::Tools => backend.has_listed_tools_only,
                _ => backend.has_listed_prompts_only(),
            }
    }

    /// [`Router::resolve_name`] without asking a server: uses prefixes and the lists already read.
    fn resolve_known_name(
        &self,
        kind: ListKind,
        path: &[&str],
    ) -> Option<Result<Target, RpcError>> {
        let (range, name) = match self.string_at(path) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let Lookup {
            view, directory, ..
        } = self.lookup;
        let newest = directory.lists.catalogue(kind, view).newest_in(view);
        if let Some(entry) = newest.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            return Some(self.to_entry(entry, range));
        }
        // A prefix names the server without any list, even for a name that the server does not
        // list.
        let Some((backend, original)) = find_by_prefix(view, &name) else {
            return newest
                .as_ref()
                .and_then(|snapshot| self.resolve_bare_name(snapshot, &name, range));
        };
        (!self.is_by_list(kind, backend)).then(|| self.to_unlisted(backend, original, kind, range))
    }

    /// The target of a tool's original name. Apps call tools by it, because they know nothing of
    /// prefixes (MCP Apps 2026-01-26, Standard MCP Messages). If several servers have the name, the
    /// server whose app the client has open is meant. `None` if no list has the name, or if a list
    /// that may have it is missing.
    fn resolve_bare_name(
        &self,
        tools: &ListView,
        name: &str,
        range: Range<usize>,
    ) -> Option<Result<Target, RpcError>> {
        let all: Vec<_> = tools.find_bare(name).collect();
        let Lookup {
            directory, context, ..
        } = self.lookup;
        let origin_of = |candidates: &[&Entry]| {
            let backends: Vec<_> = candidates.iter().map(|entry| entry.backend).collect();
            directory.handed_out.only_origin(&context.caller, &backends)
        };
        let for_apps: Vec<_> = all
            .iter()
            .copied()
            .filter(|entry| uris::is_for_apps(&entry.visible))
            .collect();
        let meant = match all.as_slice() {
            [] => return None,
            // A server whose list is missing may have the tool too.
            [only]
                if tools.unlisted_servers().is_empty() || origin_of(&all) == Some(only.backend) =>
            {
                Some(*only)
            }
            [_] => return None,
            _ => match origin_of(&for_apps) {
                Some(origin) => for_apps
                    .iter()
                    .find(|entry| entry.backend == origin)
                    .copied(),
                None => None,
            },
        };
        Some(match meant {
            Some(entry) => self.to_entry(entry, range),
            None => {
                let keys = all
                    .iter()
                    .filter_map(|entry| entry.key.as_ref()?.as_str())
                    .map(|key| key.into_owned());
                Err(fault::ambiguous_tool(name, &keys.collect::<Vec<_>>()))
            }
        })
    }

    async fn resolve_uri(&self, path: &[&str], action: PolicyAction) -> Result<Target, RpcError> {
        let (range, uri) = self.string_at(path)?;
        let view = self.lookup.view;
        let longest = LONGEST_URI;
        if uri.len() > longest {
            let message = format!(
                "params.{} is longer than {longest} bytes, the limit here",
                path.join(".")
            );
            return Err(fault::invalid_params(message));
        }
        let opens = uris::is_app(&uri).then_some(Opened::ByRead);
        Ok(match self.lookup.locate(&uri).await {
            Place::At(backend, original) => {
                let params = if original == uri {
                    self.params.clone()
                } else {
                    self.rename_item(range, &Json::string(&original))
                };
                Target::One(Routed {
                    backend,
                    params,
                    asked: Some(Asked {
                        original,
                        visible: uri,
                    }),
                    opens,
                    rewritten: Rewritten::empty(),
                })
            }
            Place::Withheld => return Err(fault::unknown_resource(&uri)),
            Place::Unlisted | Place::Unroutable if view.filters(Filtered::Resources) => {
                let permits = |one: &&Member| view.permits_unlisted(action, one.id, &uri);
                match (view.backends().find(permits), view.topology().backends()) {
                    (None, _) => return Err(fault::unknown_resource(&uri)),
                    (Some(_), [only]) if self.lookup.may_have_unlisted(only.id).await => {
                        Target::One(Routed {
                            backend: only.id,
                            params: self.params.clone(),
                            asked: None,
                            opens,
                            rewritten: Rewritten::empty(),
                        })
                    }
                    _ => Target::FirstThatHas(uri),
                }
            }
            // Links in tool results need not be in any list (server/tools, Resource Links), so the
            // servers with resources are asked in turn. Asking is reading, which changes nothing.
            Place::Unlisted | Place::Unroutable => Target::FirstThatHas(uri),
        })
    }

    /// A subscription to an unlisted resource goes to all servers: the first one might accept any
    /// URI while another one has the resource.
    async fn subscription(&self, action: PolicyAction) -> Result<Target, RpcError> {
        match self.resolve_uri(&["uri"], action).await? {
            Target::FirstThatHas(uri) => {
                for backend in self.lookup.view.ids() {
                    if !self.lookup.may_have_unlisted(backend).await {
                        return Err(fault::unknown_resource(&uri));
                    }
                }
                Ok(Target::AllWith("resources"))
            }
            target => Ok(target),
        }
    }

    /// The target of `completion/complete`, which refers to a prompt by name or to a template by
    /// URI.
    async fn resolve_reference(&self) -> Result<Target, RpcError> {
        let (_, reference) = self.string_at(&["ref", "type"])?;
        let named = |member| {
            self.params
                .get("ref")
                .is_some_and(|reference| reference.peek(member).is_some())
        };
        if named("name") && named("uri") {
            // A server might use the other one than the policy has decided about.
            return Err(fault::invalid_params(
                "params.ref has both a name and a uri".to_owned(),
            ));
        }
        match reference.as_str() {
            "ref/prompt" => self.resolve_name(ListKind::Prompts, &["ref", "name"]).await,
            "ref/resource" => {
                self.resolve_uri(&["ref", "uri"], PolicyAction::Complete)
                    .await
            }
            other => Err(fault::invalid_params(format!(
                "params.ref.type {other:?} is neither ref/prompt nor ref/resource"
            ))),
        }
    }

    fn to_entry(&self, entry: &Entry, range: Range<usize>) -> Result<Target, RpcError> {
        let named = match (&entry.original, &entry.key) {
            (Some(original), Some(key)) if original != key => Some(original),
            _ => None,
        };
        let (params, arguments) = self.rewrite_params(entry.rewriting.as_deref(), named, range)?;
        Ok(Target::One(Routed {
            backend: entry.backend,
            params,
            asked: None,
            opens: entry.shows_app.then_some(Opened::ByCall),
            rewritten: arguments.union(entry.rewritten.intersection(Rewritten::NAME)),
        }))
    }

    /// The target of a name `original` at a server, which no merged list has yet.
    fn to_unlisted(
        &self,
        backend: &Member,
        original: &str,
        kind: ListKind,
        range: Range<usize>,
    ) -> Result<Target, RpcError> {
        let rewriting = backend
            .rewritings
            .find(original)
            .filter(|_| kind == ListKind::Tools);
        let name = Json::string(original);
        let (params, arguments) =
            self.rewrite_params(rewriting.map(Arc::as_ref), Some(&name), range)?;
        let is_renamed = backend.naming.bare_name(original) != original;
        Ok(Target::One(Routed {
            backend: backend.id,
            params,
            asked: None,
            opens: None,
            rewritten: arguments.union(Rewritten::NAME.when(is_renamed)),
        }))
    }

    /// The parameters with `name` at `range`, if given, and with the arguments for the server. Notes
    /// that a call must not be repeated.
    fn rewrite_params(
        &self,
        rewriting: Option<&ToolRewriting>,
        name: Option<&Json>,
        range: Range<usize>,
    ) -> Result<(Json, Rewritten), RpcError> {
        if rewriting.is_some_and(ToolRewriting::runs_once) {
            self.lookup.context.run_once();
        }
        let Some(arguments) = rewriting
            .map(|rewriting| &rewriting.arguments)
            .filter(|arguments| !arguments.is_empty())
        else {
            let params =
                name.map_or_else(|| self.params.clone(), |name| self.rename_item(range, name));
            return Ok((params, Rewritten::empty()));
        };
        let params = arguments.apply(&self.params, name.map(|name| (range, name)))?;
        Ok((params, Rewritten::ARGUMENTS.when(arguments.adds())))
    }

    fn rename_item(&self, range: Range<usize>, name: &Json) -> Json {
        self.params.with_indexed(range, name)
    }

    /// The string at `path` in the parameters, and its range.
    fn string_at(&self, path: &[&str]) -> Result<(Range<usize>, String), RpcError> {
        let dotted = || format!("params.{}", path.join("."));
        let mut at = 0..self.params.bytes().len();
        for key in path {
            let object = self.params.slice(at.clone());
            let [found] = object
                .find([*key])
                .map_err(|duplicate| fault::invalid_params(format!("{}: {duplicate}", dotted())))?;
            let found =
                found.ok_or_else(|| fault::invalid_params(format!("{} is missing", dotted())))?;
            at = at.start + found.start..at.start + found.end;
        }
        match self.params.slice(at.clone()).as_str() {
            Some(text) => Ok((at, text.into_owned())),
            None => Err(fault::invalid_params(format!(
                "{} must be a string",
                dotted()
            ))),
        }
    }
}

/// The word for a list's entries in error messages.
fn noun(kind: ListKind) -> &'static str {
    if kind == ListKind::Tools {
        "tool"
    } else {
        "prompt"
    }
}
