//! Decides what clients may do, by policies in the language Cedar.
//!
//! `source` finds the policies in their files, `link` reads links of templates, and `rule` prepares
//! each policy for decisions. `attributes` and `arguments` define what a policy sees of a client
//! and of a call. [`Policies`] decides, only about requests that the gateway has resolved.
//!
//! This crate has no I/O.

mod arguments;
mod attributes;
mod decide;
mod expression;
mod link;
mod rule;
mod schema;
mod shorthand;
mod source;
#[cfg(test)]
mod tests;
mod typed;
mod uris;

pub use decide::{Explanation, Policies, PolicySettings, ServerFacts, WrittenRule};
pub use schema::{Listed, schema};
pub use shorthand::{Allowance, Allowed, Who};
pub use source::{InvalidPolicy, PolicyText};
