//! Calls that wait for approval.
//!
//! An approval is for one call: its principal, endpoint, server, tool, arguments as written, and
//! the rules that required it. It permits one run of that call within a limited time.
//!
//! Approvals are in memory, so after a restart nothing is approved and calls ask again. With
//! replicas they are in a store that the replicas share.

mod answer;
mod call;
mod common;
mod rounds;
mod table;

pub use answer::{
    ApprovalLimits, Approver, NotApproved, NotAsked, NotDecided, OpenQuestion, Status,
};
pub use call::{ApproverRule, CallToApprove, Question};
pub use common::{CommonAnswer, CommonApprovals, CommonAsked};
pub use table::{Approvals, Asked, Waiting};

#[cfg(test)]
mod tests;
