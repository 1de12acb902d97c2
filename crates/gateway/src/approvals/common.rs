//! Approvals that several replicas share. Any replica may ask, receive the answer, or get the call
//! again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::Json;
use tokio::time::{Instant, sleep};

use crate::approvals::answer::{
    ApprovalLimits, Approver, NotApproved, NotAsked, NotDecided, OpenQuestion,
};
use crate::approvals::call::{CallToApprove, Question};

/// How often a waiting call looks for its answer.
const LOOKING: Duration = Duration::from_millis(500);

/// The future of a method of [`CommonApprovals`].
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Stores approvals for several replicas. Each method takes a limited time, and nothing is approved
/// in doubt.
///
/// A trait because its implementation depends on this crate.
pub trait CommonApprovals: fmt::Debug + Send + Sync {
    /// Looks for an approval of the call. If there is one, it is used up and the call may run.
    /// Otherwise the call waits under the name `waiter`.
    fn ask(
        &self,
        call: CallToApprove,
        question: Question,
        waiter: String,
        limits: ApprovalLimits,
    ) -> Pending<'_, Result<CommonAsked, NotAsked>>;

    /// Returns the answer to a waiting call, and notes that it still waits. An approval is used up.
    fn look<'a>(
        &'a self,
        call: &'a CallToApprove,
        id: &'a str,
        waiter: &'a str,
    ) -> Pending<'a, CommonAnswer>;

    /// Notes that the call no longer waits. Returns at once.
    fn give_up(&self, id: &str, waiter: &str);

    /// Notes that the server of a call under the approval `id` has asked for input and given this
    /// state. If the store cannot keep it, the next round needs a new approval.
    fn continues<'a>(
        &'a self,
        id: &'a str,
        call: &'a CallToApprove,
        state: &'a Json,
        limits: ApprovalLimits,
    ) -> Pending<'a, ()>;

    /// Uses up and returns the approval of the round before, if this call continues it with this
    /// state.
    ///
    /// # Errors
    ///
    /// If the store cannot be asked.
    fn is_continued<'a>(
        &'a self,
        call: &'a CallToApprove,
        state: &'a Json,
    ) -> Pending<'a, Result<Option<String>, NotAsked>>;

    /// Records an approver's answer, as [`Approvals::decide`](crate::approvals::Approvals::decide) does.
    fn decide<'a>(
        &'a self,
        id: &'a str,
        approver: &'a Approver,
        is_approved: bool,
        limits: ApprovalLimits,
    ) -> Pending<'a, Result<OpenQuestion, NotDecided>>;

    /// All calls that wait or have been answered.
    fn list(&self) -> Pending<'_, Result<Vec<OpenQuestion>, NotDecided>>;
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
