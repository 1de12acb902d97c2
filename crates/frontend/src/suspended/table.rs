//! The table of suspended calls, in which requests with input find their call.
//!
//! Each suspended call has a task. It reads the server's messages, so that the server's stream does
//! not stall, and cancels the call when its time is over. A call keeps its entry from its first
//! suspension until its end, so a used state is recognized.

use std::any::Any;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Holder, Peer, ProcessRun};
use fanlight_fair::{Rule, Table};
use fanlight_gateway::Decided;
use fanlight_protocol::seal::KeyError;
use fanlight_protocol::{
    InputRequired, Json, Method, REQUEST_STATE, Response, RpcError, code, epoch, input,
};
use fanlight_telemetry::clients::SuspendedCallView;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use super::SuspendableCall;
use super::request_state::{Opened, RequestDigest, State, StateSeal, SuspendedId, request_digest};
use crate::eras::fault;
use crate::settings::FrontendSettings;
use crate::trace::SuspendedCount;

/// No limit for one peer: when all suspended calls are in use, a new one ends one of the peer that has most.
const NO_PEER_LIMIT: usize = 0;

/// All suspended calls.
pub(crate) struct SuspendedCalls {
    seal: StateSeal,
    settings: Arc<FrontendSettings>,
    store: SuspendedEntries,
    started: (Instant, Duration),
    runtime: Handle,
    tasks: TaskTracker,
    cut: CancellationToken,
}

/// Asks a suspended call's task to hand over the call. Dropping this makes the task end the call.
type HandOver = oneshot::Sender<oneshot::Sender<Box<SuspendableCall>>>;

/// A call that waits in this process.
struct Resumable {
    hand_over: HandOver,
    /// The input of the policy's decision when the call began.
    decided: Arc<Decided>,
}

/// Removes a call's entry when dropped.
struct Entry {
    calls: Arc<SuspendedCalls>,
    id: SuspendedId,
}

/// A request with input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry<'a> {
    pub(crate) holder: &'a Holder,
    pub(crate) method: &'a Method,
    pub(crate) params: Option<&'a Json>,
    /// `requestState`
    pub(crate) state: Option<&'a Json>,
    /// `inputResponses`
    pub(crate) responses: Option<&'a Json>,
}

/// The call that a request continues.
#[derive(Debug)]
pub(crate) enum Found {
    /// A suspended call, which waits for the request's input.
    Suspended(Box<WaitingCall>),
    /// A suspended call that this other run keeps.
    Elsewhere(ProcessRun),
    /// None: the request is a call of its own.
    Call(Resumption),
}

/// A suspended call that a retry fits, and the retry's input.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    /// The input of the policy's decision when the call began.
    pub(crate) decided: Arc<Decided>,
    state: State,
    answers: Vec<(String, Json)>,
}

impl WaitingCall {
    /// Drops the retry's input: the call must not go on.
    pub(crate) fn without_answers(self) -> Self {
        Self {
            answers: Vec::new(),
            ..self
        }
    }
}

/// How a request that continues no suspended call goes on.
#[derive(Debug)]
pub(crate) enum Resumption {
    /// The request begins a new call: it does not retry a call of this process.
    New,
    /// The request begins a new call, which can now succeed without the retry's input.
    Repeat,
    /// The call has ended with this answer.
    Answered(Response),
}

impl SuspendedCalls {
    /// An empty table. Cancelling `cut` ends all calls.
    pub(crate) fn new(
        settings: &Arc<FrontendSettings>,
        cut: &CancellationToken,
    ) -> Result<Arc<Self>, KeyError> {
        let epoch = epoch::now();
        Ok(Arc::new(Self {
            seal: StateSeal::new(&settings.keys)?,
            settings: Arc::clone(settings),
            store: SuspendedEntries::new(settings.max_suspended_calls, NO_PEER_LIMIT),
            started: (Instant::now(), epoch),
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            cut: cut.child_token(),
        }))
    }

    /// The maximum number of open server requests per call.
    pub(super) fn max_server_requests(&self) -> usize {
        self.settings.max_server_requests
    }

    /// The maximum number of notifications that wait for the client of a suspended call.
    pub(super) fn max_notifications(&self) -> usize {
        self.settings.notification_buffer
    }

    /// Suspends a call; returns the response that asks for input. At the limit, returns the call.
    pub(super) fn suspend(
        mut call: Box<SuspendableCall>,
    ) -> Result<Response, Box<SuspendableCall>> {
        let all = Arc::clone(&call.suspended_calls);
        if all.cut.is_cancelled() {
            return Err(call);
        }
        if call.entry.is_none() {
            let peer = call.running.context().peer.clone();
            call.entry = all.new_entry(&peer);
        }
        let id = call.entry.as_ref().map(|(id, _)| *id);
        let Some((id, decided)) = id.zip(call.decided.clone()) else {
            return Err(call);
        };
        let (hand_over, resumed) = oneshot::channel();
        let deadline = call.deadline(Instant::now() + all.settings.input_timeout);
        let (method, name, requests) = call.view();
        let waiting = Waiting {
            method,
            name,
            requests,
            since: Instant::now(),
            until: deadline,
            resumable: Some(Resumable { hand_over, decided }),
        };
        let Some(round) = all.store.suspend(&id, waiting) else {
            return Err(call);
        };
        let state = State {
            id,
            round,
            expires: all.millis(deadline),
            digest: call.digest(),
        };
        let Some(state) = all.seal.seal(&state, call.holder()) else {
            return Err(call);
        };
        let requests = call.requests.iter();
        let asked = requests.map(|open| {
            (
                open.key.as_str(),
                &open.request.method,
                open.request.params.as_ref(),
            )
        });
        let response = input::input_required(asked, &state);
        // The request is answered and can no longer be cancelled.
        call.running.cancellation = None;
        // The client may come back with newer credentials.
        let revoked = call
            .running
            .take_revocation()
            .map(|revoked| Box::pin(revoked.cancelled_owned()));
        let counted = SuspendedCount::new(&all.settings.telemetry);
        let ends = Ends {
            deadline,
            cut: all.cut.clone(),
            revoked,
        };
        all.tasks
            .spawn_on(keep(call, resumed, ends, counted), &all.runtime);
        Ok(response)
    }

    /// Finds the call that `retry` continues.
    pub(crate) fn find(&self, retry: Retry<'_>) -> Result<Found, RpcError> {
        if !retry.method.may_need_input() {
            return Ok(Found::Call(Resumption::New));
        }
        let Some(state) = retry.state.and_then(Json::as_str) else {
            return Ok(Found::Call(Resumption::New));
        };
        let state = match self.seal.open(&state, retry.holder) {
            // `open_server_state` has already replaced states that could be another client's.
            Opened::Foreign | Opened::Server(_) => return Ok(Found::Call(Resumption::New)),
            Opened::Forged => {
                return Err(refuse(
                    "is not the one that was given to this client: it has been changed",
                ));
            }
            Opened::Elsewhere(run) => return Ok(Found::Elsewhere(run)),
            Opened::UrlElicitation(state) => {
                self.check(retry, &state.digest, state.expires)?;
                return state
                    .resume(&answers(retry.responses)?, self, retry.holder)
                    .map(Found::Call);
            }
            Opened::Suspended(state) => state,
        };
        self.check(retry, &state.digest, state.expires)?;
        let answers = answers(retry.responses)?;
        Ok(Found::Suspended(Box::new(WaitingCall {
            decided: self.store.decided(&state.id)?,
            state,
            answers,
        })))
    }

    /// Takes the waiting call and gives it the answers.
    pub(crate) async fn resume(
        &self,
        waiting: WaitingCall,
    ) -> Result<Box<SuspendableCall>, RpcError> {
        let WaitingCall { state, answers, .. } = waiting;
        let waiting = self.store.resume(&state.id, state.round)?;
        let Resumable { hand_over, .. } = waiting.resumable.ok_or_else(expired_error)?;
        let (call, handed_over) = oneshot::channel();
        hand_over.send(call).map_err(|_| expired_error())?;
        let mut call = handed_over.await.map_err(|_| expired_error())?;
        call.answer(&answers);
        Ok(call)
    }

    /// The server's state in a retry of `holder`, as the server wrote it; `None` if the state is
    /// Fanlight's own. For unauthenticated clients, states are not sealed: servers see these
    /// clients as one, too.
    pub(crate) fn open_server_state(
        &self,
        state: Option<&Json>,
        holder: &Holder,
    ) -> Result<Option<Json>, RpcError> {
        if holder.principal().is_anonymous() {
            return Ok(None);
        }
        let text = state
            .and_then(Json::as_str)
            .ok_or_else(fault::unknown_state)?;
        match self.seal.open(&text, holder) {
            Opened::Server(state) => Ok(Some(state)),
            Opened::Foreign | Opened::Forged => Err(fault::unknown_state()),
            Opened::Elsewhere(_) | Opened::Suspended(_) | Opened::UrlElicitation(_) => Ok(None),
        }
    }

    /// Seals the server's state in an answer that asks for input, so that only the client `holder`
    /// can use it.
    pub(super) fn sealing_server_state(&self, response: Response, holder: &Holder) -> Response {
        let is_alone = holder.principal().is_anonymous();
        let Some(state) = Some(&response)
            .filter(|_| !is_alone)
            .and_then(InputRequired::from_response)
            .and_then(|it| it.state)
        else {
            return response;
        };
        let result = response.result().unwrap_or_else(Json::empty_object);
        let (place, sealed) = match (
            result.find([REQUEST_STATE]),
            self.seal.seal_server_state(&state, holder),
        ) {
            (Ok([Some(place)]), Some(sealed)) => (place, sealed),
            (Err(_), _) => return unusable("\"requestState\" is there more than once"),
            _ => return unusable("its \"requestState\" could not be sealed"),
        };
        response.with_body(&result.with_indexed(place, &Json::string(&sealed)))
    }

    /// Refuses a retry if its request differs from the state's, or if its state has expired.
    fn check(&self, retry: Retry<'_>, of: &RequestDigest, expires: u64) -> Result<(), RpcError> {
        if *of != request_digest(retry.method, retry.params) {
            return Err(refuse(
                "belongs to another request: repeat the method and params of the first one",
            ));
        }
        if self.millis(Instant::now()) >= expires {
            Err(expired_error())
        } else {
            Ok(())
        }
    }

    /// The seal of this process's states.
    pub(super) fn seal(&self) -> &StateSeal {
        &self.seal
    }

    /// The expiry time of a state made now, in milliseconds since the Unix epoch.
    pub(super) fn expiry(&self) -> u64 {
        self.millis(Instant::now() + self.settings.input_timeout)
    }

    /// The number of suspended calls.
    pub(crate) fn count(&self) -> usize {
        self.store.count()
    }

    /// The suspended calls, for operators.
    pub(crate) fn views(&self) -> Vec<SuspendedCallView> {
        self.store.views()
    }

    /// Waits until no call is suspended.
    pub(crate) async fn all_resumed(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Cancels the suspended calls, and waits for their end.
    pub(crate) async fn end(&self) {
        self.cut.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn new_entry(
        self: &Arc<Self>,
        peer: &Peer,
    ) -> Option<(SuspendedId, Box<dyn Any + Send + Sync>)> {
        let mut id = SuspendedId::default();
        getrandom::fill(&mut id).ok()?;
        let entry = Entry {
            calls: Arc::clone(self),
            id,
        };
        self.store.insert(id, peer).ok()?;
        Some((id, Box::new(entry)))
    }

    /// Milliseconds since the Unix epoch, by the clock of tokio's timers.
    fn millis(&self, at: Instant) -> u64 {
        let (started, epoch) = self.started;
        u64::try_from((epoch + at.saturating_duration_since(started)).as_millis())
            .unwrap_or(u64::MAX)
    }
}

/// The events that end a waiting call.
struct Ends {
    deadline: Instant,
    /// Cancelled when everything ends.
    cut: CancellationToken,
    /// Resolves when the call's identity is revoked; `None` if it cannot be.
    revoked: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Keeps a call until it is resumed or ended.
fn keep(
    mut call: Box<SuspendableCall>,
    resumed: oneshot::Receiver<oneshot::Sender<Box<SuspendableCall>>>,
    Ends {
        deadline,
        cut,
        revoked,
    }: Ends,
    counted: SuspendedCount,
) -> impl Future<Output = ()> + Send {
    async move {
        tokio::select! {
            biased;
            hand_over = resumed => if let Ok(hand_over) = hand_over {
                // An error means that the client has disconnected, which cancels the call.
                let _ = hand_over.send(call);
            },
            () = cut.cancelled() => {}
            () = async { match revoked { Some(revoked) => revoked.await, None => pending().await } } => {
                tracing::debug!("suspended call cancelled: the credentials of its client have been revoked");
            }
            () = sleep_until(deadline) => {
                tracing::debug!("suspended call cancelled: its client brought no input in time");
            }
            () = poll_fn(|cx| call.poll_suspended(cx)) => {}
        }
        drop(counted);
    }
}

/// The error that replaces an unusable answer.
fn unusable(reason: &str) -> Response {
    let message = format!("the server's answer cannot be used: {reason}");
    Response::from_error(&RpcError::new(code::INTERNAL, message))
}

/// The members of `inputResponses`. They must be objects, as all results.
fn answers(responses: Option<&Json>) -> Result<Vec<(String, Json)>, RpcError> {
    let Some(all) = responses else {
        return Ok(Vec::new());
    };
    let invalid = |message: &str| RpcError::new(code::INVALID_PARAMS, message.to_owned());
    if !all.is_object() {
        return Err(invalid("\"inputResponses\" must be an object"));
    }
    let read = |member: fanlight_protocol::json::Member| {
        let (name, result) = (member.name(all), all.slice(member.value));
        match (name, result.is_object()) {
            (Some(name), true) => Ok((name, result)),
            _ => Err(invalid(
                "every member of \"inputResponses\" must be an object",
            )),
        }
    };
    all.members().map(read).collect()
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.calls.store.remove(&self.id);
    }
}

/// There are too many suspended calls, and none may end to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooMany;

/// A call that waits to be resumed.
struct Waiting {
    method: String,
    name: Option<String>,
    requests: Vec<String>,
    since: Instant,
    until: Instant,
    resumable: Option<Resumable>,
}

/// Entries of suspended calls by id: at most `limit`, and `per_peer` per peer (0 for no limit).
struct SuspendedEntries {
    table: Mutex<Table<Peer, SuspendedId, CallEntry>>,
    limit: usize,
    per_peer: usize,
}

#[derive(Default)]
struct CallEntry {
    /// The number of times that the call has been suspended.
    round: u32,
    waiting: Option<Waiting>,
}

impl SuspendedEntries {
    fn new(limit: usize, per_peer: usize) -> Self {
        Self {
            table: Mutex::default(),
            limit,
            per_peer,
        }
    }

    /// Adds an entry for a call of `peer`; returns the call that lost its entry to make room, if
    /// any. At the limit, ends the longest suspended call of the peer with the most, unless that is the
    /// new call's peer.
    fn insert(&self, id: SuspendedId, peer: &Peer) -> Result<Option<SuspendedId>, TooMany> {
        let mut table = self.table.lock();
        let is_full = table.len() >= self.limit;
        let mut fits = self.per_peer == 0 || table.count(peer) < self.per_peer;
        let (mut ended, mut gone) = (None, None);
        if fits && is_full {
            let since = |entry: &CallEntry| Some(entry.waiting.as_ref()?.since);
            let newcomer = table.newcomer(peer, self.limit);
            let lost = newcomer.least(Rule::UNUSED.restrict_to_others(), |call| since(call.value));
            gone = lost.and_then(|lost| table.remove(&lost));
            (ended, fits) = (lost, gone.is_some());
        }
        if fits {
            table.insert(id, peer.clone(), CallEntry::default());
        }
        drop(table);
        // Dropped without the lock: its task then ends the call.
        drop(gone);
        if ended.is_some() {
            tracing::warn!(
                limit = self.limit,
                "suspended call dropped: table full, and its client has the most"
            );
        } else if !fits {
            tracing::warn!(
                limit = self.limit,
                "server request refused: too many suspended calls"
            );
        }
        if fits { Ok(ended) } else { Err(TooMany) }
    }

    /// Marks the call as suspended; returns how often it has been so far. `None` if it has no
    /// entry.
    fn suspend(&self, id: &SuspendedId, new: Waiting) -> Option<u32> {
        self.table.lock().get_mut(id).map(|entry| {
            entry.round += 1;
            entry.waiting = Some(new);
            entry.round
        })
    }

    /// Marks the call as resumed from its suspension number `round`. This succeeds once per round.
    fn resume(&self, id: &SuspendedId, round: u32) -> Result<Waiting, RpcError> {
        match self.table.lock().get_mut(id) {
            Some(entry) if entry.round == round => entry.waiting.take().ok_or_else(replayed),
            Some(_) => Err(replayed()),
            None => Err(expired_error()),
        }
    }

    /// The input of the policy's decision about a call that waits.
    fn decided(&self, id: &SuspendedId) -> Result<Arc<Decided>, RpcError> {
        let table = self.table.lock();
        let waiting = &table.get(id).ok_or_else(expired_error)?.waiting;
        let resumable = waiting.as_ref().and_then(|it| it.resumable.as_ref());
        let decided = resumable.map(|it| Arc::clone(&it.decided));
        decided.ok_or_else(replayed)
    }

    /// Removes a call's entry after its end, and drops it without the lock.
    fn remove(&self, id: &SuspendedId) {
        let gone = self.table.lock().remove(id);
        drop(gone);
    }

    /// The number of suspended calls.
    fn count(&self) -> usize {
        self.table
            .lock()
            .values()
            .filter(|entry| entry.waiting.is_some())
            .count()
    }

    /// The suspended calls, for operators.
    fn views(&self) -> Vec<SuspendedCallView> {
        let now = Instant::now();
        let view = |entry: &CallEntry| {
            let waiting = entry.waiting.as_ref()?;
            Some(SuspendedCallView {
                method: waiting.method.clone(),
                name: waiting.name.clone(),
                requests: waiting.requests.clone(),
                round: entry.round,
                waiting: now.saturating_duration_since(waiting.since),
                left: waiting.until.saturating_duration_since(now),
            })
        };
        self.table.lock().values().filter_map(view).collect()
    }
}

fn refuse(reason: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("\"requestState\" {reason}"))
}

fn expired_error() -> RpcError {
    refuse("has expired: its call has ended; repeat the call without it")
}

/// The error for a state whose call no living replica has.
pub(crate) fn kept_elsewhere() -> RpcError {
    refuse(
        "belongs to a call that ended when the gateway was restarted, or that another of its processes has: repeat the \
         call without it",
    )
}

fn replayed() -> RpcError {
    refuse("has been used already: it is valid for one request")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    /// Suspends a call; returns the call that lost its entry to make room.
    fn suspend(calls: &SuspendedEntries, number: u8, of: u8) -> Result<Option<u8>, TooMany> {
        let id = [number; size_of::<SuspendedId>()];
        let ended = calls.insert(id, &peer(of))?;
        let since = Instant::now() + Duration::from_secs(number.into());
        let waiting = Waiting {
            method: String::new(),
            name: None,
            requests: Vec::new(),
            since,
            until: since,
            resumable: None,
        };
        assert_eq!(calls.suspend(&id, waiting), Some(1));
        Ok(ended.map(|ended| ended[0]))
    }

    fn resume(calls: &SuspendedEntries, number: u8, round: u32) -> Result<(), RpcError> {
        let id = [number; size_of::<SuspendedId>()];
        calls.resume(&id, round).map(drop)
    }

    #[test]
    fn peer_with_most_suspended_calls_loses_its_oldest() {
        let calls = SuspendedEntries::new(3, 0);
        assert_eq!(
            [
                suspend(&calls, 1, 1),
                suspend(&calls, 3, 2),
                suspend(&calls, 2, 2)
            ],
            [Ok(None); 3]
        );
        assert_eq!(suspend(&calls, 4, 2), Err(TooMany), "its own ones stay");
        assert_eq!(suspend(&calls, 5, 3), Ok(Some(2)));
        assert_eq!(suspend(&calls, 6, 3), Err(TooMany), "all have one now");
        assert!(
            resume(&calls, 1, 1).is_ok()
                && resume(&calls, 3, 1).is_ok()
                && resume(&calls, 5, 1).is_ok()
        );
        assert!(resume(&calls, 2, 1).is_err());
    }

    #[test]
    fn suspended_call_is_resumed_once_for_each_round() {
        let calls = SuspendedEntries::new(3, 0);
        suspend(&calls, 1, 1).unwrap();
        assert!(resume(&calls, 1, 2).is_err() && resume(&calls, 1, 1).is_ok());
        assert_eq!(
            resume(&calls, 1, 1).unwrap_err().message,
            replayed().message
        );
        calls.remove(&[1; size_of::<SuspendedId>()]);
        assert_eq!(
            resume(&calls, 1, 1).unwrap_err().message,
            expired_error().message
        );
    }

    #[test]
    fn quota_of_a_peer_bounds_its_suspended_calls() {
        let calls = SuspendedEntries::new(9, 1);
        assert_eq!(suspend(&calls, 1, 1), Ok(None));
        assert_eq!(
            (suspend(&calls, 2, 1), suspend(&calls, 3, 2)),
            (Err(TooMany), Ok(None))
        );
    }
}
