//! The calls that are parked, and how they are found again.
//!
//! A parked call has a task that reads what the server sends, so that the server's stream does not
//! stall, and that ends it when its time is over. There are as many tasks as places in the table.
//! A call keeps its place from the first time it is parked until it ends, so that a state that has
//! been used is known as such.
//!
//! Must not know: transports.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanlight_protocol::seal::KeyError;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use fanlight_telemetry::clients::SuspendedCallView;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::held::Held;
use super::state::{Opened, ParkedId, State, StateSeal, Subject, subject};
use crate::input;
use crate::settings::FrontendSettings;
use crate::trace::Counted;

/// All parked calls.
pub(crate) struct Parking {
    seal: StateSeal,
    settings: Arc<FrontendSettings>,
    table: Mutex<HashMap<ParkedId, Place>>,
    started: (Instant, Duration),
    runtime: Handle,
    tasks: TaskTracker,
    cut: CancellationToken,
}

struct Place {
    /// How often the call has been parked.
    round: u32,
    /// Asks the call's task to hand it over; `None` while it is not parked.
    resume: Option<oneshot::Sender<oneshot::Sender<Box<Held>>>>,
    /// What may be shown of it; out of date while it is not parked.
    shown: Option<Shown>,
}

struct Shown {
    method: String,
    name: Option<String>,
    asked: Vec<String>,
    since: Instant,
    until: Instant,
}

/// A call's place in the table, which is free again when this is dropped.
pub(super) struct Ticket {
    parking: Arc<Parking>,
    id: ParkedId,
}

/// A request that brings input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry<'a> {
    pub(crate) method: &'a Method,
    pub(crate) params: Option<&'a Json>,
    /// `requestState`
    pub(crate) state: Option<&'a Json>,
    /// `inputResponses`
    pub(crate) responses: Option<&'a Json>,
}

/// What a request goes on with.
#[derive(Debug)]
pub(crate) enum Resumed {
    /// Nothing: it is no retry of anything here.
    Nothing,
    /// A call that was parked.
    Held(Box<Held>),
    /// Nothing, but now it can succeed: it is to be made anew, without what the retry brings.
    Anew,
    /// It is answered already.
    Answered(Response),
}

impl Parking {
    /// A table without calls. What is parked ends when `cut` is cancelled.
    pub(crate) fn new(settings: &Arc<FrontendSettings>, cut: &CancellationToken) -> Result<Arc<Self>, KeyError> {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Arc::new(Self {
            seal: StateSeal::new(&settings.keys)?,
            settings: Arc::clone(settings),
            table: Mutex::default(),
            started: (Instant::now(), epoch),
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            cut: cut.child_token(),
        }))
    }

    /// How many questions one call may have open.
    pub(super) fn max_questions(&self) -> usize {
        self.settings.max_questions
    }

    /// Parks a call; returns the answer that asks for what it waits for. Gives the call back if
    /// there is no place for it.
    pub(super) fn park(self: &Arc<Self>, mut held: Box<Held>) -> Result<Response, Box<Held>> {
        if self.cut.is_cancelled() {
            return Err(held);
        }
        if held.ticket.is_none() {
            held.ticket = self.place();
        }
        let subject = held.subject();
        let Some(id) = held.ticket.as_ref().map(|ticket| ticket.id) else { return Err(held) };
        let (resume, resumed) = oneshot::channel();
        let deadline = held.deadline(Instant::now() + self.settings.input_timeout);
        let (method, name, asked) = held.shown();
        let shown = Shown { method, name, asked, since: Instant::now(), until: deadline };
        let round = match self.lock().get_mut(&id) {
            Some(place) => {
                place.round += 1;
                place.resume = Some(resume);
                place.shown = Some(shown);
                place.round
            }
            None => return Err(held),
        };
        let Some(state) = self.seal.seal(&State { id, round, expires: self.millis(deadline), subject }) else {
            return Err(held);
        };
        let questions = held.questions().iter();
        let asked = questions.map(|one| (one.key.as_str(), &one.request.method, one.request.params.as_ref()));
        let response = input::input_required(asked, &state);
        // The request that it was is answered, and cannot be cancelled any more.
        held.running.set_stop(None);
        let (limit, max_questions) = (self.settings.notification_buffer, self.max_questions());
        let hold = hold(held, resumed, deadline, self.cut.clone(), (limit, max_questions));
        let counted = Counted::parked(&self.settings.telemetry);
        let hold = async move {
            let _counted = counted;
            hold.await;
        };
        self.tasks.spawn_on(hold, &self.runtime);
        Ok(response)
    }

    /// What `retry` goes on with. If it is a parked call, its answers have been given to it.
    pub(crate) async fn resume(&self, retry: Retry<'_>) -> Result<Resumed, RpcError> {
        if !retry.method.may_need_input() {
            return Ok(Resumed::Nothing);
        }
        let Some(state) = retry.state.and_then(Json::as_str) else { return Ok(Resumed::Nothing) };
        let state = match self.seal.open(&state) {
            Opened::Foreign => return Ok(Resumed::Nothing),
            Opened::Forged => return Err(refuse("is not what was given out here: it has been changed")),
            Opened::Again(again) => {
                self.check(retry, &again.subject, again.expires)?;
                return again.resumed(&answers(retry.responses)?, self);
            }
            Opened::State(state) => state,
        };
        self.check(retry, &state.subject, state.expires)?;
        let answers = answers(retry.responses)?;
        let (hand_over, handed_over) = oneshot::channel();
        let resume = match self.lock().get_mut(&state.id) {
            Some(place) if place.round == state.round => place.resume.take().ok_or_else(replayed)?,
            Some(_) => return Err(replayed()),
            None => return Err(expired()),
        };
        resume.send(hand_over).map_err(|_| expired())?;
        let mut held = handed_over.await.map_err(|_| expired())?;
        held.answer(&answers);
        Ok(Resumed::Held(held))
    }

    /// Refuses a retry that is not what its state was made for, or too late.
    fn check(&self, retry: Retry<'_>, of: &Subject, expires: u64) -> Result<(), RpcError> {
        if *of != subject(retry.method, retry.params) {
            return Err(refuse("belongs to another request: repeat the method and params of the first one"));
        }
        if self.millis(Instant::now()) >= expires { Err(expired()) } else { Ok(()) }
    }

    /// What makes a state of this process, and when one that is made now expires.
    pub(super) fn seal(&self) -> (&StateSeal, u64) {
        (&self.seal, self.millis(Instant::now() + self.settings.input_timeout))
    }

    /// How many calls are parked now.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().filter(|place| place.resume.is_some()).count()
    }

    /// What an operator may see of the calls that are parked now.
    pub(crate) fn shown(&self) -> Vec<SuspendedCallView> {
        let now = Instant::now();
        let table = self.lock();
        let parked = table.values().filter(|place| place.resume.is_some());
        let view = |place: &Place| {
            let shown = place.shown.as_ref()?;
            Some(SuspendedCallView {
                method: shown.method.clone(),
                name: shown.name.clone(),
                requests: shown.asked.clone(),
                round: place.round,
                waiting: now.saturating_duration_since(shown.since),
                left: shown.until.saturating_duration_since(now),
            })
        };
        parked.filter_map(view).collect()
    }

    /// Ends what is parked, and waits until it is gone.
    pub(crate) async fn end(&self) {
        self.cut.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn place(self: &Arc<Self>) -> Option<Ticket> {
        let mut id = ParkedId::default();
        getrandom::fill(&mut id).ok()?;
        let mut table = self.lock();
        if table.len() >= self.settings.max_parked {
            tracing::warn!(limit = self.settings.max_parked, "too many parked calls; a server's question is refused");
            return None;
        }
        table.insert(id, Place { round: 0, resume: None, shown: None });
        Some(Ticket { parking: Arc::clone(self), id })
    }

    /// Milliseconds after the Unix epoch, by the clock that timers go by.
    fn millis(&self, at: Instant) -> u64 {
        let (started, epoch) = self.started;
        u64::try_from((epoch + at.saturating_duration_since(started)).as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ParkedId, Place>> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a call until it is resumed, its time is over or everything ends.
async fn hold(
    mut held: Box<Held>,
    resumed: oneshot::Receiver<oneshot::Sender<Box<Held>>>,
    deadline: Instant,
    cut: CancellationToken,
    (limit, max_questions): (usize, usize),
) {
    tokio::select! {
        biased;
        hand_over = resumed => if let Ok(hand_over) = hand_over {
            // An error means that the client has gone again, and the call goes with it.
            let _ = hand_over.send(held);
        },
        () = cut.cancelled() => {}
        () = sleep_until(deadline) => tracing::debug!("nobody came back for a parked call; it is cancelled"),
        () = poll_fn(|cx| held.poll_parked(limit, max_questions, cx)) => {}
    }
}

/// The members of `inputResponses`. They are results, which are objects.
fn answers(responses: Option<&Json>) -> Result<Vec<(String, Json)>, RpcError> {
    let Some(all) = responses else { return Ok(Vec::new()) };
    let invalid = |message: &str| RpcError::new(code::INVALID_PARAMS, message.to_owned());
    if !all.is_object() {
        return Err(invalid("\"inputResponses\" must be an object"));
    }
    let read = |member: fanlight_protocol::json::Member| {
        let (name, result) = (member.name(all), all.slice(member.value));
        match (name, result.is_object()) {
            (Some(name), true) => Ok((name, result)),
            _ => Err(invalid("every member of \"inputResponses\" must be an object")),
        }
    };
    all.members().map(read).collect()
}

fn refuse(reason: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("\"requestState\" {reason}"))
}

fn expired() -> RpcError {
    refuse("has expired: the call it belongs to is no longer held; make the call anew, without it")
}

fn replayed() -> RpcError {
    refuse("has been used already: it is good for one request")
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let place = self.parking.lock().remove(&self.id);
        drop(place);
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}

impl std::fmt::Debug for Parking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parking").field("limit", &self.settings.max_parked).finish_non_exhaustive()
    }
}
