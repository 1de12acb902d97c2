//! Pins: the approved definitions of servers, and their changes since.
//!
//! This crate has no I/O. Definitions are compared when a server lists them, not during calls.

mod flags;
mod lock;
#[cfg(test)]
mod tests;

pub use flags::{Flag, flags, skeleton};
pub use lock::{Definition, INSTRUCTIONS, InvalidLock, ItemKey, Lock, LockedKind, Pinned};
