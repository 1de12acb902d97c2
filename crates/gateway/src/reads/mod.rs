//! Reads resources. Equal reads at the same time are sent once (`InFlight`). Results that servers
//! call public are served again while their `ttlMs` runs.
//!
//! A read joins another only if both are of one principal and the server cannot tell the two
//! clients apart. Sharing stops as soon as the server sends the client a request.
//!
//! Only results with `cacheScope: "public"` are kept, which any principal may be served (2026-07-28
//! server/utilities/caching). A result is not kept if the server sent the client a request for it.
//! quick_cache chooses which to evict: a client that reads every resource once does not flush the
//! cache. One result is kept per resource, so that an announced change finds it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{
    BackendClient, BackendError, Call, Principal, ServerMessage, TaskDialect,
};
use fanlight_protocol::result::{AnyResult, ResultView as _};
use fanlight_protocol::uri::with_parents;
use fanlight_protocol::{Edits, Json, Response, meta};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::mirror::Mirror;
use crate::topology::{BackendId, Member};

/// The running reads and the kept results.
pub(crate) struct Reads {
    running: Mutex<Running>,
    kept: Option<KeptResults>,
}

#[derive(Default)]
struct Running {
    /// The running reads, each with a number.
    reads: HashMap<ReadKey, (u64, InFlight)>,
    begun: u64,
    /// How many changes of its resources each server has announced.
    changes: HashMap<BackendId, u64>,
}

/// The properties that two reads must share to be sent as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReadKey {
    backend: BackendId,
    principal: Principal,
    /// Included so that a request after an announced change does not join an earlier read.
    changes: u64,
    params: Bytes,
    capabilities: Bytes,
    tasks: Option<TaskDialect>,
}

/// The properties of a read that make two reads equal.
struct Read {
    backend: BackendId,
    uri: String,
    /// `params` without the members that belong to one hop.
    params: Bytes,
    /// How many changes the server had announced when the read began.
    changes: u64,
}

/// A server, and its mirror if it has one.
type Server<'a> = (&'a Arc<dyn BackendClient>, Option<&'a Arc<Mirror>>);

impl Reads {
    pub(crate) fn new(limits: CacheLimits) -> Arc<Self> {
        Arc::new(Self {
            running: Mutex::default(),
            kept: KeptResults::new(limits),
        })
    }

    /// Answers a read with a kept result, with the answer to an equal running read, or by asking
    /// the server.
    pub(crate) async fn read(
        self: &Arc<Self>,
        backend: &Member,
        call: Call,
    ) -> Result<Response, BackendError> {
        // Results of one version of a server are not for clients of another version.
        // An answer to a request with headers for servers is for its client alone.
        let caller = &call.context.caller;
        if backend.canary_of(caller).is_some() || !caller.headers().is_empty() {
            return backend.request(call).await;
        }
        let Some(read) = self.recognise(backend.id, &call) else {
            return backend.request(call).await;
        };
        if let Some(response) = self.kept.as_ref().and_then(|kept| kept.get(&read)) {
            call.context.trace.cache_hit(true);
            return Ok(response);
        }
        let alone = CancellationToken::new;
        let server = (&backend.client, backend.mirror.as_ref());
        let Some(key) = read_key(&read, &call) else {
            return self.ask(&read, server, call, alone()).await;
        };
        let read = Arc::new(read);
        match self.join(key, &read, server, &call) {
            Role::Leader(leader) => leader.wait().await,
            Role::Follower(follower) => match follower.wait().await {
                Some(outcome) => {
                    call.context.trace.cache_hit(true);
                    outcome
                }
                // The answer turned out to be for the other client alone.
                None => self.ask(&read, server, call, alone()).await,
            },
        }
    }

    /// Acts on a server's announcement that a resource has changed, or all of them without `uri`,
    /// the server's own name for the resource.
    pub(crate) fn note_change(&self, backend: BackendId, uri: Option<&str>) {
        *self.running.lock().changes.entry(backend).or_default() += 1;
        self.kept.iter().for_each(|kept| match uri {
            Some(uri) => kept.remove(backend, uri),
            None => kept.remove_all(backend),
        });
    }

    /// How many changes of its resources a server has announced.
    pub(crate) fn changes(&self, backend: BackendId) -> u64 {
        self.running
            .lock()
            .changes
            .get(&backend)
            .copied()
            .unwrap_or_default()
    }

    /// The properties of a read. `None` for a call whose answer depends on more than its resource:
    /// retries with input are never equal (2026-07-28 server/utilities/caching, Cache Key).
    fn recognise(&self, backend: BackendId, call: &Call) -> Option<Read> {
        let params = call.params.as_ref()?;
        let [uri, responses, state, own] = params
            .find(["uri", "inputResponses", "requestState", "_meta"])
            .ok()?;
        if responses.is_some() || state.is_some() {
            return None;
        }
        let uri = params.slice(uri?).to_str()?;
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

    /// Asks the server. Cancels `personal` as soon as the server sends the client a request, or
    /// would have if it could. The answer is then for that client alone.
    async fn ask(
        &self,
        read: &Read,
        (client, mirror): Server<'_>,
        mut call: Call,
        personal: CancellationToken,
    ) -> Result<Response, BackendError> {
        let sent = personal.clone();
        call.messages = call.messages.with_map(move |message| {
            if matches!(
                message,
                ServerMessage::Request(_) | ServerMessage::Refused(_)
            ) {
                sent.cancel();
            }
            Some(message)
        });
        let asked = match mirror {
            Some(mirror) => mirror.request(call),
            None => client.request(call),
        };
        let outcome = asked.await;
        if let Ok(response) = &outcome
            && !personal.is_cancelled()
        {
            self.keep(read, response);
        }
        outcome
    }

    /// Keeps a result, unless the server announced a change after the read began.
    fn keep(&self, read: &Read, response: &Response) {
        let Some(kept) = &self.kept else { return };
        let is_current = || self.changes(read.backend) == read.changes;
        if is_current() {
            kept.insert(read, response);
            // A change announced meanwhile may have been counted before the insertion, and evicted
            // nothing.
            if !is_current() {
                kept.remove(read.backend, &read.uri);
            }
        }
    }

    /// Joins the running read with this key, or begins one.
    fn join(
        self: &Arc<Self>,
        key: ReadKey,
        read: &Arc<Read>,
        (client, mirror): Server<'_>,
        call: &Call,
    ) -> Role {
        let mut running = self.running.lock();
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
        let (reads, read, call) = (Arc::clone(self), Arc::clone(read), call.clone());
        let (client, mirror) = (Arc::clone(client), mirror.cloned());
        let (in_flight, leader): (_, Leader) = InFlight::begin(|personal| async move {
            let _ended = ended;
            let server = (&client, mirror.as_ref());
            reads.ask(&read, server, call, personal).await
        });
        running.reads.insert(key, (number, in_flight));
        Role::Leader(leader)
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
        let mut running = self.reads.running.lock();
        // Another read may have begun after this one became personal or was abandoned.
        if running
            .reads
            .get(&self.key)
            .is_some_and(|(number, _)| *number == self.number)
        {
            running.reads.remove(&self.key);
        }
    }
}

/// The properties of a client that the server sees during a read. `None` if the client wants
/// something for itself.
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
    if meta::PER_HOP.iter().all(|key| own.get(key).is_none()) {
        return params.clone();
    }
    let rest = own.without_members(&meta::PER_HOP);
    match rest.members().next() {
        Some(_) => params.with_member("_meta", &rest),
        None => params.without_members(&["_meta"]),
    }
}

type Outcome = Result<Response, BackendError>;
type SharedRead = Shared<BoxFuture<'static, Outcome>>;

/// A running read that more requests can join.
struct InFlight {
    /// `None` if the read ended at once.
    shared: Option<WeakShared<BoxFuture<'static, Outcome>>>,
    state: State,
}

#[derive(Clone, Default)]
struct State {
    /// Cancelled when the server sent the leader's client a request, so that the answer is for that
    /// client alone.
    personal: CancellationToken,
    /// Set when the leader was cancelled, so that the server's requests stay unanswered.
    is_abandoned: Arc<AtomicBool>,
}

/// A request's part in a shared read.
enum Role {
    Leader(Leader),
    Follower(Follower),
}

/// The request whose call is sent to the server.
struct Leader {
    shared: SharedRead,
    state: State,
    has_ended: bool,
}

/// An equal request that arrived while the leader's call was running.
struct Follower {
    shared: SharedRead,
    state: State,
}

impl InFlight {
    /// Begins `read` with a token. The read cancels the token when its answer is for the leader's
    /// client alone.
    fn begin<F>(read: impl FnOnce(CancellationToken) -> F) -> (Self, Leader)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let state = State::default();
        let shared = read(state.personal.clone()).boxed().shared();
        (
            Self {
                shared: shared.downgrade(),
                state: state.clone(),
            },
            Leader {
                shared,
                state,
                has_ended: false,
            },
        )
    }

    /// Joins the read. `None` if it has ended or is for one client alone.
    fn follow(&self) -> Option<Follower> {
        // In this order: dropping the upgraded future could drop the last reference to the read,
        // which takes the lock that callers hold.
        if self.state.personal.is_cancelled() {
            return None;
        }
        Some(Follower {
            shared: self.shared.as_ref()?.upgrade()?,
            state: self.state.clone(),
        })
    }
}

impl Leader {
    async fn wait(mut self) -> Outcome {
        let outcome = self.shared.clone().await;
        self.has_ended = true;
        outcome
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.state
            .is_abandoned
            .fetch_or(!self.has_ended, Ordering::Relaxed);
    }
}

impl Follower {
    /// The outcome, unless it is for the leader's client alone.
    async fn wait(self) -> Option<Outcome> {
        let outcome = tokio::select! {
            biased;
            () = self.state.personal.cancelled() => return None,
            outcome = self.shared => outcome,
        };
        match &outcome {
            // The server may have failed because its own request stayed unanswered.
            Ok(response) if response.is_error() => {
                (!self.state.is_abandoned.load(Ordering::Relaxed)).then_some(outcome)
            }
            Ok(response) => response.is_complete().then_some(outcome),
            Err(_) => Some(outcome),
        }
    }
}

/// The memory of an entry besides its texts, in bytes.
const OVERHEAD: usize = 256;

/// Limits for results that are kept to be served again. If `entries` or `bytes` is 0, none are
/// kept.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// The most results that are kept.
    pub entries: usize,
    /// The most bytes of all results together.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self {
            entries: 1000,
            bytes: 16 << 20,
        }
    }
}

/// The longest time that a result is kept, even if its `ttlMs` is longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The results that any principal may be served.
struct KeptResults {
    cache: Mutex<Cache<Key, Entry, Weight>>,
    capacity: u64,
}

type Key = (BackendId, Arc<str>);

#[derive(Clone)]
struct Entry {
    params: Bytes,
    response: Response,
    expires: Instant,
}

/// An entry's weight. It is at least an equal share of all bytes, which limits the number of
/// entries too.
#[derive(Clone)]
struct Weight {
    least: u64,
}

impl Weighter<Key, Entry> for Weight {
    fn weight(&self, (_, uri): &Key, entry: &Entry) -> u64 {
        let bytes = OVERHEAD + uri.len() + entry.params.len() + entry.response.size();
        (bytes as u64).max(self.least)
    }
}

impl KeptResults {
    /// Returns `None` if the limits permit no results.
    fn new(limits: CacheLimits) -> Option<Self> {
        if limits.entries == 0 || limits.bytes == 0 {
            return None;
        }
        let capacity = limits.bytes as u64;
        let least = capacity.div_ceil(limits.entries.max(1) as u64);
        let cache = Cache::with_weighter(limits.entries, capacity, Weight { least });
        Some(Self {
            cache: Mutex::new(cache),
            capacity,
        })
    }

    /// The result of an equal read, with its remaining `ttlMs`.
    fn get(&self, read: &Read) -> Option<Response> {
        let key = (read.backend, Arc::from(read.uri.as_str()));
        let mut cache = self.cache.lock();
        let entry = cache
            .get(&key)
            .filter(|entry| entry.params == read.params)?;
        let left = i64::try_from(
            entry
                .expires
                .saturating_duration_since(Instant::now())
                .as_millis(),
        )
        .ok();
        let response = left
            .filter(|left| *left > 0)
            .and_then(|left| with_ttl(&entry.response, left));
        if response.is_none() {
            cache.remove(&key);
        }
        response
    }

    /// Stores a result if the server permits that for some time and for any principal.
    fn insert(&self, read: &Read, response: &Response) {
        let Some(ttl) = public_ttl(response) else {
            return;
        };
        let bytes = OVERHEAD + read.uri.len() + read.params.len() + response.size();
        if u64::try_from(bytes).is_ok_and(|bytes| bytes > self.capacity) {
            return;
        }
        let Some(expires) = Instant::now().checked_add(ttl.min(LONGEST)) else {
            return;
        };
        // Detached, because otherwise the whole receive buffer would stay in memory.
        let entry = Entry {
            params: Bytes::copy_from_slice(&read.params),
            response: response.detached(),
            expires,
        };
        self.cache
            .lock()
            .insert((read.backend, Arc::from(read.uri.as_str())), entry);
    }

    /// Drops the results of a resource and of the resources that contain it. An updated resource
    /// may be part of the one subscribed to (2026-07-28 schema, `ResourceUpdatedNotification`).
    fn remove(&self, backend: BackendId, uri: &str) {
        let mut cache = self.cache.lock();
        for uri in with_parents(uri) {
            cache.remove(&(backend, Arc::from(uri)));
        }
    }

    /// Drops all results of a server.
    fn remove_all(&self, backend: BackendId) {
        self.cache.lock().retain(|(of, _), _| *of != backend);
    }
}

fn public_ttl(response: &Response) -> Option<Duration> {
    let result = response
        .view::<AnyResult>()
        .filter(|_| response.is_complete())?;
    let is_public = result
        .cache_scope()
        .is_some_and(|scope| scope.as_text() == "\"public\"");
    let ttl = result
        .ttl_ms()
        .and_then(|ttl| u64::try_from(ttl.as_i64()?).ok())
        .filter(|ttl| *ttl > 0);
    ttl.filter(|_| is_public).map(Duration::from_millis)
}

/// The response with a `ttlMs` of `left`, so that a client keeps it no longer than the server
/// permits.
fn with_ttl(response: &Response, left: i64) -> Option<Response> {
    with_member(response, "ttlMs", &left.to_string())
}

/// The response with another value of a member that its result has.
pub(crate) fn with_member(response: &Response, member: &str, value: &str) -> Option<Response> {
    let body = response.body();
    let place = body.place(member)?;
    let mut edits = Edits::new(body.bytes().clone());
    edits.replace(place, value.to_owned().into_bytes());
    let body: Json = edits.finish_json();
    Some(response.with_body(&body))
}
