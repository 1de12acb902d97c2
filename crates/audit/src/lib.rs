//! The record of decisions: who was let in, who was refused, and who changed what.
//!
//! Whoever decides asks a [`Record`] before anything is carried out; what cannot be put on record is not carried out.

mod authentication;
mod event;
mod log;

pub use authentication::AuditedAuthentication;
pub use event::{Actor, AuditEvent, DeniedOperator, NotRecorded, Record};
pub use log::AuditLog;
