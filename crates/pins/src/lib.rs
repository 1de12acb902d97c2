//! Definitions of tools, prompts and templates as somebody has approved them, and what has changed of them since.
//!
//! This crate has no I/O. Definitions are no part of a call's way: they are compared when a server lists them.

mod compare;
mod flags;
mod lock;
#[cfg(test)]
mod tests;

pub use compare::{Change, Difference, compare};
pub use flags::{Flag, flags, skeleton};
pub use lock::{InvalidLock, ItemKey, Lock, LockedKind, Pinned, canonical, digest};
