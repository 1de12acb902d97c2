//! Decides which items of servers a rule of the configuration concerns.
//!
//! An item is a pair of a server and the server's own name or URI. A rule decides on the pair,
//! never on the clients' name, because that depends on the other servers. Whether a pattern matches
//! a pair depends only on the pattern, the separator of names, and the definition of the pair's
//! server.

mod filter;
mod spelling;
mod uri_form;

pub use filter::{ItemFilter, ItemKind, ItemRule, WrittenPattern, matches};
pub use spelling::{NameForm, ServerNames, Servers, hash, label, unique_label};
pub use uri_form::{URI_FORMS, folded, is_plain, uri_forms};

#[cfg(test)]
mod tests;
