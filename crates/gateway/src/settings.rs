//! What the core is told at start.
//!
//! Must not know: the configuration file.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::BackendClient;

/// What the core is told at start.
pub struct GatewaySettings {
    /// The backends in configuration order, which decides merging.
    pub backends: Vec<BackendEntry>,
    /// Bounds for reading lists.
    pub lists: ListLimits,
    /// Bounds for results that are served again.
    pub cache: CacheLimits,
    /// Tasks whose backend is remembered.
    pub max_tasks: usize,
    /// The keys that seal cursors; made at random if there are none, so that cursors then end with
    /// the process.
    pub keys: fanlight_protocol::seal::Keys,
    /// `Implementation` object that describes Fanlight where several servers are one.
    pub identity: fanlight_protocol::Json,
}

/// One backend and its place among the others.
pub struct BackendEntry {
    /// The way to it.
    pub client: Arc<dyn BackendClient>,
    /// What precedes its tools' and prompts' names; `None` for the default, which is nothing with
    /// one backend and `<name>__` with several.
    pub prefix: Option<String>,
    /// Which of its tools exist for clients, by original name; `None` for all.
    pub permits_tool: Option<ToolFilter>,
}

/// Says whether a tool, by its original name, exists for clients.
pub type ToolFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Bounds for reading the lists of backends.
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
    /// list is different each time it is read would otherwise have clients ask without end.
    pub unannounced: Duration,
    /// How long an unknown name stays unknown before backends are asked again.
    pub unknown: Duration,
    /// The shortest and the longest pause before asking again to listen to a backend that refused;
    /// it doubles with each refusal.
    pub listen_retry: (Duration, Duration),
}

/// Bounds for results that are kept to be served again. With 0 of either, none are.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// How many results are kept.
    pub entries: usize,
    /// How many bytes all of them may have together.
    pub bytes: usize,
    /// How long a result is kept at most, whatever the server says.
    pub longest: Duration,
}

impl fmt::Debug for BackendEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendEntry")
            .field("name", &self.client.name())
            .field("prefix", &self.prefix)
            .field("filtered", &self.permits_tool.is_some())
            .finish()
    }
}

impl fmt::Debug for GatewaySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewaySettings")
            .field("backends", &self.backends)
            .field("lists", &self.lists)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}
