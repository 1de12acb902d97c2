//! Decides which items of servers a rule of the configuration concerns.
//!
//! An item is a pair of a server and the server's own name or URI. A rule decides on the pair,
//! never on the clients' name, because that depends on the other servers. Whether a pattern matches
//! a pair depends only on the pattern, the separator of names, and the definition of the pair's
//! server.

mod filter;
mod pattern;
mod spelling;
mod uri_form;
mod written;

pub use filter::{ItemFilter, ItemRule};
pub use pattern::{ItemKind, matches};
pub use spelling::{NameForm, ServerNames, Servers, hash, label, unique_label};
pub use uri_form::{URI_FORMS, folded, is_plain, uri_forms};
pub use written::WrittenPattern;

#[cfg(test)]
mod tests;
