//! What clients may do, by policies in the language Cedar.
//!
//! `source` finds the policies in their files, `link` those that are made of templates, `rule` makes of each what is needed to
//! decide, `attributes` and `arguments`
//! say what a policy sees of a client and of a call, and [`Policies`] decides. Nothing here is asked for anything but what
//! the gateway has resolved.
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

pub use decide::{Explanation, Policies, PolicySettings, ServerFacts};
pub use schema::{Listed, schema};
pub use shorthand::{Allowance, Allowed, Who};
pub use source::{InvalidPolicy, PolicyText};
