//! What a topology is made of.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    ApprovalRule, BackendClient, Caller, CanaryRule, DefinitionGuard, RetryDelays,
};
use fanlight_rights::ItemFilter;

use super::BackendId;
use super::rewriting::Rewriting;
use crate::list_store::ListStore;

/// One backend, its name to clients and its filter.
pub struct BackendEntry {
    /// Identifies it. A changed configuration that keeps the backend must keep the id.
    pub id: BackendId,
    /// Sends requests to it.
    pub client: Arc<dyn BackendClient>,
    /// What precedes its tools' and prompts' names; `None` for the default, which is nothing with
    /// one backend and `<name>__` with several.
    pub prefix: Option<String>,
    /// Which of its tools exist for clients; `None` for all.
    pub tools: Option<ItemFilter>,
    /// Methods and notifications unknown to Fanlight that reach it although something of it is hidden or rewritten.
    pub methods: Vec<String>,
    /// What is changed of its tools and prompts.
    pub rewriting: Rewriting,
    /// Calls that somebody has to agree to.
    pub approval: Option<ApprovalSettings>,
    /// Judges what it says of what it has; `None` if everything passes.
    pub guard: Option<Arc<dyn DefinitionGuard>>,
    /// Keeps its lists beyond the end of the process.
    pub store: Option<Arc<dyn ListStore>>,
    /// The version of it that serves some of its clients. `client` has to send their requests there.
    pub canary: Option<Canary>,
    /// It is no server of clients, only another version of one, which operators see.
    pub is_hidden: bool,
}

/// A version of a backend that serves some of its clients.
#[derive(Clone)]
pub struct Canary {
    /// Identifies it, as that of a [`BackendEntry`] does.
    pub id: BackendId,
    /// Sends requests to it.
    pub client: Arc<dyn BackendClient>,
    /// Sends requests to the version that serves all others, whoever the caller is.
    pub others: Arc<dyn BackendClient>,
    /// Which clients it serves.
    pub rule: Arc<CanaryRule>,
}

impl Canary {
    /// Whether it serves this caller.
    pub(crate) fn takes(&self, caller: &Caller) -> bool {
        self.rule.takes(caller)
    }

    /// Whether it is the same server for the same clients.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.rule == other.rule
    }
}

/// Calls of a server's tools that somebody has to agree to.
#[derive(Clone, Debug)]
pub struct ApprovalSettings {
    /// Permits the tools that need nobody's agreement.
    pub without: ItemFilter,
    /// The rule for all others.
    pub rule: ApprovalRule,
}

/// Bounds on the bytes of lists.
#[derive(Clone, Copy, Debug)]
pub struct ByteLimits {
    /// Of one list of one backend.
    pub one: usize,
    /// Of all lists of all backends together.
    pub all: usize,
}

/// Bounds for reading the lists of backends, and for what is decided by them.
#[derive(Clone, Copy, Debug)]
pub struct ListLimits {
    /// How long one backend may take for one list, all pages together.
    pub timeout: Duration,
    /// How many pages are read from one backend.
    pub pages: usize,
    /// How many entries are read from one backend.
    pub entries: usize,
    /// How many entries a page towards clients has.
    pub page_size: usize,
    /// Earlier states of a list kept for clients that are still paging through them.
    pub generations: usize,
    /// How long changes of one kind are collected, so that a burst is announced, and read, once.
    pub settle: Duration,
    /// The least time between two announcements of changes that no backend announced: a server whose
    /// list differs at each request would otherwise make clients ask without end.
    pub unannounced: Duration,
    /// The longest URI, in bytes, that is compared with lists and templates.
    pub uri: usize,
    /// Tasks of unknown owners that backends are asked for because of one request.
    pub unknown_tasks: usize,
    /// How long an unknown name stays unknown before backends are asked again.
    pub unknown: Duration,
    /// Pauses before asking again to listen to a backend that refused.
    pub listen_retry: RetryDelays,
    /// Whether backends are listened to only while a client listens, or a list of theirs does not say for how long it holds: where
    /// several processes have the same servers.
    pub spares_streams: bool,
    /// How many bytes lists may have.
    pub bytes: ByteLimits,
    /// How long the last whole list of a backend is served after its list could not be read again.
    pub stale: Duration,
    /// Notifications of clients, of unknown kinds, that are on their way to backends at the same time.
    pub client_notifications: usize,
    /// Extensions of clients that are declared when lists are read.
    pub client_extensions: usize,
    /// URIs in one result whose backend is remembered.
    pub result_uris: usize,
}
