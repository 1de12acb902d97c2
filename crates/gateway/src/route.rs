//! Where a request goes, and what it is called there.
//!
//! Must not know: what the backend answers, or how it is reached.

use std::ops::Range;
use std::sync::Arc;

use fanlight_canonical::Parent;
use fanlight_protocol::json::Json;
use fanlight_protocol::{Method, RpcError};

use crate::catalogue::{Entry, ListKind, Sources};
use crate::fault;
use crate::watch::Watch;

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// To this backend, with these parameters.
    One(usize, Json),
    /// To these backends in turn until one has the resource.
    FirstThatHas(Vec<usize>, Json),
    /// To every backend with this capability, with the same parameters.
    AllWith(&'static str),
}

/// Where a resource is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this backend, under this URI.
    At(usize, String),
    /// In no list: any backend that has resources may have it.
    Unlisted,
}

/// The way of a request that names a tool or a prompt, if it is known without asking anyone.
pub(crate) fn known_target(
    method: &Method,
    params: Option<&Json>,
    watch: &Arc<Watch>,
    trace: &Parent,
) -> Option<Result<Target, RpcError>> {
    let kind = match method {
        Method::CallTool => ListKind::Tools,
        Method::GetPrompt => ListKind::Prompts,
        _ => return None,
    };
    Router::new(params, watch, trace).known_by_name(kind, &["name"])
}

/// The way of a request that names a tool, a prompt or a resource; `None` if its method names
/// none.
pub(crate) async fn target(
    method: &Method,
    params: Option<&Json>,
    watch: &Arc<Watch>,
    trace: &Parent,
) -> Option<Result<Target, RpcError>> {
    let router = Router::new(params, watch, trace);
    match method {
        Method::CallTool => Some(router.by_name(ListKind::Tools, &["name"]).await),
        Method::GetPrompt => Some(router.by_name(ListKind::Prompts, &["name"]).await),
        Method::ReadResource => Some(router.by_uri(&["uri"]).await),
        Method::Subscribe | Method::Unsubscribe => Some(router.subscription().await),
        Method::Complete => Some(router.by_reference().await),
        _ => None,
    }
}

/// The backend with the longest prefix that `name` has, and what is left of the name.
pub(crate) fn by_prefix<'n>(sources: &Sources, name: &'n str) -> Option<(usize, &'n str)> {
    let namings = sources.namings.iter().enumerate().filter(|(_, naming)| !naming.is_identity());
    namings
        .filter_map(|(backend, naming)| Some((naming.prefix_len(), backend, naming.original(name)?)))
        .max_by_key(|(length, backend, _)| (*length, std::cmp::Reverse(*backend)))
        .map(|(_, backend, original)| (backend, original))
}

/// Where the resource is that clients know as `uri`.
pub(crate) async fn locate(uri: &str, watch: &Arc<Watch>, trace: &Parent) -> Place {
    let mut namings = watch.sources.namings.iter().enumerate();
    if let Some((backend, original)) = namings.find_map(|(backend, naming)| Some((backend, naming.unalias(uri)?))) {
        return Place::At(backend, original.to_owned());
    }
    let resources = watch.known(ListKind::Resources, trace).await;
    if let Some(entry) = resources.find(uri) {
        return Place::At(entry.backend, uri.to_owned());
    }
    let templates = watch.known(ListKind::ResourceTemplates, trace).await;
    match templates.find(uri).or_else(|| templates.find_template(uri)) {
        Some(entry) => Place::At(entry.backend, uri.to_owned()),
        None => Place::Unlisted,
    }
}

/// What clients call the resource that a backend calls `uri`, as far as lists can tell.
pub(crate) fn visible_uri(backend: usize, uri: &str, watch: &Watch) -> Option<String> {
    let alias = watch.sources.namings.get(backend)?.alias(uri);
    let resources = watch.catalogues.of(ListKind::Resources).newest();
    let templates = watch.catalogues.of(ListKind::ResourceTemplates).newest();
    let is_listed = |uri: &str| resources.as_ref()?.find(uri).map(|entry| entry.backend == backend);
    let is_templated = |uri: &str| templates.as_ref()?.find_template(uri).map(|entry| entry.backend == backend);
    let told = |is_its: &dyn Fn(&str) -> Option<bool>| {
        (is_its(uri) != Some(true)).then(|| is_its(&alias)).flatten().unwrap_or_default()
    };
    (told(&is_listed) || told(&is_templated)).then_some(alias)
}

struct Router<'a> {
    watch: &'a Arc<Watch>,
    /// Where a list has to be read first, that belongs to this.
    trace: &'a Parent,
    params: Json,
}

impl<'a> Router<'a> {
    fn new(params: Option<&Json>, watch: &'a Arc<Watch>, trace: &'a Parent) -> Self {
        Self { watch, trace, params: params.cloned().unwrap_or_else(Json::empty_object) }
    }

    async fn by_name(&self, kind: ListKind, path: &[&str]) -> Result<Target, RpcError> {
        if let Some(known) = self.known_by_name(kind, path) {
            return known;
        }
        let (range, name) = self.string_at(path)?;
        let catalogue = self.watch.catalogues.of(kind);
        let newest = catalogue.newest();
        let fresh = match newest {
            None => Some(self.watch.known(kind, self.trace).await),
            Some(_) => catalogue.recheck(self.trace).await,
        };
        match fresh.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            Some(entry) => Ok(self.to_entry(entry, range)),
            None => {
                let unlisted = fresh.or(newest).map(|snapshot| snapshot.unlisted()).unwrap_or_default();
                Err(fault::unknown_name(what(kind), &name, &unlisted))
            }
        }
    }

    /// The same as far as lists tell that have been read, or a prefix.
    fn known_by_name(&self, kind: ListKind, path: &[&str]) -> Option<Result<Target, RpcError>> {
        let (range, name) = match self.string_at(path) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let newest = self.watch.catalogues.of(kind).newest();
        if let Some(entry) = newest.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            return Some(Ok(self.to_entry(entry, range)));
        }
        // A prefix says whose it is without asking anyone, even what the backend does not list.
        let (backend, original) = by_prefix(&self.watch.sources, &name)?;
        Some(match self.permits(kind, backend, original) {
            true => Ok(Target::One(backend, self.renamed(range, &Json::string(original)))),
            false => Err(fault::unknown_name(what(kind), &name, &[])),
        })
    }

    fn permits(&self, kind: ListKind, backend: usize, original: &str) -> bool {
        let filter = self.watch.sources.backends.get(backend).and_then(|backend| backend.permits_tool.as_ref());
        kind != ListKind::Tools || filter.is_none_or(|permits| permits(original))
    }

    async fn by_uri(&self, path: &[&str]) -> Result<Target, RpcError> {
        let (range, uri) = self.string_at(path)?;
        Ok(match locate(&uri, self.watch, self.trace).await {
            Place::At(backend, original) if original == uri => Target::One(backend, self.params.clone()),
            Place::At(backend, original) => Target::One(backend, self.renamed(range, &Json::string(&original))),
            // Links in tool results need not be listed anywhere (server/tools, Resource Links), so
            // the backends that have resources are asked in turn. Asking is reading: it does nothing.
            Place::Unlisted => {
                Target::FirstThatHas((0..self.watch.sources.backends.len()).collect(), self.params.clone())
            }
        })
    }

    /// Who would take a subscription to anything must not keep it from the one who has it.
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

    /// The string at `path` in the parameters, and where it stands.
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

/// What messages call the entries of a list that requests name.
fn what(kind: ListKind) -> &'static str {
    if kind == ListKind::Tools { "tool" } else { "prompt" }
}
