//! The settings from which a topology is made.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::rights::ItemFilter;
use fanlight_canonical::{
    ApprovalRule, BackendClient, Caller, CanaryRule, DefinitionGuard, LIST_BYTES, LIST_ENTRIES,
    LIST_PAGES, LIST_SETTLE,
};
use fanlight_fair::limit;

use super::BackendId;
use super::rewriting::Rewriting;
use crate::list_kind::ListStore;

/// One server, its name to clients and its filter.
pub struct BackendEntry {
    /// Identifies the server. A changed configuration that keeps the server must keep the id.
    pub id: BackendId,
    /// Sends requests to the server.
    pub client: Arc<dyn BackendClient>,
    /// The prefix of its tools' and prompts' names. `None` means the default: no prefix with one
    /// server, and `<name>__` with several.
    pub prefix: Option<String>,
    /// The tools that exist for clients; `None` for all.
    pub tools: Option<ItemFilter>,
    /// The changes of its tools and prompts.
    pub rewriting: Rewriting,
    /// The calls that need approval.
    pub approval: Option<ApprovalSettings>,
    /// Checks the definitions that the server sends; `None` lets everything pass.
    pub guard: Option<Arc<dyn DefinitionGuard>>,
    /// Keeps its lists beyond the end of the process.
    pub store: Option<Arc<dyn ListStore>>,
    /// The version that serves some of its clients. `client` has to send their requests there.
    pub canary: Option<Canary>,
    /// Set for another version of a server, which operators see and clients cannot use by name.
    pub is_hidden: bool,
}

/// A version of a server that serves some of its clients.
#[derive(Clone)]
pub struct Canary {
    /// Identifies the canary, like the id of a [`BackendEntry`].
    pub id: BackendId,
    /// Sends requests to the canary.
    pub client: Arc<dyn BackendClient>,
    /// Sends requests to the version that serves all other clients, whoever the caller is.
    pub others: Arc<dyn BackendClient>,
    /// Selects the clients that the canary serves.
    pub rule: Arc<CanaryRule>,
}

impl Canary {
    /// Whether the canary serves this caller.
    pub(crate) fn takes(&self, caller: &Caller) -> bool {
        self.rule.takes(caller)
    }

    /// Whether both are the same server for the same clients.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.rule == other.rule
    }
}

/// The calls of a server's tools that need approval.
#[derive(Clone, Debug)]
pub struct ApprovalSettings {
    /// Permits the tools that need no approval.
    pub without: ItemFilter,
    /// The rule for all others.
    pub rule: ApprovalRule,
}

/// Limits on the bytes of lists.
#[derive(Clone, Copy, Debug)]
pub struct ByteLimits {
    /// The most bytes of one list of one server.
    pub one: usize,
    /// The most bytes of all lists of all servers together.
    pub all: usize,
}

/// Limits for reading the lists of servers, and for decisions based on lists.
#[derive(Clone, Copy, Debug)]
pub struct ListLimits {
    /// How long one server may take for one list, all pages together.
    pub timeout: Duration,
    /// The most pages that are read from one server.
    pub pages: usize,
    /// The most entries that are read from one server.
    pub entries: usize,
    /// The number of entries on a page for clients.
    pub page_size: usize,
    /// How many tasks of unknown owners one request may make Fanlight look up at the servers.
    pub unknown_tasks: usize,
    /// Whether Fanlight listens to a server only while a client listens, or while a list of that
    /// server has no lifetime. Set with replicas.
    pub spares_streams: bool,
    /// The most bytes that lists may have.
    pub bytes: ByteLimits,
    /// Whether lists of several servers leave out definitions for which strict clients reject the
    /// whole list.
    pub leaves_out_invalid: bool,
    /// How many unknown notifications from clients are being forwarded at the same time.
    pub client_notifications: usize,
}

impl Default for ListLimits {
    fn default() -> Self {
        Self {
            timeout: limit("list", Duration::from_secs(10)),
            pages: limit("listPages", LIST_PAGES),
            entries: limit("listEntries", LIST_ENTRIES),
            page_size: limit("pageSize", 1000),
            unknown_tasks: 16,
            spares_streams: false,
            bytes: ByteLimits {
                one: limit("listBytes", LIST_BYTES),
                all: 256 << 20,
            },
            leaves_out_invalid: true,
            client_notifications: 64,
        }
    }
}

/// How long changes of one kind are collected, so that a burst is read and announced once.
pub(crate) fn settle_time() -> Duration {
    limit("listSettle", LIST_SETTLE)
}
