//! The commands that use the admin listener of a running gateway, such as `status` and `reload`,
//! and the rendering of spans that `trace-test` shares.

mod admin;
mod approvals;
mod change;
pub mod columns;
mod logs;
mod place;
pub mod spans;
mod status;
pub mod style;
mod traces;
pub mod waterfall;

pub use admin::Admin;
pub use approvals::approvals;
pub use change::{change_server, end_session, reload};
pub use logs::logs;
pub use place::FURTHER_PORTS;
pub use status::status;
pub use traces::traces;
