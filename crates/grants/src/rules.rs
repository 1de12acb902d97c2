//! Who may sign in where, as others decide it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use fanlight_identity::Identity;

/// Who may sign in where, or deposit a key. Whoever shows pages asks it, and never decides by itself.
pub trait SignInRules: fmt::Debug + Send + Sync {
    /// Tells rules apart: equal for those that decide alike.
    fn number(&self) -> u64;

    /// Whether a client, whose browser has this address, may sign in at a server.
    fn permits(&self, identity: &Arc<Identity>, address: Option<IpAddr>, server: &str) -> bool;
}
