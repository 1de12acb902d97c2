//! The decision about who may sign in where, made outside this crate.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use fanlight_canonical::identity::Identity;

/// Decides who may sign in to a server, or deposit a key for it. Pages ask this and never decide
/// themselves.
///
/// A trait because its implementation depends on this crate.
pub trait SignInRules: fmt::Debug + Send + Sync {
    /// A number that differs between different rules.
    fn number(&self) -> u64;

    /// Whether a client with this address of its browser may sign in to a server.
    fn permits(&self, identity: &Arc<Identity>, address: Option<IpAddr>, server: &str) -> bool;
}
