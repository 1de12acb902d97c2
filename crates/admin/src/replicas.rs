//! The other processes of Fanlight that are one to their clients with this one; the program behind this listener knows them.

use fanlight_telemetry::metrics::Family;
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

/// The processes, and what they share.
pub trait Replicas: Send + Sync + 'static {
    /// What operators are shown.
    fn view(&self) -> ReplicasView;

    /// The same for `/metrics`.
    fn metrics(&self) -> Vec<Family>;
}

/// What several processes share, and who they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicasView {
    /// The id of this process.
    pub own: String,
    /// The number under which this process holds its lease; null while it holds none.
    pub epoch: Option<u64>,
    /// The connection to Valkey.
    pub valkey: ValkeyView,
    /// The processes that live, as last heard of.
    pub members: Vec<ReplicaView>,
}

/// The connection to Valkey.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ValkeyView {
    /// Without user and password.
    pub url: String,
    /// Since when it is as it is.
    pub since_ms: f64,
    /// Why it is away; null while it is connected.
    pub trouble: Option<String>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicaView {
    /// What tells it from all others.
    pub id: String,
    /// The number under which it holds its lease.
    pub epoch: u64,
    /// The name of its host.
    pub name: String,
    /// Where the others reach it; null if nowhere.
    pub address: Option<String>,
    /// The version of its program.
    pub version: String,
    /// When it was started.
    pub since_ms: f64,
    /// Whether it has been told to end, and finishes what it has begun.
    pub is_ending: bool,
}
