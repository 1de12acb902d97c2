//! Which items of servers a rule of the configuration is about.
//!
//! An item is a pair: a server, and the name or URI by which that server itself knows it. A rule decides on the pair, never
//! on the name that clients see: that depends on which other servers there are. Whether a pattern matches a pair depends on
//! the pattern, the separator of names, and the definition of the pair's server alone.

mod filter;
mod glob;
mod pattern;
mod spelling;
#[cfg(test)]
mod tests;
mod written;

pub use filter::{ItemFilter, ItemRule};
pub use glob::matches;
pub use pattern::ItemKind;
pub use spelling::{ServerNames, Servers, hash, label, shortened};
pub use written::WrittenPattern;
