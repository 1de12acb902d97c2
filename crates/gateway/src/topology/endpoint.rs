//! The endpoints of a topology: their paths, and the servers and entries that each shows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::rights::ItemFilter;
use fanlight_canonical::{DEFAULT_PATH, Endpoint};
use fanlight_protocol::Json;
use foldhash::fast::RandomState;

use super::{Filtered, Member};

/// One endpoint.
#[derive(Clone)]
pub struct EndpointEntry {
    /// The path, compared exactly.
    pub path: Arc<str>,
    /// The servers that the endpoint shows, by name; `None` shows all.
    pub servers: Option<Vec<String>>,
    /// The tools that the endpoint shows, by server and original name; `None` shows all.
    pub tools: Option<ItemFilter>,
    /// The prompts that the endpoint shows, by server and original name; `None` shows all.
    pub prompts: Option<ItemFilter>,
    /// The resources, templates and skills that the endpoint shows, by server and the server's URI;
    /// `None` shows all.
    pub resources: Option<ItemFilter>,
    /// The instructions that clients get instead of the servers' instructions.
    pub instructions: Option<String>,
    /// The rules of its lean list; `None` for the full list.
    pub lean: Option<LeanRules>,
    /// The bounds of large results; `None` for the servers' own bounds.
    pub results: Option<ResultRules>,
}

/// The bounds of large results at an endpoint or of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRules {
    /// The endpoint or server, as one text. Results of one are kept in room of its own.
    pub section: Arc<str>,
    /// The longest result that passes unchanged, in bytes.
    pub inline: usize,
    /// The time for which a result is kept at most.
    pub keep_for: Duration,
    /// The bytes in memory.
    pub memory: usize,
    /// The bytes on disk.
    pub disk: usize,
}

/// When and how an endpoint's list of tools is lean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanRules {
    /// The tools that are always listed, by server and original name.
    pub always: ItemFilter,
    /// The estimated tokens of the full list up to which it is not lean.
    pub max: Option<usize>,
    /// Patterns of the names of clients that get the full list, as they declare them.
    pub except: Vec<String>,
    /// Groups of tools, by name, besides the servers.
    pub groups: Vec<(String, ItemFilter)>,
}

/// The endpoints of a topology.
pub(crate) struct Endpoints {
    /// The rules of all endpoints. The last element has no path and shows nothing.
    all: Vec<Rules>,
    by_path: HashMap<Arc<str>, usize, RandomState>,
}

/// The servers and entries that one endpoint shows.
pub(crate) struct Rules {
    path: Arc<str>,
    /// Whether the endpoint shows each server of the topology; `None` shows all.
    backends: Option<Vec<bool>>,
    tools: Option<ItemFilter>,
    prompts: Option<ItemFilter>,
    resources: Option<ItemFilter>,
    pub(super) instructions: Option<Json>,
    pub(super) lean: Option<LeanRules>,
    pub(super) results: Option<ResultRules>,
    /// Each call asks for it.
    pub(super) has_filters: bool,
}

impl Endpoints {
    pub(super) fn new(endpoints: Vec<EndpointEntry>, backends: &[Member]) -> Arc<Self> {
        let mut all: Vec<_> = endpoints
            .into_iter()
            .map(|entry| Rules::new(entry, backends))
            .collect();
        let by_path = all
            .iter()
            .enumerate()
            .map(|(position, rules)| (Arc::clone(&rules.path), position))
            .collect();
        all.push(Rules::deny_all(backends.len()));
        Arc::new(Self { all, by_path })
    }

    /// The endpoint at this request path, compared exactly. Only if no endpoints are configured,
    /// slashes at the end are ignored.
    pub(crate) fn find(&self, path: &str) -> Option<Endpoint> {
        if !self.are_configured() {
            let is_default = path.trim_end_matches('/') == DEFAULT_PATH;
            return is_default.then_some(Endpoint::Default);
        }
        let (path, _) = self.by_path.get_key_value(path)?;
        Some(Endpoint::from_path(Arc::clone(path)))
    }

    /// All endpoints with their paths, in configuration order.
    pub(crate) fn list(&self) -> Vec<(String, Endpoint)> {
        if !self.are_configured() {
            return vec![(DEFAULT_PATH.to_owned(), Endpoint::Default)];
        }
        let paths = self
            .all
            .iter()
            .map(|rules| &rules.path)
            .filter(|path| self.by_path.contains_key(*path));
        paths
            .filter_map(|path| Some((path.to_string(), self.find(path)?)))
            .collect()
    }

    /// The position of an endpoint's rules; `None` if it shows everything. An unknown endpoint
    /// shows nothing.
    pub(super) fn position(&self, endpoint: &Endpoint) -> Option<usize> {
        let path = match endpoint {
            Endpoint::Everything => return None,
            Endpoint::Default if !self.are_configured() => return None,
            Endpoint::Default | Endpoint::At(_) => endpoint.full_path(),
        };
        let nothing = self.all.len().saturating_sub(1);
        let position = self.by_path.get(path).copied().unwrap_or(nothing);
        self.all
            .get(position)
            .is_none_or(|rules| !rules.shows_everything())
            .then_some(position)
    }

    /// The position of an endpoint's rules; `None` if it shows every entry.
    pub(crate) fn hiding_position(&self, endpoint: &Endpoint) -> Option<usize> {
        self.position(endpoint).filter(|position| {
            self.rules(*position)
                .is_some_and(|rules| !rules.shows_all_entries())
        })
    }

    pub(super) fn rules(&self, position: usize) -> Option<&Rules> {
        self.all.get(position)
    }

    /// Whether any endpoint has lean lists.
    pub(crate) fn has_lean_lists(&self) -> bool {
        self.all.iter().any(|rules| rules.lean.is_some())
    }

    /// The number of elements, including the one that shows nothing.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether both have the same rules.
    pub(super) fn show_the_same_as(&self, other: &Self) -> bool {
        self.all.len() == other.all.len()
            && self
                .all
                .iter()
                .zip(&other.all)
                .all(|(one, other)| one.is_same_as(other))
    }

    fn are_configured(&self) -> bool {
        !self.by_path.is_empty()
    }
}

fanlight_protocol::opaque!(Endpoints);

impl Rules {
    fn new(entry: EndpointEntry, backends: &[Member]) -> Self {
        let EndpointEntry {
            path,
            servers,
            tools,
            prompts,
            resources,
            instructions,
            lean,
            results,
        } = entry;
        let shown = |servers: Vec<String>| -> Vec<bool> {
            backends
                .iter()
                .map(|backend| servers.iter().any(|name| name == backend.name()))
                .collect()
        };
        let has_filters = [&tools, &prompts, &resources].iter().any(|it| it.is_some());
        Self {
            path,
            backends: servers.map(shown).filter(|shown| shown.contains(&false)),
            has_filters,
            tools,
            prompts,
            resources,
            instructions: instructions.as_deref().map(Json::string),
            lean,
            results,
        }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self.path == other.path
            && self.backends == other.backends
            && self.instructions == other.instructions
            && self.lean == other.lean
            && self.results.is_some() == other.results.is_some()
            && Filtered::ALL
                .into_iter()
                .all(|kind| self.filter(kind) == other.filter(kind))
    }

    fn deny_all(backends: usize) -> Self {
        let backends = Some(vec![false; backends.max(1)]);
        Self {
            path: "".into(),
            backends,
            tools: None,
            prompts: None,
            resources: None,
            instructions: None,
            lean: None,
            results: None,
            has_filters: false,
        }
    }

    fn shows_everything(&self) -> bool {
        self.shows_all_entries() && self.instructions.is_none() && self.results.is_none()
    }

    /// Whether the endpoint lists all entries of all servers.
    pub(super) fn shows_all_entries(&self) -> bool {
        self.backends.is_none() && !self.has_filters && self.lean.is_none()
    }

    pub(super) fn shows_backend(&self, position: usize) -> bool {
        self.backends
            .as_ref()
            .is_none_or(|shown| shown.get(position) == Some(&true))
    }

    pub(super) fn filter(&self, kind: Filtered) -> Option<&ItemFilter> {
        match kind {
            Filtered::Tools => self.tools.as_ref(),
            Filtered::Prompts => self.prompts.as_ref(),
            Filtered::Resources => self.resources.as_ref(),
        }
    }
}
