//! URIs of resources of several servers: who owns each, and which URI clients use.
//!
//! A URI that one server claims stays as it is. If several claim it, the first one owns it
//! ([`Claims`]). Clients know the others' resources by aliases ([`crate::Naming::alias`]) wherever
//! their URIs are in a message (`uri_places`). An unlisted URI belongs to the first server that
//! hands it out to a client ([`HandedOut`]).

mod handed_out;

use std::cell::Cell;
use std::sync::Arc;

use fanlight_canonical::Parent;
use fanlight_protocol::json::Json;

use crate::catalogue::{ListKind, ListWatcher, Snapshot};
use crate::topology::{BackendId, View};
pub(crate) use handed_out::{HandedOut, Opened};

/// Whether apps may call a tool: its `visibility` includes `app`, or is missing (MCP Apps
/// 2026-01-26, Visibility).
pub(crate) fn is_for_apps(tool: &Json) -> bool {
    let ui = tool.get("_meta").and_then(|meta| meta.get("ui"));
    let Some(visibility) = ui.and_then(|ui| ui.get("visibility")) else {
        return true;
    };
    visibility.items().any(|one| one.is_str("app"))
}

/// Whether a resource is an app (MCP Apps 2026-01-26, UI Resource Format).
pub(crate) fn is_app(uri: &str) -> bool {
    uri.split_at_checked("ui:".len())
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("ui:"))
}

/// The lists that decide who owns a URI for a client, as far as they have been read. The first list
/// that has the URI counts, and in it the first server. A server owns nothing that the client may
/// not use there, or aliases would tell what the server has.
pub(crate) struct Claims<'a> {
    view: &'a View,
    lists: [Option<Arc<Snapshot>>; 3],
    templates: Option<Arc<Snapshot>>,
    /// The steps left for comparing URIs with templates.
    steps: Cell<usize>,
}

/// The steps in which the URIs of one message are compared with templates.
const STEPS: usize = 1 << 26;

/// The lists whose entries name URIs. Tools name the URIs of their apps, which servers need not
/// list (MCP Apps 2026-01-26, Resource Discovery), and skills name the URIs of their files.
const NAMING: [ListKind; 3] = [ListKind::Resources, ListKind::Skills, ListKind::Tools];

impl<'a> Claims<'a> {
    /// Uses the lists that have been read.
    pub(crate) fn from_newest_lists(view: &'a View, lists: &ListWatcher) -> Self {
        let topology = view.topology();
        let newest = |kind| lists.catalogue(kind, view).newest_snapshot(topology);
        Self {
            view,
            lists: NAMING.map(newest),
            templates: newest(ListKind::ResourceTemplates),
            steps: Cell::new(STEPS),
        }
    }

    /// Uses all lists that may have one of `uris`; reads missing ones within `trace`.
    pub(crate) async fn read(
        view: &'a View,
        lists: &Arc<ListWatcher>,
        mut uris: impl Iterator<Item = &str>,
        trace: &Parent,
    ) -> Self {
        // Tools name only apps. A server that is slow to list its tools must not delay other
        // resources.
        let has_app = uris.any(is_app);
        let topology = view.topology();
        let everything = &view.without_filters();
        let known = async |kind| {
            if kind == ListKind::Tools && !has_app {
                lists.catalogue(kind, view).newest_snapshot(topology)
            } else {
                Some(Arc::clone(
                    lists.newest_view(kind, everything, trace).await.whole(),
                ))
            }
        };
        let [resources, skills, tools] = NAMING;
        let (resources, skills, tools, templates) = tokio::join!(
            known(resources),
            known(skills),
            known(tools),
            known(ListKind::ResourceTemplates)
        );
        Self {
            view,
            lists: [resources, skills, tools],
            templates,
            steps: Cell::new(STEPS),
        }
    }

    /// Whether a list has `uri`, or may have it: a server has too many templates to compare.
    pub(crate) fn may_list(&self, uri: &str) -> bool {
        self.owner(uri).is_some() || self.steps.get() == 0
    }

    /// The server that owns `uri`.
    pub(crate) fn owner(&self, uri: &str) -> Option<BackendId> {
        if let Some((backend, _)) = self.view.unalias(uri) {
            return Some(backend.id);
        }
        let named = self
            .lists
            .iter()
            .flatten()
            .find_map(|list| list.backend_naming(uri));
        let by_template = || {
            let templates = self.templates.as_ref()?;
            templates
                .find(uri)
                .or_else(|| templates.find_template(uri, &self.steps))
                .map(|entry| entry.backend)
        };
        named
            .or_else(by_template)
            .filter(|owner| self.view.shows(*owner) && self.view.permits_uri(*owner, uri))
    }

    /// Whether clients need an alias for the resource that `backend` calls `uri`: another server
    /// owns that URI, or it has the form of an alias. `None` if no list has the URI.
    pub(crate) fn needs_alias(&self, uri: &str, backend: BackendId) -> Option<bool> {
        if self.view.unalias(uri).is_some() {
            return Some(true);
        }
        self.owner(uri).map(|owner| owner != backend)
    }
}
