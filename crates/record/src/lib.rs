//! The audit log: accepted and refused clients, called tools, and operators' changes.
//!
//! Actions are recorded by a [`Record`] before they are carried out. An action that cannot be
//! recorded is not carried out.

mod event;
mod kept;
pub mod ledger;
mod log;
mod masked;

pub use crate::ledger::cut;
pub use event::{
    Acknowledged, Actor, AuditEvent, ConnectionChange, DeniedOperator, KeptRequests, NotRecorded,
    PinnedDefinition, Record, RecordedRequest, RefusedRequest, RequestEnd,
};
pub use kept::{ArgumentsKept, KeptRecord};
pub use log::{AuditLog, Notice};
