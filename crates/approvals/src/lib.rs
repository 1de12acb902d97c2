//! Calls that wait for the word of an approver.
//!
//! An approval is for one call: the principal, the endpoint, the server, the tool, the arguments as they are written, and the
//! rules that asked for it. It is good for one run of that call, for a limited time. All of it is in memory, so that after a restart
//! nothing is approved and a call asks again, or in a store that several processes have in common.

mod answer;
mod call;
mod common;
mod rounds;
mod table;

pub use answer::{
    ApprovalLimits, Approver, NotApproved, NotAsked, NotDecided, OpenQuestion, Status,
};
pub use call::{ApproverRule, CallToApprove, Question};
pub use common::{CommonAnswer, CommonApprovals, CommonAsked, Pending};
pub use table::{Approvals, Asked, Waiting};

#[cfg(test)]
mod tests;
