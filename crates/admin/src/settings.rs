//! Settings of the listener.

use std::fmt;
use std::time::Duration;

/// Settings of the listener. Sizes are in bytes.
#[derive(Clone)]
pub struct AdminSettings {
    /// The token that requests need, if any.
    pub token: Option<String>,
    /// Hosts that are served besides loopback: `host` (any port), `host:port`, or `*`.
    pub allowed_hosts: Vec<String>,
    /// Most open connections.
    pub max_connections: usize,
    /// Most open streams of `/api/events`.
    pub max_followers: usize,
    /// The largest request body.
    pub max_body: usize,
    /// The largest request head; at least 8 KiB are always allowed.
    pub max_header: usize,
    /// Levels of arrays and objects in a request body.
    pub nesting: usize,
    /// Time for the head of a request, which is also how long a connection may be idle.
    pub header_timeout: Duration,
    /// Time for a request body.
    pub body_timeout: Duration,
    /// How long a client may read nothing of a response.
    pub write_timeout: Duration,
    /// How long a stream of events may be silent before a comment is sent.
    pub keep_alive: Duration,
    /// Between two checks for changes that event streams show.
    pub event_interval: Duration,
    /// Between two requests of the page for what no event shows, while it shows that.
    pub page_refresh: Duration,
    /// For how long the page uses the lists of the catalogue.
    pub page_lists: Duration,
    /// Time for running requests at shutdown.
    pub drain: Duration,
}

#[cfg(any(test, feature = "test-support"))]
impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            token: None,
            allowed_hosts: Vec::new(),
            max_connections: 128,
            max_followers: 32,
            max_body: 16 << 20,
            max_header: 64 << 10,
            nesting: 128,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(75),
            keep_alive: Duration::from_secs(25),
            event_interval: Duration::from_secs(1),
            page_refresh: Duration::from_secs(2),
            page_lists: Duration::from_secs(5),
            drain: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "***");
        f.debug_struct("AdminSettings").field("token", &token).finish_non_exhaustive()
    }
}
