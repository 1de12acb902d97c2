//! What several processes of Fanlight share, in Valkey: one connection that is bounded and renewed, and who the processes are.
//!
//! Nothing waits for Valkey for longer than [`WITHIN`]. While it cannot be reached, which is known at once when the connection
//! breaks, every request fails without waiting. What is kept there, and what becomes of it without Valkey, is for those to say
//! who keep it.

mod connection;
pub mod link;
mod membership;
mod server;

pub use connection::{Certificates, Report, Settings, Shared, SharedError, Unusable, WITHIN};
pub use membership::{LEASE, Me, Member, Membership};
pub use redis::{FromRedisValue, Script, ScriptInvocation};
