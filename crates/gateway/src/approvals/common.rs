//! Approvals that several replicas share. Any replica may ask, receive the answer, or get the call
//! again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fanlight_protocol::Json;
use tokio::time::{Instant, sleep};

use crate::approvals::answer::{
    ApprovalLimits, Approver, NotApproved, NotAsked, NotDecided, OpenQuestion,
};
use crate::approvals::call::{CallToApprove, Question};

/// How often a waiting call looks for its answer.
const LOOKING: Duration = Duration::from_millis(500);

/// Stores approvals for several replicas. Each method takes a limited time, and nothing is approved
/// in doubt.
///
/// A trait because its implementation depends on this crate.
#[async_trait]
pub trait CommonApprovals: fmt::Debug + Send + Sync {
    /// Looks for an approval of the call. If there is one, it is used up and the call may run.
    /// Otherwise the call waits under the name `waiter`.
    async fn ask(
        &self,
        call: CallToApprove,
        question: Question,
        waiter: String,
        limits: ApprovalLimits,
    ) -> Result<CommonAsked, NotAsked>;

    /// Returns the answer to a waiting call, and notes that it still waits. An approval is used up.
    async fn look(&self, call: &CallToApprove, id: &str, waiter: &str) -> CommonAnswer;

    /// Notes that the call no longer waits. Returns at once.
    fn give_up(&self, id: &str, waiter: &str);

    /// Notes that the server of a call under the approval `id` has asked for input and given this
    /// state. If the store cannot keep it, the next round needs a new approval.
    async fn continues(&self, id: &str, call: &CallToApprove, state: &Json, limits: ApprovalLimits);

    /// Uses up and returns the approval of the round before, if this call continues it with this
    /// state.
    ///
    /// # Errors
    ///
    /// If the store cannot be asked.
    async fn is_continued(
        &self,
        call: &CallToApprove,
        state: &Json,
    ) -> Result<Option<String>, NotAsked>;

    /// Records an approver's answer, as [`Approvals::decide`](crate::approvals::Approvals::decide) does.
    async fn decide(
        &self,
        id: &str,
        approver: &Approver,
        is_approved: bool,
        limits: ApprovalLimits,
    ) -> Result<OpenQuestion, NotDecided>;

    /// All calls that wait or have been answered.
    async fn list(&self) -> Result<Vec<OpenQuestion>, NotDecided>;
}

/// The next step of a call that needs approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommonAsked {
    /// The call runs, because it was approved before.
    Approved {
        /// The id of the approval, which is used up.
        id: String,
    },
    /// The call waits.
    Waiting {
        /// The id of the question.
        id: String,
        /// The time left to answer.
        left: Duration,
    },
}

/// The answer to a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonAnswer {
    /// Nobody has answered, or the store cannot be reached.
    Nothing,
    /// The call runs.
    Approved,
    /// The call does not run.
    Refused,
    /// The question no longer exists.
    Over,
}

/// A waiting call. If it is dropped, the question stays.
#[derive(Debug)]
pub(crate) struct CommonWaiting {
    common: Arc<dyn CommonApprovals>,
    call: CallToApprove,
    waiter: String,
    id: String,
    expires: Instant,
}

impl CommonWaiting {
    pub(crate) fn new(
        common: Arc<dyn CommonApprovals>,
        call: CallToApprove,
        waiter: String,
        (id, left): (String, Duration),
    ) -> Self {
        Self {
            common,
            call,
            waiter,
            id,
            expires: Instant::now() + left,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) async fn answer(&self) -> Result<(), NotApproved> {
        loop {
            match self.common.look(&self.call, &self.id, &self.waiter).await {
                CommonAnswer::Approved => return Ok(()),
                CommonAnswer::Refused => return Err(NotApproved::Refused),
                CommonAnswer::Nothing if Instant::now() < self.expires => sleep(LOOKING).await,
                CommonAnswer::Nothing | CommonAnswer::Over => return Err(NotApproved::Over),
            }
        }
    }
}

impl Drop for CommonWaiting {
    fn drop(&mut self) {
        self.common.give_up(&self.id, &self.waiter);
    }
}
