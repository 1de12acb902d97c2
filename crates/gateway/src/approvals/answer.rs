//! Approvers' questions and answers, and the errors of asking, deciding and waiting.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_canonical::identity::Principal;

use super::{ApproverRule, CallToApprove, Question};

/// The limits of the table of calls that wait for approval.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalLimits {
    /// The most calls in the table.
    pub calls: usize,
    /// The most calls of one principal.
    pub calls_of_one: usize,
    /// The most bytes of a call that can be shown to an approver.
    pub call_bytes: usize,
    /// How long a question can be answered, and then how long the answer is valid.
    pub lifetime: Duration,
}

/// No option: nobody reads more than this.
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

/// The state of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nobody has answered.
    Open,
    /// The approver of this name has approved one run of the call.
    Approved(Arc<str>),
    /// The approver of this name has refused the call.
    Refused(Arc<str>),
}

/// The person who answers.
#[derive(Clone, Debug)]
pub struct Approver {
    /// The approver's name for people.
    pub name: Arc<str>,
    /// The approver's principal; `None` if the approver is not authenticated as one.
    pub principal: Option<Principal>,
    /// Sets of methods whose different subjects are different people.
    pub comparable: Vec<Vec<String>>,
}

/// The reason why an answer changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecided {
    /// There is no such question (any more).
    #[error(
        "no call waits for approval under this id: it has expired, the call has run, or the gateway has been restarted since"
    )]
    Unknown,
    /// Another approver has answered first.
    #[error("this was decided already, by {0}")]
    Decided(Arc<str>),
    /// The rule requires an approver who is not the caller.
    #[error(
        "the rule wants another person's approval, and it is not certain that you are another than the caller (`auth.samePeople`)"
    )]
    NotAnother,
    /// The store that the replicas share cannot be reached.
    #[error("the approvals of all replicas cannot be reached now; try again later")]
    Away,
}

/// A call of the table, as approvers see it.
#[derive(Clone, Debug)]
pub struct OpenQuestion {
    /// The id by which approvers answer.
    pub id: String,
    /// The call.
    pub call: CallToApprove,
    /// The question about the call.
    pub question: Question,
    /// When the call was first asked about.
    pub asked: SystemTime,
    /// The time left to answer, or for using the answer.
    pub left: Duration,
    /// The state of the question.
    pub status: Status,
    /// Whether the call itself still waits. If not, its client has to send it again.
    pub is_waiting: bool,
}

/// The reason why a call cannot wait for approval.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// An approver has refused it.
    #[error("an approver has refused this call (approval {id})")]
    Refused {
        /// The id of the question.
        id: String,
    },
    /// Too many calls are waiting.
    #[error(
        "this call needs approval, and too many calls wait for that already; wait for one to be decided"
    )]
    TooMany,
    /// The call is too large to show all of it to an approver.
    #[error(
        "this call needs approval, and is too large to be shown to an approver: the limit is {limit} bytes"
    )]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The store that the replicas share cannot be reached.
    #[error(
        "this call needs approval, and the approvals of all replicas cannot be reached now; try again later"
    )]
    Away,
}

/// The reason why a waiting call does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotApproved {
    /// An approver has refused it.
    Refused,
    /// Nobody answered in time.
    Over,
}

impl OpenQuestion {
    /// Checks that this approver may answer the question now.
    ///
    /// # Errors
    ///
    /// If somebody has answered already, or the rule requires another approver.
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
    /// Whether the approver is certainly not the caller: methods that can be compared know them by
    /// different subjects. A person can have a key beside a sign-in, accounts at two issuers, or
    /// another `sub` for each client of an issuer.
    fn is_another_than(&self, call: &CallToApprove) -> bool {
        let approver = self
            .principal
            .as_ref()
            .and_then(Principal::issuer_and_subject);
        match (approver, call.principal.issuer_and_subject()) {
            (Some((method, subject)), Some((of_caller, caller))) => {
                let has_both = |methods: &Vec<String>| {
                    [method, of_caller]
                        .iter()
                        .all(|one| methods.iter().any(|known| known == one))
                };
                // Directories often compare names without regard to case.
                subject.to_lowercase() != caller.to_lowercase()
                    && self.comparable.iter().any(has_both)
            }
            _ => false,
        }
    }
}
