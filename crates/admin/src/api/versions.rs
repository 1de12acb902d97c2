//! The canary and mirror of a server.

use fanlight_canonical::{CanaryStatus, MirrorDifference, MirrorStatus};

use crate::ready::state;
use crate::values::moment;

answers! {
    /// The version of a server that serves a share of its clients.
    pub(super) struct Canary {
        /// The name of its own entry.
        server: String,
        /// The share of the clients, from 0 to 1.
        share: f64,
        /// The state, as for a server.
        state: &'static str,
    }

    /// The server that gets copies of requests.
    pub(super) struct Mirror {
        /// The name of its own entry.
        server: String,
        /// The share of the requests, from 0 to 1.
        share: f64,
        /// The state, as for a server.
        state: &'static str,
        /// Copies with the same answer as the server's.
        same: u64,
        /// Copies with a different answer.
        different: u64,
        /// Copies without an answer.
        failed: u64,
        /// Copies that were not sent, because too many were running or they were too large.
        dropped: u64,
    }

    /// A differing answer of a mirror.
    pub(super) struct Difference {
        at_ms: f64,
        method: String,
        /// The requested item: a tool, or a resource without its query.
        item: Option<String>,
        /// The differences. They include values only under `content: on` of the server.
        lines: Vec<String>,
        /// The trace of the copy.
        trace_id: Option<String>,
    }
}

impl From<&CanaryStatus> for Canary {
    fn from(canary: &CanaryStatus) -> Self {
        Self {
            server: canary.server.to_string(),
            share: canary.rule.share,
            state: state(&canary.status.state),
        }
    }
}

impl From<&MirrorStatus> for Mirror {
    fn from(mirror: &MirrorStatus) -> Self {
        let [same, different, failed, dropped] = mirror.counts;
        let (server, state) = (mirror.server.to_string(), state(&mirror.status.state));
        Self {
            server,
            share: mirror.share,
            state,
            same,
            different,
            failed,
            dropped,
        }
    }
}

impl From<&MirrorDifference> for Difference {
    fn from(difference: &MirrorDifference) -> Self {
        Self {
            at_ms: moment(difference.at),
            method: difference.method.to_string(),
            item: difference.item.as_deref().map(str::to_owned),
            lines: difference.lines.clone(),
            trace_id: difference.trace.as_deref().map(str::to_owned),
        }
    }
}
