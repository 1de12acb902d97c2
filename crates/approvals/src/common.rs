//! Approvals that several processes have in common: whoever asked, whoever answers, and wherever the call is sent again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::Json;
use tokio::time::{Instant, sleep};

use crate::answer::{ApprovalLimits, Approver, NotApproved, NotAsked, NotDecided, OpenQuestion};
use crate::call::{CallToApprove, Question};

/// How often a call that waits looks for its answer.
const LOOKING: Duration = Duration::from_millis(500);

/// What takes a while.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps approvals for several processes. Everything takes a bounded time, whatever happens, and what is not certain is not
/// approved.
pub trait CommonApprovals: fmt::Debug + Send + Sync {
    /// Whether a call may run: it may if it has been approved, which uses the approval up; else it waits, under the name of
    /// this `waiter`.
    fn ask(
        &self,
        call: CallToApprove,
        question: Question,
        waiter: String,
        limits: ApprovalLimits,
    ) -> Pending<'_, Result<CommonAsked, NotAsked>>;

    /// What has been said of a call that waits, and that it still does. An approval is used up.
    fn look<'a>(
        &'a self,
        call: &'a CallToApprove,
        id: &'a str,
        waiter: &'a str,
    ) -> Pending<'a, CommonAnswer>;

    /// The call does not wait any more. Returns at once.
    fn give_up(&self, id: &str, waiter: &str);

    /// The server of a call that runs by the approval `id` has asked for input, and given this state. What cannot be kept is asked
    /// about again.
    fn continues<'a>(
        &'a self,
        id: &'a str,
        call: &'a CallToApprove,
        state: &'a Json,
        limits: ApprovalLimits,
    ) -> Pending<'a, ()>;

    /// The approval by which a call goes on with this state, which is used up; `None` also if that is not certain.
    fn is_continued<'a>(
        &'a self,
        call: &'a CallToApprove,
        state: &'a Json,
    ) -> Pending<'a, Option<String>>;

    /// Puts down what an approver says, as [`Approvals::decide`](crate::Approvals::decide) does.
    fn decide<'a>(
        &'a self,
        id: &'a str,
        approver: &'a Approver,
        is_approved: bool,
        limits: ApprovalLimits,
    ) -> Pending<'a, Result<OpenQuestion, NotDecided>>;

    /// All calls that wait, or have been answered.
    fn list(&self) -> Pending<'_, Result<Vec<OpenQuestion>, NotDecided>>;
}

/// What a call that needs approval does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommonAsked {
    /// It runs: it has been approved before, under this id.
    Approved {
        /// The id of the approval, which is used up.
        id: String,
    },
    /// It waits.
    Waiting {
        /// The id of the question.
        id: String,
        /// How long that can be answered.
        left: Duration,
    },
}

/// What has been said of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonAnswer {
    /// Nothing, or that cannot be known now.
    Nothing,
    /// It runs.
    Approved,
    /// It does not run.
    Refused,
    /// There is no such question any more.
    Over,
}

/// A call that waits. If it is dropped, the question stays.
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
