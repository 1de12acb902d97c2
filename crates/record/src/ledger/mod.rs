//! The audit log in files, which reveal whether they were changed.
//!
//! Each line is a JSON object ([`Entry`]). Lines that are written together are a block, and the first
//! line of a block has the hash of the block before it. The blocks are the leaves of a Merkle tree
//! (RFC 6962), whose signed heads are checkpoints (C2SP tlog-checkpoint). A person who has the file
//! could write a new chain. A checkpoint that is kept elsewhere reveals that.
//!
//! [`Ledger`] writes, on a thread of its own, and gives a copy to a [`Mirror`]. [`read`] and
//! [`verify`] read.

mod checkpoint;
mod entry;
mod files;
mod query;
#[cfg(test)]
mod tests;
mod tree;
mod usage;
mod verify;
mod writer;

pub use checkpoint::{Checkpoint, CheckpointKey, InvalidCheckpoint, PublicKey};
pub use entry::{Arguments, Entry, cut};
pub use files::LedgerFiles;
pub use query::{Filter, Unreadable, read};
pub use usage::{Calls, Use, UseKey, calls, usage};
pub use verify::{Verified, Wrong, verify};
pub use writer::{Acknowledged, Ledger, LedgerSettings, Mirror, NotRecorded, Retention, Written};
