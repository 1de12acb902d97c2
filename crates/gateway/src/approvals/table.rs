//! The calls that wait for approval, and the answers of approvers.
//!
//! If the server of an approved call asks for input, the next round needs no new approval.
//!
//! Several replicas share the approvals: any may ask, receive the answer, or get the call again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fanlight_protocol::Json;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::answer::{
    ApprovalLimits, Approver, NotApproved, NotAsked, NotDecided, OpenQuestion, Status,
};
use super::{CallToApprove, Question};

/// The calls that wait for approval, or were approved and have not run yet.
#[derive(Clone, Debug)]
pub struct Approvals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ApprovalLimits,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// The store that the replicas share. If there is one, `entries` and `rounds` are empty.
    common: Option<Arc<dyn CommonApprovals>>,
    rounds: Rounds,
    /// How many questions were open when they were last listed.
    open: AtomicUsize,
}

#[derive(Debug)]
struct Entry {
    call: CallToApprove,
    question: Question,
    asked: SystemTime,
    expires: Instant,
    status: Status,
    /// Wakes the waiting call, if it still waits.
    waiter: Option<oneshot::Sender<()>>,
}

impl Default for Approvals {
    fn default() -> Self {
        Self::new(ApprovalLimits::default())
    }
}

/// The next step of a call that needs approval.
#[derive(Debug)]
pub enum Asked {
    /// The call runs, because it was approved before.
    Approved {
        /// The id of the approval, which is used up.
        id: String,
    },
    /// The call waits.
    Waiting(Waiting),
}

/// A waiting call. If it is dropped, the question stays. The answer then counts for the same call
/// if its client sends it again.
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
    Common(Box<CommonWaiting>),
}

impl Approvals {
    /// An empty table.
    #[must_use]
    pub fn new(limits: ApprovalLimits) -> Self {
        Self::with(limits, None)
    }

    /// Approvals in the store that replicas share.
    #[must_use]
    pub fn in_common(common: Arc<dyn CommonApprovals>) -> Self {
        Self::with(ApprovalLimits::default(), Some(common))
    }

    fn with(limits: ApprovalLimits, common: Option<Arc<dyn CommonApprovals>>) -> Self {
        Self(Arc::new(Shared {
            limits,
            entries: Mutex::default(),
            common,
            rounds: Rounds::default(),
            open: AtomicUsize::default(),
        }))
    }

    /// Notes that the server of a call under the approval `id` has asked for input and given this
    /// state. A client that sends the state back with the same call may go on once.
    pub async fn continues(&self, id: &str, call: &CallToApprove, state: &Json) {
        match &self.0.common {
            Some(common) => common.continues(id, call, state, self.0.limits).await,
            None => self.0.rounds.add(self.0.limits, id, call, state),
        }
    }

    /// Uses up and returns the approval of the round before, if the call is the next round of an
    /// approved call.
    ///
    /// # Errors
    ///
    /// If the store that the replicas share cannot be asked.
    pub async fn is_continued(
        &self,
        call: &CallToApprove,
        state: &Json,
    ) -> Result<Option<String>, NotAsked> {
        match &self.0.common {
            Some(common) => common.is_continued(call, state).await,
            None => Ok(self.0.rounds.take(call, state)),
        }
    }

    /// Checks that a person can be shown all of `call`.
    ///
    /// # Errors
    ///
    /// If it is too large.
    pub fn check_size(&self, call: &CallToApprove) -> Result<(), NotAsked> {
        let limit = self.0.limits.call_bytes;
        if call.len() > limit {
            Err(NotAsked::TooLarge { limit })
        } else {
            Ok(())
        }
    }

    /// Asks for approval of `call`. It may run if it was approved before, which uses the approval
    /// up. Otherwise it has to wait.
    ///
    /// # Errors
    ///
    /// If the call was refused, or cannot wait for approval.
    pub async fn ask(&self, call: CallToApprove, question: Question) -> Result<Asked, NotAsked> {
        self.check_size(&call)?;
        let Some(common) = &self.0.common else {
            return self.ask_here(call, question);
        };
        let waiter = format!("{:016x}", fastrand::u64(..));
        let asked = common
            .ask(call.clone(), question, waiter.clone(), self.0.limits)
            .await?;
        Ok(match asked {
            CommonAsked::Approved { id } => Asked::Approved { id },
            CommonAsked::Waiting { id, left } => {
                let waiting = CommonWaiting::new(Arc::clone(common), call, waiter, (id, left));
                Asked::Waiting(Waiting(Wait::Common(Box::new(waiting))))
            }
        })
    }

    fn ask_here(&self, call: CallToApprove, question: Question) -> Result<Asked, NotAsked> {
        let ApprovalLimits {
            calls,
            calls_of_one,
            lifetime,
            ..
        } = self.0.limits;
        let mut entries = self.entries();
        let now = Instant::now();
        if let Some(id) = entries
            .iter()
            .find(|(_, entry)| entry.is_approved(&call))
            .map(|(id, _)| id.clone())
        {
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
        let is_own = |entry: &Entry| entry.call.principal == call.principal;
        let is_open = |entry: &&Entry| entry.status == Status::Open;
        let open = || entries.values().filter(is_open);
        if open().count() >= calls || open().filter(|entry| is_own(entry)).count() >= calls_of_one {
            return Err(NotAsked::TooMany);
        }
        // A decided approval takes nobody's place: the oldest leaves, a principal's own first.
        let decided = |own: bool| {
            let decided = entries
                .iter()
                .filter(|(_, entry)| !is_open(entry) && (!own || is_own(entry)));
            let oldest = decided.clone().min_by_key(|(_, entry)| entry.expires);
            (decided.count(), oldest.map(|(id, _)| id.clone()))
        };
        let leaves = match (decided(true), decided(false)) {
            ((own, oldest), _) if own >= calls_of_one => oldest,
            (_, (_, oldest)) if entries.len() >= calls => oldest,
            _ => None,
        };
        leaves.map(|id| entries.remove(&id));
        let id = new_id(&entries);
        let (asked, expires) = (SystemTime::now(), now + lifetime);
        let mut entry = Entry {
            call: call.detached(),
            question,
            asked,
            expires,
            status: Status::Open,
            waiter: None,
        };
        let waiting = self.wait(id.clone(), &mut entry);
        entries.insert(id, entry);
        Ok(Asked::Waiting(waiting))
    }

    fn wait(&self, id: String, entry: &mut Entry) -> Waiting {
        let (waiter, woken) = oneshot::channel();
        entry.waiter = Some(waiter);
        Waiting(Wait::Here {
            approvals: self.clone(),
            id,
            woken,
            expires: entry.expires,
        })
    }

    /// Records an approver's answer about a call. If the call waits, it goes on at once. Otherwise
    /// the answer counts for the same call if its client sends it again.
    ///
    /// # Errors
    ///
    /// If the answer changes nothing.
    pub async fn decide(
        &self,
        id: &str,
        approver: &Approver,
        is_approved: bool,
    ) -> Result<OpenQuestion, NotDecided> {
        match &self.0.common {
            Some(common) => {
                common
                    .decide(id, approver, is_approved, self.0.limits)
                    .await
            }
            None => self.decide_here(id, approver, is_approved),
        }
    }

    fn decide_here(
        &self,
        id: &str,
        approver: &Approver,
        is_approved: bool,
    ) -> Result<OpenQuestion, NotDecided> {
        let mut entries = self.entries();
        let entry = entries.get_mut(id).ok_or(NotDecided::Unknown)?;
        let now = Instant::now();
        entry.question(id, now).check(approver, is_approved)?;
        let name = Arc::clone(&approver.name);
        entry.expires = now + self.0.limits.lifetime;
        entry.status = if is_approved {
            Status::Approved(name)
        } else {
            Status::Refused(name)
        };
        let shown = entry.question(id, now);
        if let Some(waiter) = entry.waiter.take() {
            // An error means that the call no longer waits.
            let _ = waiter.send(());
        }
        Ok(shown)
    }

    /// All calls of the table, oldest question first.
    ///
    /// # Errors
    ///
    /// If the store that the replicas share cannot be reached.
    pub async fn list(&self) -> Result<Vec<OpenQuestion>, NotDecided> {
        let all = match &self.0.common {
            Some(common) => common.list().await?,
            None => self.list_here(),
        };
        let open = all.iter().filter(|one| matches!(one.status, Status::Open));
        self.0.open.store(open.count(), Ordering::Relaxed);
        Ok(all)
    }

    /// How many questions were open when they were last listed.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    fn list_here(&self) -> Vec<OpenQuestion> {
        let (entries, now) = (self.entries(), Instant::now());
        let mut all: Vec<_> = entries
            .iter()
            .map(|(id, entry)| entry.question(id, now))
            .collect();
        all.sort_by_key(|question| question.asked);
        all
    }

    /// Takes the answer for a call that has waited. An approval is used up.
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
        let mut entries = self.0.entries.lock();
        let now = Instant::now();
        entries.retain(|_, entry| now < entry.expires);
        entries
    }
}

impl Waiting {
    /// The id by which approvers answer.
    #[must_use]
    pub fn id(&self) -> &str {
        match &self.0 {
            Wait::Here { id, .. } => id,
            Wait::Common(waiting) => waiting.id(),
        }
    }

    /// Waits for the answer. An approval is used up, so the call has to run then.
    ///
    /// # Errors
    ///
    /// If nobody approved the call.
    pub async fn answer(&mut self) -> Result<(), NotApproved> {
        let (approvals, id, woken, expires) = match &mut self.0 {
            Wait::Here {
                approvals,
                id,
                woken,
                expires,
            } => (approvals, id, woken, *expires),
            Wait::Common(waiting) => return waiting.answer().await,
        };
        // The table has the state of the question, whatever has woken the call.
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
        // An approval that a call waits for belongs to that call.
        matches!(self.status, Status::Approved(_)) && !self.is_waited_for() && self.call == *call
    }

    fn is_waited_for(&self) -> bool {
        self.waiter
            .as_ref()
            .is_some_and(|waiter| !waiter.is_closed())
    }

    fn question(&self, id: &str, now: Instant) -> OpenQuestion {
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

/// An unused id. It is short because people type it, and only approvers can use it.
fn new_id(entries: &BTreeMap<String, Entry>) -> String {
    loop {
        let id = format!("{:08x}", fastrand::u32(..));
        if !entries.contains_key(&id) {
            return id;
        }
    }
}

/// The longest state of a server that is remembered, in bytes. No option: with a longer state the
/// next round asks again.
const LONGEST_STATE: usize = 4096;

/// Approved calls between two of their rounds.
#[derive(Debug, Default)]
struct Rounds(Mutex<Vec<Round>>);

#[derive(Debug)]
struct Round {
    /// The id of the approval.
    id: String,
    call: CallToApprove,
    /// The server's state, which the client sends back (2026-07-28 basic/patterns/mrtr).
    state: Json,
    expires: Instant,
}

impl Rounds {
    /// Remembers a call that can go on with `state`. Beyond the limits it is not remembered, and
    /// the next round asks again.
    fn add(&self, limits: ApprovalLimits, id: &str, call: &CallToApprove, state: &Json) {
        let mut rounds = self.lock();
        let own = rounds
            .iter()
            .filter(|round| round.call.principal == call.principal)
            .count();
        if rounds.len() < limits.calls
            && own < limits.calls_of_one
            && state.bytes().len() <= LONGEST_STATE
        {
            let (id, state, expires) = (
                id.to_owned(),
                state.detached(),
                Instant::now() + limits.lifetime,
            );
            rounds.push(Round {
                id,
                call: call.detached(),
                state,
                expires,
            });
        }
    }

    /// Takes the approval of the round that returned `state`, for the next round of the same call.
    fn take(&self, call: &CallToApprove, state: &Json) -> Option<String> {
        let mut rounds = self.lock();
        let is_same = |known: &Json| match (known.as_str(), state.as_str()) {
            (Some(known), Some(state)) => known == state,
            _ => known == state,
        };
        let at = rounds
            .iter()
            .position(|round| round.call == *call && is_same(&round.state))?;
        Some(rounds.swap_remove(at).id)
    }

    /// The rounds that have not expired.
    fn lock(&self) -> MutexGuard<'_, Vec<Round>> {
        // Nothing that can panic runs under this lock.
        let mut rounds = self.0.lock();
        let now = Instant::now();
        rounds.retain(|round| now < round.expires);
        rounds
    }
}

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
