//! The configuration files of MCP clients: where they are, what they say, and the entry for Fanlight in each.
//!
//! Reading: [`ClientFile::read`] recognises a file and says it in the notation of Fanlight's own, each value with its position in
//! the client's file. Writing: an [`Entry`] is put into a text and taken out of it with every other byte in its place. This
//! crate has no I/O.

mod client;
mod edit;
mod entry;
mod item;
mod own;
mod package;
mod places;
mod read;

pub use client::Client;
pub use edit::{EditError, add, has, remove};
pub use entry::{Credential, Entry, Reach, Snippet};
pub use item::{Item, Language};
pub use package::{PackagedServer, manifest, server_json};
pub use places::{Places, System};
pub use read::{ClientFile, Input, Note};
