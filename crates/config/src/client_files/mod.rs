//! The configuration files of MCP clients: their places, their content, and the entry for Fanlight
//! in each.
//!
//! Reading: [`ClientFile::read`] recognizes a file and translates it to Fanlight's own notation,
//! each value with its position in the client's file. Writing: an [`Entry`] is added to a text and
//! removed from it with every other byte in its place. The module has no I/O.

mod client;
mod edit;
mod entry;
mod item;
mod own;
mod package;
mod places;
mod read;

pub use client::Client;
pub use edit::{EditError, add, entries, find_entry, remove};
pub use entry::{Credential, Entry, Reach, Snippet, for_shell};
pub use item::{Language, to_yaml};
pub use package::{PackagedServer, server_json, variable_name};
pub use places::{Places, System};
pub(crate) use read::is_comment;
pub use read::{ClientFile, Input, Note};
