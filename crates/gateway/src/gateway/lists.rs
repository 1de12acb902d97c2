//! Merged lists: pages for clients, and whole lists for operators.

use std::sync::Arc;

use fanlight_canonical::{Call, Endpoint, Parent};
use fanlight_protocol::{Response, RpcError};
use tokio::time::Instant;

use super::Gateway;
use crate::catalogue::{ListKind, ListView, PageOf, Served};
use crate::cursor::Position;
use crate::fault;
use crate::tasks;
use crate::topology::View;

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
}
