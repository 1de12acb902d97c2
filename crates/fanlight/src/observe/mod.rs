//! The commands that use the admin listener of a running gateway, such as `status` and `reload`,
//! and the rendering of spans that `trace-test` shares.

mod admin;
mod approvals;
mod change;
mod clock;
pub(crate) mod columns;
mod logs;
mod place;
pub(crate) mod spans;
mod status;
pub(crate) mod style;
mod tls;
mod traces;
pub(crate) mod waterfall;

pub(crate) use admin::Admin;
pub(crate) use approvals::approvals;
pub(crate) use change::{change_server, end_session, reload};
pub(crate) use logs::logs;
pub(crate) use place::FURTHER_PORTS;
pub(crate) use status::status;
pub(crate) use traces::traces;
