//! The calls that wait, and what approvers have said of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fanlight_identity::Principal;
use fanlight_protocol::Json;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::call::{ApproverRule, CallToApprove, Question};
use crate::common::{CommonApprovals, CommonAsked, CommonWaiting};
use crate::rounds::{RoundLimits, Rounds};

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
        Self { calls: 1000, calls_of_one: 32, call_bytes: 64 << 10, lifetime: Duration::from_secs(600) }
    }
}

/// The calls that wait for approval, or have been approved and not run yet.
#[derive(Clone, Debug)]
pub struct Approvals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ApprovalLimits,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Has all of them where several processes have them in common; `entries` is empty then.
    common: Option<Arc<dyn CommonApprovals>>,
    rounds: Rounds,
}

#[derive(Debug)]
struct Entry {
    call: CallToApprove,
    question: Question,
    asked: SystemTime,
    expires: Instant,
    status: Status,
    /// Wakes the call that waits, if it still does.
    waiter: Option<oneshot::Sender<()>>,
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
    #[error("the rule wants another person's approval, and it is not certain that you are another than the caller")]
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

impl Default for Approvals {
    fn default() -> Self {
        Self::new(ApprovalLimits::default())
    }
}

/// What a call that needs approval does next.
#[derive(Debug)]
pub enum Asked {
    /// It runs: it has been approved before, under this id.
    Approved {
        /// The id of the approval, which is used up.
        id: String,
    },
    /// It waits.
    Waiting(Waiting),
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
    #[error("this call needs approval, and too many calls wait for that already; wait for one to be decided")]
    TooMany,
    /// An approver could not be shown all of it.
    #[error("this call needs approval, and is too large to be shown to an approver: the limit is {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// What all processes have in common cannot be reached.
    #[error("this call needs approval, and the approvals of all replicas cannot be reached now; try again later")]
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

/// A call that waits. If it is dropped, the question stays: the answer is for the same call, should its client send it again.
#[derive(Debug)]
pub struct Waiting(Wait);

#[derive(Debug)]
enum Wait {
    Here {
        approvals: Approvals,
        id: String,
        /// Resolves once there is an answer; with an error if the question is gone.
        woken: oneshot::Receiver<()>,
        expires: Instant,
    },
    Common(CommonWaiting),
}

impl Approvals {
    /// A table without calls.
    #[must_use]
    pub fn new(limits: ApprovalLimits) -> Self {
        Self::with(limits, None)
    }

    /// Those that several processes have in common.
    #[must_use]
    pub fn in_common(common: Arc<dyn CommonApprovals>) -> Self {
        Self::with(ApprovalLimits::default(), Some(common))
    }

    fn with(limits: ApprovalLimits, common: Option<Arc<dyn CommonApprovals>>) -> Self {
        Self(Arc::new(Shared { limits, entries: Mutex::default(), common, rounds: Rounds::default() }))
    }

    /// The server of a call that runs by the approval `id` has asked for input, and given this state. Whoever brings that back
    /// with the same call goes on with it, once.
    pub fn continues(&self, id: &str, call: &CallToApprove, state: &Json) {
        let ApprovalLimits { calls, calls_of_one, lifetime, .. } = self.0.limits;
        self.0.rounds.add(RoundLimits { calls, calls_of_one, lifetime }, id, call, state);
    }

    /// The approval by which `call` goes on, if it is the next round of an approved call; that is used up.
    #[must_use]
    pub fn is_continued(&self, call: &CallToApprove, state: &Json) -> Option<String> {
        self.0.rounds.take(call, state)
    }

    /// Checks that a person can be shown all of `call`.
    ///
    /// # Errors
    ///
    /// If it is too large.
    pub fn check_size(&self, call: &CallToApprove) -> Result<(), NotAsked> {
        let limit = self.0.limits.call_bytes;
        if call.len() > limit { Err(NotAsked::TooLarge { limit }) } else { Ok(()) }
    }

    /// Whether `call` may run: it may if it has been approved, which uses the approval up; else it has to wait.
    ///
    /// # Errors
    ///
    /// If it has been refused, or cannot be asked about.
    pub async fn ask(&self, call: CallToApprove, question: Question) -> Result<Asked, NotAsked> {
        self.check_size(&call)?;
        let Some(common) = &self.0.common else { return self.ask_here(call, question) };
        let waiter = format!("{:016x}", fastrand::u64(..));
        let asked = common.ask(call.clone(), question, waiter.clone(), self.0.limits).await?;
        Ok(match asked {
            CommonAsked::Approved { id } => Asked::Approved { id },
            CommonAsked::Waiting { id, left } => {
                let waiting = CommonWaiting::new(Arc::clone(common), call, waiter, (id, left));
                Asked::Waiting(Waiting(Wait::Common(waiting)))
            }
        })
    }

    fn ask_here(&self, call: CallToApprove, question: Question) -> Result<Asked, NotAsked> {
        let ApprovalLimits { calls, calls_of_one, lifetime, .. } = self.0.limits;
        let mut entries = self.entries();
        let now = Instant::now();
        if let Some(id) = entries.iter().find(|(_, entry)| entry.is_approved(&call)).map(|(id, _)| id.clone()) {
            entries.remove(&id);
            return Ok(Asked::Approved { id });
        }
        let same = |entry: &&mut Entry| entry.call == call && !entry.is_waited_for();
        if let Some((id, entry)) = entries.iter_mut().find(|(_, entry)| same(entry)) {
            return match &entry.status {
                Status::Refused(_) => Err(NotAsked::Refused { id: id.clone() }),
                _ => Ok(Asked::Waiting(self.wait(id.clone(), entry))),
            };
        }
        let own = entries.values().filter(|entry| entry.call.principal == call.principal).count();
        if entries.len() >= calls || own >= calls_of_one {
            return Err(NotAsked::TooMany);
        }
        let id = new_id(&entries);
        let (asked, expires) = (SystemTime::now(), now + lifetime);
        let mut entry = Entry { call: call.detached(), question, asked, expires, status: Status::Open, waiter: None };
        let waiting = self.wait(id.clone(), &mut entry);
        entries.insert(id, entry);
        Ok(Asked::Waiting(waiting))
    }

    fn wait(&self, id: String, entry: &mut Entry) -> Waiting {
        let (waiter, woken) = oneshot::channel();
        entry.waiter = Some(waiter);
        Waiting(Wait::Here { approvals: self.clone(), id, woken, expires: entry.expires })
    }

    /// Puts down what an approver says of a call. If that waits, it goes on at once; otherwise the answer is for the same
    /// call, should its client send it again.
    ///
    /// # Errors
    ///
    /// If the answer changes nothing.
    pub async fn decide(&self, id: &str, approver: &Approver, is_approved: bool) -> Result<OpenQuestion, NotDecided> {
        match &self.0.common {
            Some(common) => common.decide(id, approver, is_approved, self.0.limits).await,
            None => self.decide_here(id, approver, is_approved),
        }
    }

    fn decide_here(&self, id: &str, approver: &Approver, is_approved: bool) -> Result<OpenQuestion, NotDecided> {
        let mut entries = self.entries();
        let entry = entries.get_mut(id).ok_or(NotDecided::Unknown)?;
        let now = Instant::now();
        entry.shown(id, now).check(approver, is_approved)?;
        let name = Arc::clone(&approver.name);
        entry.expires = now + self.0.limits.lifetime;
        entry.status = if is_approved { Status::Approved(name) } else { Status::Refused(name) };
        let shown = entry.shown(id, now);
        if let Some(waiter) = entry.waiter.take() {
            // An error means that the call does not wait any more.
            let _ = waiter.send(());
        }
        Ok(shown)
    }

    /// All calls of the table, those that were asked about first in front.
    ///
    /// # Errors
    ///
    /// If they cannot be reached.
    pub async fn list(&self) -> Result<Vec<OpenQuestion>, NotDecided> {
        match &self.0.common {
            Some(common) => common.list().await,
            None => Ok(self.list_here()),
        }
    }

    fn list_here(&self) -> Vec<OpenQuestion> {
        let (entries, now) = (self.entries(), Instant::now());
        let mut all: Vec<_> = entries.iter().map(|(id, entry)| entry.shown(id, now)).collect();
        all.sort_by_key(|question| question.asked);
        all
    }

    /// Takes the answer for a call that has waited: an approval is used up.
    fn take(&self, id: &str) -> Option<Status> {
        let mut entries = self.entries();
        match entries.get(id)?.status {
            Status::Approved(_) => entries.remove(id).map(|entry| entry.status),
            ref other => Some(other.clone()),
        }
    }

    /// The entries that have not expired.
    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // Nothing that can panic runs under this lock.
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        entries.retain(|_, entry| now < entry.expires);
        entries
    }
}

impl OpenQuestion {
    /// Checks that an approver may answer this now.
    ///
    /// # Errors
    ///
    /// If somebody has answered, or the rule wants somebody else.
    pub fn check(&self, approver: &Approver, is_approved: bool) -> Result<(), NotDecided> {
        match &self.status {
            Status::Approved(by) | Status::Refused(by) => return Err(NotDecided::Decided(Arc::clone(by))),
            Status::Open => {}
        }
        if is_approved && self.question.approver == ApproverRule::Other && !approver.is_another_than(&self.call) {
            return Err(NotDecided::NotAnother);
        }
        Ok(())
    }
}

impl Waiting {
    /// The name under which the call is answered.
    #[must_use]
    pub fn id(&self) -> &str {
        match &self.0 {
            Wait::Here { id, .. } => id,
            Wait::Common(waiting) => waiting.id(),
        }
    }

    /// Waits for the answer. An approval is used up by this call, which has to run then.
    ///
    /// # Errors
    ///
    /// If there is none that lets it run.
    pub async fn answer(&mut self) -> Result<(), NotApproved> {
        let (approvals, id, woken, expires) = match &mut self.0 {
            Wait::Here { approvals, id, woken, expires } => (approvals, id, woken, *expires),
            Wait::Common(waiting) => return waiting.answer().await,
        };
        // Whatever has woken it, the table says what has become of the question.
        let _ = timeout_at(expires, woken).await;
        match approvals.take(id) {
            Some(Status::Approved(_)) => Ok(()),
            Some(Status::Refused(_)) => Err(NotApproved::Refused),
            Some(Status::Open) | None => Err(NotApproved::Over),
        }
    }
}

impl Entry {
    fn is_approved(&self, call: &CallToApprove) -> bool {
        // One that is waited for belongs to the call that waits.
        matches!(self.status, Status::Approved(_)) && !self.is_waited_for() && self.call == *call
    }

    fn is_waited_for(&self) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| !waiter.is_closed())
    }

    fn shown(&self, id: &str, now: Instant) -> OpenQuestion {
        OpenQuestion {
            id: id.to_owned(),
            call: self.call.clone(),
            question: self.question.clone(),
            asked: self.asked,
            left: self.expires.saturating_duration_since(now),
            status: self.status.clone(),
            is_waiting: self.is_waited_for(),
        }
    }
}

impl Approver {
    /// Whether it is certain that this is another person than the one who calls.
    fn is_another_than(&self, call: &CallToApprove) -> bool {
        let principal = self.principal.as_ref().filter(|principal| principal.is_named());
        call.principal.is_named() && principal.is_some_and(|principal| *principal != call.principal)
    }
}

/// An id that no entry has: short, since people type it. Only approvers can use it.
fn new_id(entries: &BTreeMap<String, Entry>) -> String {
    loop {
        let id = format!("{:08x}", fastrand::u32(..));
        if !entries.contains_key(&id) {
            return id;
        }
    }
}
