//! Reading resources: identical reads at the same time are sent once (`flight`), and results that
//! servers call public are served again while their `ttlMs` runs (`kept`).
//!
//! Nothing is shared that could be one client's own: a read joins another only if the server cannot
//! tell the two clients apart, and stops to be shared as soon as the server asks the client
//! something. Only results that say `cacheScope: "public"` are kept, and not if the client was asked
//! for them.
//!
//! Must not know: which backend has a resource, or what clients call it.

mod flight;
mod kept;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fanlight_canonical::{BackendClient, BackendError, Call, ServerMessage, TaskDialect};
use fanlight_protocol::json::{Json, rewrite_object};
use fanlight_protocol::result::{AnyResult, ResultView as _};
use fanlight_protocol::{Response, meta};
use tokio_util::sync::CancellationToken;

use crate::settings::CacheLimits;
use flight::{Flight, Seat};
use kept::Kept;

/// The reads that are going on and those that are kept.
pub(crate) struct Reads {
    flights: Mutex<Flights>,
    kept: Option<Mutex<Kept>>,
    /// For each backend, how many changes of its resources have been heard of.
    changes: Vec<AtomicU64>,
}

#[derive(Default)]
struct Flights {
    /// Each with a number of its own.
    underway: HashMap<FlightKey, (u64, Flight)>,
    begun: u64,
}

/// What two reads must have in common to be sent as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FlightKey {
    backend: usize,
    /// A read that began before a change was announced is not what somebody wants after it.
    changes: u64,
    params: Bytes,
    capabilities: Bytes,
    tasks: Option<TaskDialect>,
}

/// A read of one resource, as far as two of them can be the same.
struct Read {
    backend: usize,
    uri: String,
    /// `params` without what belongs to one hop.
    params: Bytes,
    /// Changes heard of when the read began.
    changes: u64,
}

impl Reads {
    pub(crate) fn new(backends: usize, limits: CacheLimits) -> Arc<Self> {
        let kept = (limits.entries > 0 && limits.bytes > 0).then(|| Mutex::new(Kept::new(limits)));
        let changes = (0..backends).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { flights: Mutex::default(), kept, changes })
    }

    /// Answers a read: with what is kept, with the answer to the same read of somebody else, or by
    /// asking.
    pub(crate) async fn read(
        self: &Arc<Self>,
        backend: usize,
        client: &Arc<dyn BackendClient>,
        call: Call,
    ) -> Result<Response, BackendError> {
        let Some(read) = self.recognise(backend, &call) else { return client.request(call).await };
        if let Some(response) = self.kept().and_then(|mut kept| kept.get(&read)) {
            call.context.trace.cache_hit(true);
            return Ok(response);
        }
        let alone = CancellationToken::new;
        let Some(key) = flight_key(&read, &call) else { return self.ask(&read, client.as_ref(), call, alone()).await };
        let read = Arc::new(read);
        match self.board(key, &read, client, &call) {
            Seat::Leader(flight) => flight.land().await,
            Seat::Follower(flight) => match flight.land().await {
                Some(outcome) => {
                    call.context.trace.cache_hit(true);
                    outcome
                }
                // It was the other client's own after all.
                None => self.ask(&read, client.as_ref(), call, alone()).await,
            },
        }
    }

    /// A backend has announced a change of a resource, named as the backend does.
    pub(crate) fn changed(&self, backend: usize, uri: &str) {
        self.count_change(backend);
        if let Some(mut kept) = self.kept() {
            kept.remove(backend, uri);
        }
    }

    /// A backend's resources may all have changed.
    pub(crate) fn all_changed(&self, backend: usize) {
        self.count_change(backend);
        if let Some(mut kept) = self.kept() {
            kept.remove_all(backend);
        }
    }

    fn count_change(&self, backend: usize) {
        if let Some(changes) = self.changes.get(backend) {
            changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many changes of a backend's resources have been heard of.
    pub(crate) fn changes(&self, backend: usize) -> u64 {
        self.changes.get(backend).map_or(0, |changes| changes.load(Ordering::SeqCst))
    }

    /// `None` for a call whose answer depends on more than its resource: retries with input are
    /// never the same (2026-07-28 server/utilities/caching, Cache Key).
    fn recognise(&self, backend: usize, call: &Call) -> Option<Read> {
        let params = call.params.as_ref()?;
        let [uri, responses, state, own] = params.find(["uri", "inputResponses", "requestState", "_meta"]).ok()?;
        if responses.is_some() || state.is_some() {
            return None;
        }
        let uri = params.slice(uri?).as_str()?.into_owned();
        let params = own.map_or_else(|| params.clone(), |own| without_hop(params, &params.slice(own)));
        Some(Read { backend, uri, params: params.into_bytes(), changes: self.changes(backend) })
    }

    /// Asks the server. `personal` is cancelled as soon as the server asks the client something, or
    /// would have if it could: what it answers then is for that client alone.
    async fn ask(
        &self,
        read: &Read,
        client: &dyn BackendClient,
        mut call: Call,
        personal: CancellationToken,
    ) -> Result<Response, BackendError> {
        let asked = personal.clone();
        call.messages = call.messages.mapped(move |message| {
            if matches!(message, ServerMessage::Request(_) | ServerMessage::Refused(_)) {
                asked.cancel();
            }
            Some(message)
        });
        let outcome = client.request(call).await;
        if let Ok(response) = &outcome
            && !personal.is_cancelled()
            && let Some(mut kept) = self.kept()
            // What was announced meanwhile may not be in it.
            && self.changes(read.backend) == read.changes
        {
            kept.insert(read, response);
        }
        outcome
    }

    /// Joins the flight for `key`, or begins it.
    fn board(self: &Arc<Self>, key: FlightKey, read: &Arc<Read>, client: &Arc<dyn BackendClient>, call: &Call) -> Seat {
        let mut flights = self.flights();
        if let Some(follower) = flights.underway.get(&key).and_then(|(_, flight)| flight.follow()) {
            return Seat::Follower(follower);
        }
        flights.begun += 1;
        let number = flights.begun;
        let departed = Departed { reads: Arc::clone(self), key: key.clone(), number };
        let (reads, read, client, call) = (Arc::clone(self), Arc::clone(read), Arc::clone(client), call.clone());
        let (flight, leader) = Flight::begin(|personal| async move {
            let _departed = departed;
            reads.ask(&read, client.as_ref(), call, personal).await
        });
        flights.underway.insert(key, (number, flight));
        Seat::Leader(leader)
    }

    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> Option<MutexGuard<'_, Kept>> {
        Some(self.kept.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Removes a flight that has landed, or that everybody has left.
struct Departed {
    reads: Arc<Reads>,
    key: FlightKey,
    number: u64,
}

impl Drop for Departed {
    fn drop(&mut self) {
        let mut flights = self.reads.flights();
        // Another may have begun after it became personal, or after everybody had left it.
        if flights.underway.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            flights.underway.remove(&self.key);
        }
    }
}

/// What the server sees of a client during a read; `None` if the client wants something for itself.
fn flight_key(read: &Read, call: &Call) -> Option<FlightKey> {
    let context = &call.context;
    let is_own = context.session().is_some() || context.wants_progress || context.log_level.is_some();
    (!is_own).then(|| FlightKey {
        backend: read.backend,
        changes: read.changes,
        params: read.params.clone(),
        capabilities: context.capabilities.bytes().clone(),
        tasks: context.tasks,
    })
}

fn without_hop(params: &Json, own: &Json) -> Json {
    let is_hop = |member: &fanlight_protocol::json::Member| meta::PER_HOP.iter().any(|key| member.is(own, key));
    if !own.members().any(|member| is_hop(&member)) {
        return params.clone();
    }
    let rest = rewrite_object(own, |member| !is_hop(member), b"");
    let mut added = Vec::new();
    if rest.members().next().is_some() {
        added.extend_from_slice(b"\"_meta\":");
        added.extend_from_slice(rest.bytes());
    }
    rewrite_object(params, |member| !member.is(params, "_meta"), &added)
}

/// Whether an answer is the last word, and not one client's own.
fn is_complete(response: &Response) -> bool {
    let result = response.view::<AnyResult>();
    result.is_some_and(|result| result.result_type().is_none_or(|kind| kind.as_text() == "\"complete\""))
}
