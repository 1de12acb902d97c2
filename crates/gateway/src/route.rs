//! Where a request goes, and what it is called there.
//!
//! Must not know: what the backend answers, or how it is reached.

use std::ops::Range;
use std::sync::Arc;

use fanlight_protocol::json::{Edits, Json};
use fanlight_protocol::{Method, RpcError};

use crate::catalogue::{Catalogue, Entry, ListKind, Sources};
use crate::fault;

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// To this backend, with these parameters.
    One(usize, Json),
    /// To these backends in turn until one has the resource.
    FirstThatHas(Vec<usize>, Json),
}

/// The four catalogues, by kind.
pub(crate) struct Catalogues([Arc<Catalogue>; 4]);

impl Catalogues {
    pub(crate) fn new(sources: &Arc<Sources>) -> Self {
        Self(ListKind::ALL.map(|kind| Arc::new(Catalogue::new(kind, Arc::clone(sources)))))
    }

    pub(crate) fn of(&self, kind: ListKind) -> &Arc<Catalogue> {
        let [tools, resources, templates, prompts] = &self.0;
        match kind {
            ListKind::Tools => tools,
            ListKind::Resources => resources,
            ListKind::ResourceTemplates => templates,
            ListKind::Prompts => prompts,
        }
    }
}

/// The way of a request that names a tool, a prompt or a resource; `None` if its method names
/// none.
pub(crate) async fn target(
    method: &Method,
    params: Option<&Json>,
    sources: &Sources,
    catalogues: &Catalogues,
) -> Option<Result<Target, RpcError>> {
    let router = Router { sources, catalogues, params: params.cloned().unwrap_or_else(Json::empty_object) };
    match method {
        Method::CallTool => Some(router.by_name(ListKind::Tools, &["name"]).await),
        Method::GetPrompt => Some(router.by_name(ListKind::Prompts, &["name"]).await),
        Method::ReadResource => Some(router.by_uri(&["uri"]).await),
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

struct Router<'a> {
    sources: &'a Sources,
    catalogues: &'a Catalogues,
    params: Json,
}

impl Router<'_> {
    async fn by_name(&self, kind: ListKind, path: &[&str]) -> Result<Target, RpcError> {
        let (range, name) = self.string_at(path)?;
        let what = if kind == ListKind::Tools { "tool" } else { "prompt" };
        let catalogue = self.catalogues.of(kind);
        let newest = catalogue.newest();
        if let Some(entry) = newest.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            return Ok(self.to_entry(entry, range));
        }
        // A prefix says whose it is without asking anyone, even what the backend does not list.
        if let Some((backend, original)) = by_prefix(self.sources, &name) {
            return match self.permits(kind, backend, original) {
                true => Ok(Target::One(backend, self.renamed(range, &Json::string(original)))),
                false => Err(fault::unknown_name(what, &name)),
            };
        }
        let fresh = match newest {
            None => Some(catalogue.known().await),
            Some(_) => catalogue.recheck().await,
        };
        match fresh.as_ref().and_then(|snapshot| snapshot.find(&name)) {
            Some(entry) => Ok(self.to_entry(entry, range)),
            None => Err(fault::unknown_name(what, &name)),
        }
    }

    fn permits(&self, kind: ListKind, backend: usize, original: &str) -> bool {
        let filter = self.sources.backends.get(backend).and_then(|backend| backend.permits_tool.as_ref());
        kind != ListKind::Tools || filter.is_none_or(|permits| permits(original))
    }

    async fn by_uri(&self, path: &[&str]) -> Result<Target, RpcError> {
        let (range, uri) = self.string_at(path)?;
        if let Some((backend, original)) = self.unalias(&uri) {
            return Ok(Target::One(backend, self.renamed(range, &Json::string(original))));
        }
        let resources = self.catalogues.of(ListKind::Resources).known().await;
        if let Some(entry) = resources.find(&uri) {
            return Ok(self.to_entry(entry, range));
        }
        let templates = self.catalogues.of(ListKind::ResourceTemplates).known().await;
        if let Some(entry) = templates.find(&uri).or_else(|| templates.find_template(&uri)) {
            return Ok(Target::One(entry.backend, self.params.clone()));
        }
        // Links in tool results need not be listed anywhere (server/tools, Resource Links), so
        // the backends that have resources are asked in turn. Asking is reading: it does nothing.
        Ok(Target::FirstThatHas((0..self.sources.backends.len()).collect(), self.params.clone()))
    }

    fn unalias<'u>(&self, uri: &'u str) -> Option<(usize, &'u str)> {
        let mut namings = self.sources.namings.iter().enumerate();
        namings.find_map(|(backend, naming)| Some((backend, naming.unalias(uri)?)))
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
        let mut edits = Edits::new(self.params.bytes().clone());
        edits.replace(range, name.bytes().clone());
        edits.finish_json()
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
