//! What approvers are asked and say, and why something is not asked, decided or approved.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_identity::Principal;

use crate::call::{ApproverRule, CallToApprove, Question};

/// Bounds of the table.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalLimits {
    /// Calls in it.
    pub calls: usize,
    /// Calls of one principal.
    pub calls_of_one: usize,
    /// Bytes of a call that can be shown to an approver.
    pub call_bytes: usize,
    /// How long a question can be answered, and from then on how long the answer is good.
    pub lifetime: Duration,
}

/// No option: what is more than this, nobody reads.
impl Default for ApprovalLimits {
    fn default() -> Self {
        Self {
            calls: 1000,
            calls_of_one: 32,
            call_bytes: 64 << 10,
            lifetime: Duration::from_secs(600),
        }
    }
}

/// What has been said of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing yet.
    Open,
    /// It may run once, says the approver of this name.
    Approved(Arc<str>),
    /// It may not run, says the approver of this name.
    Refused(Arc<str>),
}

/// Who answers.
#[derive(Clone, Debug)]
pub struct Approver {
    /// The name for people.
    pub name: Arc<str>,
    /// The principal; `None` if nothing shows who it is.
    pub principal: Option<Principal>,
}

/// Why an answer changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecided {
    /// There is no such question.
    #[error(
        "no call waits for approval under this id: it has expired, the call has run, or the gateway has been restarted since"
    )]
    Unknown,
    /// Somebody else was faster.
    #[error("this was decided already, by {0}")]
    Decided(Arc<str>),
    /// The rule wants another person.
    #[error(
        "the rule wants another person's approval, and it is not certain that you are another than the caller"
    )]
    NotAnother,
    /// What all processes have in common cannot be reached.
    #[error("the approvals of all replicas cannot be reached now; try again later")]
    Away,
}

/// A call of the table, for approvers.
#[derive(Clone, Debug)]
pub struct OpenQuestion {
    /// The name under which it is answered.
    pub id: String,
    /// The call.
    pub call: CallToApprove,
    /// What is asked about it.
    pub question: Question,
    /// When it was asked first.
    pub asked: SystemTime,
    /// How long it can still be answered, or the answer is good.
    pub left: Duration,
    /// What has been said.
    pub status: Status,
    /// Whether the call itself still waits; otherwise its client has to send it again.
    pub is_waiting: bool,
}

/// Why a call can't wait for approval.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// An approver has refused it.
    #[error("an approver has refused this call (approval {id})")]
    Refused {
        /// The id of the question.
        id: String,
    },
    /// Too many calls wait.
    #[error(
        "this call needs approval, and too many calls wait for that already; wait for one to be decided"
    )]
    TooMany,
    /// An approver could not be shown all of it.
    #[error(
        "this call needs approval, and is too large to be shown to an approver: the limit is {limit} bytes"
    )]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// What all processes have in common cannot be reached.
    #[error(
        "this call needs approval, and the approvals of all replicas cannot be reached now; try again later"
    )]
    Away,
}

/// Why a call that has waited does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotApproved {
    /// An approver has refused it.
    Refused,
    /// The time to answer is over.
    Over,
}

impl OpenQuestion {
    /// Checks that an approver may answer this now.
    ///
    /// # Errors
    ///
    /// If somebody has answered, or the rule wants somebody else.
    pub fn check(&self, approver: &Approver, is_approved: bool) -> Result<(), NotDecided> {
        match &self.status {
            Status::Approved(by) | Status::Refused(by) => {
                return Err(NotDecided::Decided(Arc::clone(by)));
            }
            Status::Open => {}
        }
        if is_approved
            && self.question.approver == ApproverRule::Other
            && !approver.is_another_than(&self.call)
        {
            return Err(NotDecided::NotAnother);
        }
        Ok(())
    }
}

impl Approver {
    /// Whether it is certain that this is another person than the one who calls.
    fn is_another_than(&self, call: &CallToApprove) -> bool {
        let principal = self
            .principal
            .as_ref()
            .filter(|principal| principal.is_named());
        call.principal.is_named() && principal.is_some_and(|principal| *principal != call.principal)
    }
}
