//! Reading resources: equal reads at the same time are sent once (`in_flight`), and results that
//! servers call public are served again while their `ttlMs` runs (`kept`).
//!
//! A read joins another only if both are of one principal and the server cannot tell the two clients
//! apart, and stops to be shared as soon as the server sends the client a request. Only results with
//! `cacheScope: "public"` are kept, which may be served to any principal (2026-07-28
//! server/utilities/caching), and not if the client was sent a request for them.

mod in_flight;
mod kept;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fanlight_canonical::{
    BackendClient, BackendError, Call, Principal, ServerMessage, TaskDialect,
};
use fanlight_protocol::json::{Json, rewrite_object};
use fanlight_protocol::{Response, meta};
use tokio_util::sync::CancellationToken;

use crate::topology::{BackendId, Member};
use in_flight::{InFlight, Leader, Role};
pub use kept::CacheLimits;
use kept::{KeptResults, MemoryResults};

/// The reads that are running and the results that are kept.
pub(crate) struct Reads {
    running: Mutex<Running>,
    kept: Option<Box<dyn KeptResults>>,
}

#[derive(Default)]
struct Running {
    /// Each with a number of its own.
    reads: HashMap<ReadKey, (u64, InFlight)>,
    begun: u64,
    /// How many changes of its resources each backend has announced.
    changes: HashMap<BackendId, u64>,
}

/// What two reads must have in common to be sent as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReadKey {
    backend: BackendId,
    principal: Principal,
    /// A request after an announced change must not join a read that began before.
    changes: u64,
    params: Bytes,
    capabilities: Bytes,
    tasks: Option<TaskDialect>,
}

/// A read of one resource, as far as two of them can be equal.
struct Read {
    backend: BackendId,
    uri: String,
    /// `params` without what belongs to one hop.
    params: Bytes,
    /// Changes announced when the read began.
    changes: u64,
}

impl Reads {
    pub(crate) fn new(limits: CacheLimits) -> Arc<Self> {
        let kept = MemoryResults::new(limits).map(|kept| Box::new(kept) as Box<dyn KeptResults>);
        Arc::new(Self {
            running: Mutex::default(),
            kept,
        })
    }

    /// Answers a read: with a kept result, with the answer to an equal read that is running, or by
    /// asking the backend.
    pub(crate) async fn read(
        self: &Arc<Self>,
        backend: &Member,
        call: Call,
    ) -> Result<Response, BackendError> {
        let client = &backend.client;
        // What one version of a server has said is not for the clients of another.
        if backend.canary_of(&call.context.caller).is_some() {
            return client.request(call).await;
        }
        let Some(read) = self.recognise(backend.id, &call) else {
            return client.request(call).await;
        };
        if let Some(response) = self.kept.as_ref().and_then(|kept| kept.get(&read)) {
            call.context.trace.cache_hit(true);
            return Ok(response);
        }
        let alone = CancellationToken::new;
        let Some(key) = read_key(&read, &call) else {
            return self.ask(&read, client.as_ref(), call, alone()).await;
        };
        let read = Arc::new(read);
        match self.join(key, &read, client, &call) {
            Role::Leader(leader) => leader.wait().await,
            Role::Follower(follower) => match follower.wait().await {
                Some(outcome) => {
                    call.context.trace.cache_hit(true);
                    outcome
                }
                // The answer turned out to be for the other client alone.
                None => self.ask(&read, client.as_ref(), call, alone()).await,
            },
        }
    }

    /// A backend has announced a change of a resource, by its own name.
    pub(crate) fn changed(&self, backend: BackendId, uri: &str) {
        self.count_change(backend);
        self.kept.iter().for_each(|kept| kept.remove(backend, uri));
    }

    /// All of a backend's resources may have changed.
    pub(crate) fn all_changed(&self, backend: BackendId) {
        self.count_change(backend);
        self.kept.iter().for_each(|kept| kept.remove_all(backend));
    }

    fn count_change(&self, backend: BackendId) {
        *self.running().changes.entry(backend).or_default() += 1;
    }

    /// How many changes of its resources a backend has announced.
    pub(crate) fn changes(&self, backend: BackendId) -> u64 {
        self.running()
            .changes
            .get(&backend)
            .copied()
            .unwrap_or_default()
    }

    /// `None` for a call whose answer depends on more than its resource: retries with input are
    /// never equal (2026-07-28 server/utilities/caching, Cache Key).
    fn recognise(&self, backend: BackendId, call: &Call) -> Option<Read> {
        let params = call.params.as_ref()?;
        let [uri, responses, state, own] = params
            .find(["uri", "inputResponses", "requestState", "_meta"])
            .ok()?;
        if responses.is_some() || state.is_some() {
            return None;
        }
        let uri = params.slice(uri?).as_str()?.into_owned();
        let params = own.map_or_else(
            || params.clone(),
            |own| without_hop(params, &params.slice(own)),
        );
        Some(Read {
            backend,
            uri,
            params: params.into_bytes(),
            changes: self.changes(backend),
        })
    }

    /// Asks the server. `personal` is cancelled as soon as the server sends the client a request, or
    /// would have if it could: its answer is then for that client alone.
    async fn ask(
        &self,
        read: &Read,
        client: &dyn BackendClient,
        mut call: Call,
        personal: CancellationToken,
    ) -> Result<Response, BackendError> {
        let sent = personal.clone();
        call.messages = call.messages.mapped(move |message| {
            if matches!(
                message,
                ServerMessage::Request(_) | ServerMessage::Refused(_)
            ) {
                sent.cancel();
            }
            Some(message)
        });
        let outcome = client.request(call).await;
        if let Ok(response) = &outcome
            && !personal.is_cancelled()
        {
            self.keep(read, response);
        }
        outcome
    }

    /// Keeps a result, unless a change was announced since the read began, which it may not include.
    fn keep(&self, read: &Read, response: &Response) {
        let Some(kept) = &self.kept else { return };
        let is_current = || self.changes(read.backend) == read.changes;
        if is_current() {
            kept.insert(read, response);
            // One announced meanwhile may have been counted before the insertion, and evicted nothing.
            if !is_current() {
                kept.remove(read.backend, &read.uri);
            }
        }
    }

    /// Joins the running read with this key, or begins it.
    fn join(
        self: &Arc<Self>,
        key: ReadKey,
        read: &Arc<Read>,
        client: &Arc<dyn BackendClient>,
        call: &Call,
    ) -> Role {
        let mut running = self.running();
        if let Some(follower) = running.reads.get(&key).and_then(|(_, read)| read.follow()) {
            return Role::Follower(follower);
        }
        running.begun += 1;
        let number = running.begun;
        let ended = Ended {
            reads: Arc::clone(self),
            key: key.clone(),
            number,
        };
        let (reads, read, client, call) = (
            Arc::clone(self),
            Arc::clone(read),
            Arc::clone(client),
            call.clone(),
        );
        let (in_flight, leader): (_, Leader) = InFlight::begin(|personal| async move {
            let _ended = ended;
            reads.ask(&read, client.as_ref(), call, personal).await
        });
        running.reads.insert(key, (number, in_flight));
        Role::Leader(leader)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a read that has ended, or that all its clients have abandoned.
struct Ended {
    reads: Arc<Reads>,
    key: ReadKey,
    number: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut running = self.reads.running();
        // Another may have begun since: after this became personal, or was abandoned.
        if running
            .reads
            .get(&self.key)
            .is_some_and(|(number, _)| *number == self.number)
        {
            running.reads.remove(&self.key);
        }
    }
}

/// What the server sees of a client during a read; `None` if the client wants something for itself.
fn read_key(read: &Read, call: &Call) -> Option<ReadKey> {
    let context = &call.context;
    let is_own =
        context.session().is_some() || context.wants_progress || context.log_level.is_some();
    (!is_own).then(|| ReadKey {
        backend: read.backend,
        principal: context.caller.principal().clone(),
        changes: read.changes,
        params: read.params.clone(),
        capabilities: context.capabilities.bytes().clone(),
        tasks: context.tasks,
    })
}

fn without_hop(params: &Json, own: &Json) -> Json {
    let is_hop = |member: &fanlight_protocol::json::Member| {
        meta::PER_HOP.iter().any(|key| member.is(own, key))
    };
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
