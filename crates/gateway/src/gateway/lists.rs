//! Merged lists: pages for clients, whole lists for operators, and single definitions.

use std::pin::pin;
use std::sync::Arc;

use fanlight_canonical::{Call, Endpoint, Parent};
use fanlight_protocol::json::Json;
use fanlight_protocol::{Response, RpcError};
use tokio::time::Instant;

use super::Gateway;
use crate::catalogue::{Entry, ListKind, ListView, PageOf, Served, is_starting};
use crate::cursor::Position;
use crate::fault;
use crate::routing::find_by_prefix;
use crate::tasks;
use crate::topology::{BackendId, Filtered, View};

/// Extensions of clients, besides those that Fanlight knows, that are declared to servers when merged lists are read. Each new
/// one causes the lists to be read again.
const CLIENT_EXTENSIONS: usize = 32;

impl Gateway {
    pub(super) async fn list(
        &self,
        view: &View,
        kind: ListKind,
        call: &Call,
    ) -> Result<Response, RpcError> {
        self.lists.begin();
        self.lists
            .catalogues
            .declare_extensions(&call.context.capabilities, CLIENT_EXTENSIONS);
        let catalogue = self.lists.catalogue(kind, view);
        let (trace, holder) = (&call.context.trace, call.context.caller.holder());
        let lean = view.lean_rules().filter(|_| kind == ListKind::Tools);
        let (
            Served {
                list,
                ttl_left,
                is_cached,
            },
            start,
        ) = match call.cursor() {
            None => {
                let mut served = catalogue.current(view, trace).await;
                served.list = served.list.leaner(lean);
                catalogue
                    .expired_backends()
                    .into_iter()
                    .for_each(|backend| self.lists.read_again(kind.change(), backend));
                (served, 0)
            }
            Some(cursor) => {
                let position = cursor
                    .as_str()
                    .and_then(|text| self.seal.open(&text, holder));
                let position = position
                    .filter(|position| position.list == kind.index())
                    .ok_or_else(|| {
                        fault::invalid_params(
                            "params.cursor is no cursor of this list; start from the first page",
                        )
                    })?;
                let (list, is_cached) = match catalogue.generation(view, position.generation) {
                    Some(list) => (list, true),
                    None => catalogue.newest_or_first(view, trace).await,
                };
                let list = list.leaner(lean);
                let ttl_left = catalogue.ttl_left(&list, Instant::now());
                // A removed server has nothing to list.
                let start = list
                    .position(&position.backend, position.offset)
                    .unwrap_or(usize::MAX);
                (
                    Served {
                        list,
                        ttl_left,
                        is_cached,
                    },
                    start,
                )
            }
        };
        trace.cache_hit(is_cached);
        trace.partial_failures(list.failures());
        let taking_tasks = match kind {
            ListKind::Tools => tasks::backends_that_take_tasks(view, &call.context),
            _ => Vec::new(),
        };
        trace.record_rewriting(list.rewritten());
        let next_cursor = |backend: &str, offset| {
            let (kind, generation) = (kind.index(), list.generation());
            self.seal.seal(
                &Position {
                    list: kind,
                    generation,
                    backend: backend.into(),
                    offset,
                },
                holder,
            )
        };
        let page = PageOf {
            start,
            size: view.limits().page_size,
            ttl_left,
            holder,
            taking_tasks,
            lacking: list.lacking_extensions(&call.context.capabilities),
        };
        let page = list.page(page, next_cursor);
        Ok(match view.topology().backends() {
            [_] => page,
            _ => page.from_server(Arc::clone(&self.identity)),
        })
    }

    /// The merged list as an endpoint shows it, after asking every server.
    pub async fn catalogue(&self, kind: ListKind, endpoint: &Endpoint) -> ListView {
        self.lists
            .catalogues
            .common(kind)
            .refresh(&self.view(endpoint))
            .await
    }

    /// The merged list as clients at the endpoint get it. Only servers whose list may have changed
    /// without an announcement are asked.
    pub async fn current_list(&self, kind: ListKind, endpoint: &Endpoint) -> ListView {
        let view = self.view(endpoint);
        if view.transparent_server().is_none() {
            self.lists.begin();
        }
        self.lists
            .catalogues
            .common(kind)
            .current(&view, &Parent::default())
            .await
            .list
    }

    /// The newest list of tools, if it is trusted.
    pub(super) fn trusted_tools(&self, view: &View) -> Option<ListView> {
        if view.transparent_server().is_none() {
            self.lists.begin();
        }
        self.lists
            .catalogue(ListKind::Tools, view)
            .trusted_view(view)
    }

    /// The tool that clients know as `name`. Lists are read unless the newest one is trusted and
    /// has it.
    pub(super) async fn listed_tool(
        &self,
        view: &View,
        name: &str,
        trace: &Parent,
    ) -> Option<ListedTool> {
        let trusted = self.trusted_tools(view);
        let known = trusted
            .as_ref()
            .and_then(|tools| tools.find(name).or_else(|| only_bare(view, tools, name)));
        match known {
            Some(tool) => to_listed_tool(tool),
            // Boxed: calls of known tools do not need the large future of reading lists.
            None => Box::pin(self.read_tool(view, name, trace)).await,
        }
    }

    /// The tool that clients know as `name`, after reading lists.
    async fn read_tool(&self, view: &View, name: &str, trace: &Parent) -> Option<ListedTool> {
        let tools = self.lists.catalogue(ListKind::Tools, view);
        let from_all = async {
            let known = tools.newest_view(view, trace).await;
            if let Some(tool) = known.find(name) {
                return to_listed_tool(tool);
            }
            let fresh = tools.recheck(view, trace).await?;
            fresh.find(name).and_then(to_listed_tool)
        };
        match find_by_prefix(view, name) {
            // Slow servers must not delay a call of this server's tool.
            Some((backend, original)) if backend.permits_tool(original) => {
                let mut from_one = pin!(self.lists.tool_of(view, backend, original, trace));
                let found = tokio::select! {
                    biased;
                    found = from_all => match found {
                        // The server may be the one that the merged list still lacks.
                        None if is_starting(&*backend.client) => from_one.await,
                        found => return found,
                    },
                    found = from_one.as_mut() => found,
                };
                let definition = found?;
                let kind = Filtered::Tools;
                view.permits_name(kind, backend.id, original, Some(&definition))
                    .then(|| ListedTool {
                        backend: backend.id,
                        original: Json::string(original),
                        definition,
                    })
            }
            _ => from_all.await,
        }
    }
}

/// A tool that a list has.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    pub(super) backend: BackendId,
    /// The server's own name for the tool: a JSON string.
    pub(super) original: Json,
    /// The definition, as clients see it.
    pub(super) definition: Arc<Json>,
}

pub(super) fn to_listed_tool(tool: &Entry) -> Option<ListedTool> {
    Some(ListedTool {
        backend: tool.backend,
        original: tool.original.clone()?,
        definition: Arc::clone(&tool.visible),
    })
}

/// The only tool with the original name `name`. `None` if the name has a prefix.
fn only_bare<'a>(view: &View, tools: &'a ListView, name: &str) -> Option<&'a Entry> {
    let mut all = tools.find_bare(name);
    let only = all
        .next()
        .filter(|_| find_by_prefix(view, name).is_none())?;
    all.next().is_none().then_some(only)
}
