//! Calls that wait for the word of an approver.
//!
//! An approval is for one call: the principal, the endpoint, the server, the tool, the arguments as they are written, and the
//! rules that asked for it. It is good for one run of that call, for a limited time. All of it is in memory: after a restart
//! nothing is approved, and a call asks again.

mod call;
mod rounds;
mod table;

pub use call::{ApproverRule, CallToApprove, Question};
pub use table::{
    ApprovalLimits, Approvals, Approver, Asked, NotApproved, NotAsked, NotDecided, OpenQuestion, Status, Waiting,
};

#[cfg(test)]
mod tests;
