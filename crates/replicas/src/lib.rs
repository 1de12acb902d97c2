//! State that several Fanlight processes share in Valkey: one limited connection that reconnects,
//! and the membership of the processes.
//!
//! No request waits for Valkey longer than [`WITHIN`]. While Valkey is unavailable, every request
//! fails at once; a broken connection is noticed immediately. Each user of the shared state chooses
//! its content, and how to work without Valkey.

/// A script for Valkey in several parts.
macro_rules! script {
    ($(#[$about:meta])* $name:ident = $($part:expr),+) => {
        $(#[$about])*
        static $name: std::sync::LazyLock<redis::Script> =
            std::sync::LazyLock::new(|| redis::Script::new(&[$($part),+].concat()));
    };
}

mod connection;
pub mod link;
mod membership;
mod replica;
mod server;

pub use connection::{Certificates, Report, Settings, Shared, SharedError, Unusable, WITHIN};
pub use membership::{LEASE, Member, Membership};
pub use redis::{FromRedisValue, Script, ScriptInvocation};
pub use replica::{
    CommonPins, LinkCertificates, Linking, Renewed, ReplicaCertificates, ReplicaError,
    ReplicaTasks, Replicas, Switches, keys,
};
