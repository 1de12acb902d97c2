//! Pins: approved definitions of tools, prompts and templates, and their changes since.
//!
//! This crate has no I/O. Definitions are compared when a server lists them, not during calls.

mod compare;
mod flags;
mod lock;
#[cfg(test)]
mod tests;

pub use compare::{Change, Difference, compare};
pub use flags::{Flag, flags, skeleton};
pub use lock::{InvalidLock, ItemKey, Lock, LockedKind, Pinned, canonical, digest};
