//! The limits and secrets that an operator can set.
//!
//! Must not know: where they were configured.

use std::fmt;
use std::time::Duration;

/// How operators are served. Sizes are in bytes.
#[derive(Clone)]
pub struct AdminSettings {
    /// What whoever asks has to know, if anything.
    pub token: Option<String>,
    /// Hosts that are answered beside loopback ones: `host` (any port), `host:port`, or `*`.
    pub allowed_hosts: Vec<String>,
    /// Open connections.
    pub max_connections: usize,
    /// Who follows `/api/events` at once.
    pub max_followers: usize,
    /// The largest request body.
    pub max_body: usize,
    /// The largest request head; at least 8 KiB are always allowed.
    pub max_header: usize,
    /// Levels of arrays and objects in a request body.
    pub nesting: usize,
    /// Time for the head of a request, and for a connection to carry none.
    pub header_timeout: Duration,
    /// Time for a request body.
    pub body_timeout: Duration,
    /// How long a connection may take nothing of what is sent to it.
    pub write_timeout: Duration,
    /// How long a stream of events may be silent before a comment keeps it alive.
    pub keep_alive: Duration,
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
        }
    }
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "***");
        f.debug_struct("AdminSettings").field("token", &token).finish_non_exhaustive()
    }
}
