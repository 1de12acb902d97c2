//! The other versions of a server: its canary and its mirror.

use fanlight_canonical::{CanaryStatus, MirrorDifference, MirrorStatus, Sticky};
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

use crate::ready::state;
use crate::values::moment;

/// The version of a server that serves a share of its clients.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Canary {
    /// The name of its own entry.
    server: String,
    /// The share of the clients, from 0 to 1.
    share: f64,
    /// `principal` or `session`.
    sticky: &'static str,
    /// As of a server.
    state: &'static str,
}

/// The server that gets copies of requests.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Mirror {
    /// The name of its own entry.
    server: String,
    /// The share of the requests, from 0 to 1.
    share: f64,
    /// As of a server.
    state: &'static str,
    /// Copies that were answered as the server has.
    same: u64,
    /// Copies that were answered differently.
    different: u64,
    /// Copies that were not answered.
    failed: u64,
    /// Copies that were not sent: too many were on their way, or they were too large.
    dropped: u64,
}

/// An answer of a mirror that differed.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Difference {
    at_ms: f64,
    method: String,
    /// What the request named: a tool, or a resource without its query.
    item: Option<String>,
    /// What differs; values only where `recordContent` of the server permits that.
    lines: Vec<String>,
    /// The trace of the copy.
    trace_id: Option<String>,
}

impl From<&CanaryStatus> for Canary {
    fn from(canary: &CanaryStatus) -> Self {
        let sticky = match canary.rule.sticky {
            Sticky::Principal => "principal",
            Sticky::Session => "session",
        };
        Self {
            server: canary.server.to_string(),
            share: canary.rule.share,
            sticky,
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
