//! The other replicas. The program behind this listener knows them.

use fanlight_telemetry::metrics::Family;

/// The replicas and their common data.
///
/// A trait because its implementation depends on this crate.
pub trait Replicas: Send + Sync + 'static {
    /// The operators' view.
    fn view(&self) -> ReplicasView;

    /// The metrics of replicas.
    fn metrics(&self) -> Vec<Family>;
}

answers! {
    /// The replicas and their connection to Valkey.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ReplicasView {
        /// The id of this replica.
        pub own: String,
        /// The epoch of this replica's lease; null without a lease.
        pub epoch: Option<u64>,
        /// The connection to Valkey.
        pub valkey: ValkeyView,
        /// The live replicas, as last seen.
        pub members: Vec<ReplicaView>,
    }

    /// The connection to Valkey.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ValkeyView {
        /// The URL without user and password.
        pub url: String,
        /// The time when the connection entered its current state.
        pub since_ms: f64,
        /// The problem; null while it is connected.
        pub trouble: Option<String>,
    }

    /// A replica.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ReplicaView {
        /// The unique id.
        pub id: String,
        /// The epoch of its lease.
        pub epoch: u64,
        /// The name of its host.
        pub name: String,
        /// The address for other replicas; null if they cannot reach it.
        pub address: Option<String>,
        /// The version of its program.
        pub version: String,
        /// The time of the start.
        pub since_ms: f64,
        /// Whether the replica is shutting down. It then only finishes running work.
        pub is_ending: bool,
    }
}
