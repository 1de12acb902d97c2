//! Where a request is sent, and what its subject is called there.

use std::ops::Range;
use std::sync::Arc;

use fanlight_canonical::Parent;
use fanlight_protocol::json::Json;
use fanlight_protocol::{Method, RpcError};

use crate::catalogue::{Entry, ListKind, ListWatcher};
use crate::fault;
use crate::topology::{BackendId, Member, Topology};

/// Where a request is sent.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// To this backend, with these parameters.
    One(BackendId, Json),
    /// With these parameters to each backend in turn, until one has the resource.
    FirstThatHas(Json),
    /// To every backend with this capability, with the same parameters.
    AllWith(&'static str),
}

/// Where a resource is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this backend, under this URI.
    At(BackendId, String),
    /// In no list: any backend that has resources may have it.
    Unlisted,
    /// Its URI is longer than is compared with lists.
    Unroutable,
}

/// What names are looked up in: the topology that the request began with, and the lists of its backends.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) topology: &'a Arc<Topology>,
    pub(crate) lists: &'a Arc<ListWatcher>,
    /// The span that lists are read within.
    pub(crate) trace: &'a Parent,
}

impl Lookup<'_> {
    /// The target of a request that names a tool or a prompt, if it is known without asking a backend.
    pub(crate) fn known_target(self, method: &Method, params: Option<&Json>) -> Option<Result<Target, RpcError>> {
        let kind = match method {
            Method::CallTool => ListKind::Tools,
            Method::GetPrompt => ListKind::Prompts,
            _ => return None,
        };
        Router::new(params, self).known_by_name(kind, &["name"])
    }

    /// The target of a request that names a tool, a prompt or a resource; `None` if its method names
    /// none.
    pub(crate) async fn target(self, method: &Method, params: Option<&Json>) -> Option<Result<Target, RpcError>> {
        let router = Router::new(params, self);
        match method {
            Method::CallTool => Some(router.by_name(ListKind::Tools, &["name"]).await),
            Method::GetPrompt => Some(router.by_name(ListKind::Prompts, &["name"]).await),
            Method::ReadResource => Some(router.by_uri(&["uri"]).await),
            Method::Subscribe | Method::Unsubscribe => Some(router.subscription().await),
            Method::Complete => Some(router.by_reference().await),
            _ => None,
        }
    }

    /// Where the resource is that clients know as `uri`.
    pub(crate) async fn locate(self, uri: &str) -> Place {
        if uri.len() > self.topology.limits.uri {
            return Place::Unroutable;
        }
        let unaliased = |backend: &Member| Some(Place::At(backend.id, backend.naming.unalias(uri)?.to_owned()));
        if let Some(place) = self.topology.backends().iter().find_map(unaliased) {
            return place;
        }
        let resources = self.lists.known(ListKind::Resources, self.topology, self.trace).await;
        if let Some(entry) = resources.find(uri) {
            return Place::At(entry.backend, uri.to_owned());
        }
        let templates = self.lists.known(ListKind::ResourceTemplates, self.topology, self.trace).await;
        match templates.find(uri).or_else(|| templates.find_template(uri)) {
            Some(entry) => Place::At(entry.backend, uri.to_owned()),
            None => Place::Unlisted,
        }
    }
}

/// The backend with the longest prefix that `name` has, and the rest of the name.
pub(crate) fn by_prefix<'a, 'n>(topology: &'a Topology, name: &'n str) -> Option<(&'a Member, &'n str)> {
    // Of equally long prefixes the first backend's counts, and `max_by_key` returns the last.
    let prefixed = topology.backends().iter().rev().filter(|backend| !backend.naming.is_identity());
    let found = prefixed.filter_map(|backend| Some((backend, backend.naming.original(name)?)));
    found.max_by_key(|(backend, _)| backend.naming.prefix_len())
}

/// What clients call the resource that a backend calls `uri`, as far as the known lists tell.
pub(crate) fn visible_uri(backend: BackendId, uri: &str, lists: &ListWatcher) -> Option<String> {
    let topology = lists.topology();
    let alias = topology.get(backend)?.naming.alias(uri);
    let resources = lists.catalogues.of(ListKind::Resources).newest(&topology);
    let templates = lists.catalogues.of(ListKind::ResourceTemplates).newest(&topology);
    let is_listed = |uri: &str| resources.as_ref()?.find(uri).map(|entry| entry.backend == backend);
    let is_templated = |uri: &str| templates.as_ref()?.find_template(uri).map(|entry| entry.backend == backend);
    let is_aliased = |is_its: &dyn Fn(&str) -> Option<bool>| {
        (is_its(uri) != Some(true)).then(|| is_its(&alias)).flatten().unwrap_or_default()
    };
    (is_aliased(&is_listed) || is_aliased(&is_templated)).then_some(alias)
}

struct Router<'a> {
    lookup: Lookup<'a>,
    params: Json,
}

impl<'a> Router<'a> {
    fn new(params: Option<&Json>, lookup: Lookup<'a>) -> Self {
        Self { lookup, params: params.cloned().unwrap_or_else(Json::empty_object) }
    }

    async fn by_name(&self, kind: ListKind, path: &[&str]) -> Result<Target, RpcError> {
        if let Some(known) = self.known_by_name(kind, path) {
            return known;
        }
        let (range, name) = self.string_at(path)?;
        let Lookup { topology, lists, trace } = self.lookup;
        let catalogue = lists.catalogues.of(kind);
        let newest = catalogue.newest(topology);
        // Backends that are slow to list must not delay the first call of another one's tool.
        if newest.is_none()
            && let Some((backend, original)) = by_prefix(topology, &name)
            && backend.permits_tool(original)
            && catalogue.entry_of(topology, backend.id, original, trace).await.is_some()
        {
            return Ok(Target::One(backend.id, self.renamed(range, &Json::string(original))));
        }
        let fresh = match newest {
            None => Some(lists.known(kind, topology, trace).await),
            Some(_) => catalogue.recheck(topology, trace).await,
        };
        match fresh.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            Some(entry) => Ok(self.to_entry(entry, range)),
            None => {
                let unlisted = fresh.or(newest).map(|snapshot| snapshot.unlisted()).unwrap_or_default();
                Err(fault::unknown_name(noun(kind), &name, &unlisted))
            }
        }
    }

    /// [`Router::by_name`] as far as the lists that have been read, or a prefix, can tell.
    fn known_by_name(&self, kind: ListKind, path: &[&str]) -> Option<Result<Target, RpcError>> {
        let (range, name) = match self.string_at(path) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let Lookup { topology, lists, .. } = self.lookup;
        let newest = lists.catalogues.of(kind).newest(topology);
        if let Some(entry) = newest.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            return Some(Ok(self.to_entry(entry, range)));
        }
        // A prefix names the backend without any list, also for what the backend does not list. But where a filter
        // exists, only what is listed may be called: a server can know a tool by more names than the filter does.
        let (backend, original) = by_prefix(topology, &name)?;
        let is_open = kind != ListKind::Tools || !backend.has_tool_filter();
        is_open.then(|| Ok(Target::One(backend.id, self.renamed(range, &Json::string(original)))))
    }

    async fn by_uri(&self, path: &[&str]) -> Result<Target, RpcError> {
        let (range, uri) = self.string_at(path)?;
        let longest = self.lookup.topology.limits.uri;
        if uri.len() > longest {
            let message = format!("params.{} is longer than {longest} bytes, the limit here", path.join("."));
            return Err(fault::invalid_params(message));
        }
        Ok(match self.lookup.locate(&uri).await {
            Place::At(backend, original) if original == uri => Target::One(backend, self.params.clone()),
            Place::At(backend, original) => Target::One(backend, self.renamed(range, &Json::string(&original))),
            // Links in tool results need not be in any list (server/tools, Resource Links), so the
            // backends that have resources are asked in turn. Asking is reading, which changes nothing.
            Place::Unlisted | Place::Unroutable => Target::FirstThatHas(self.params.clone()),
        })
    }

    /// A subscription goes to all backends if the resource is unlisted: the first might accept one to
    /// anything, and another have the resource.
    async fn subscription(&self) -> Result<Target, RpcError> {
        match self.by_uri(&["uri"]).await? {
            Target::FirstThatHas(..) => Ok(Target::AllWith("resources")),
            target => Ok(target),
        }
    }

    /// `completion/complete` refers to a prompt by name or to a template by URI.
    async fn by_reference(&self) -> Result<Target, RpcError> {
        let (_, reference) = self.string_at(&["ref", "type"])?;
        match reference.as_str() {
            "ref/prompt" => self.by_name(ListKind::Prompts, &["ref", "name"]).await,
            "ref/resource" => self.by_uri(&["ref", "uri"]).await,
            other => {
                Err(fault::invalid_params(format!("params.ref.type {other:?} is neither ref/prompt nor ref/resource")))
            }
        }
    }

    fn to_entry(&self, entry: &Entry, range: Range<usize>) -> Target {
        match (&entry.original, &entry.key) {
            (Some(original), Some(key)) if original != key => Target::One(entry.backend, self.renamed(range, original)),
            _ => Target::One(entry.backend, self.params.clone()),
        }
    }

    fn renamed(&self, range: Range<usize>, name: &Json) -> Json {
        self.params.with_indexed(range, name)
    }

    /// The string at `path` in the parameters, and its range.
    fn string_at(&self, path: &[&str]) -> Result<(Range<usize>, String), RpcError> {
        let dotted = || format!("params.{}", path.join("."));
        let mut at = 0..self.params.bytes().len();
        for key in path {
            let object = self.params.slice(at.clone());
            let [found] =
                object.find([*key]).map_err(|duplicate| fault::invalid_params(format!("{}: {duplicate}", dotted())))?;
            let found = found.ok_or_else(|| fault::invalid_params(format!("{} is missing", dotted())))?;
            at = at.start + found.start..at.start + found.end;
        }
        match self.params.slice(at.clone()).as_str() {
            Some(text) => Ok((at, text.into_owned())),
            None => Err(fault::invalid_params(format!("{} must be a string", dotted()))),
        }
    }
}

/// The word for a list's entries in error messages.
fn noun(kind: ListKind) -> &'static str {
    if kind == ListKind::Tools { "tool" } else { "prompt" }
}
