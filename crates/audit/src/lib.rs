//! The record of decisions: who was let in, who was refused, who called what, and who changed what.
//!
//! Whoever decides asks a [`Record`] before anything is carried out; what cannot be put on record is not carried out.

mod authentication;
mod event;
mod kept;
mod log;
mod masked;

pub use authentication::AuditedAuthentication;
pub use event::{
    Acknowledged, Actor, AuditEvent, ConnectionChange, DeniedOperator, KeptRequests, NotRecorded,
    PinnedDefinition, Record, RecordedRequest, RequestEnd,
};
pub use fanlight_ledger::cut;
pub use kept::{ArgumentsKept, KeptRecord};
pub use log::AuditLog;
