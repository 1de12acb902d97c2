//! The commands that read from the admin listener of a running gateway, `status` and `traces`, and the
//! rendering of spans that `trace-test` shares.

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
