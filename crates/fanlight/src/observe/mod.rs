//! The commands that look at a gateway that runs, over its admin listener: `status`, `traces`. And
//! what they share with `trace-test`: spans, and how to show them.

mod admin;
mod columns;
pub(crate) mod spans;
mod status;
pub(crate) mod style;
mod traces;
pub(crate) mod waterfall;

pub(crate) use admin::Admin;
pub(crate) use status::status;
pub(crate) use traces::traces;
