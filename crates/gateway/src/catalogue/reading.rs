//! Reads one server's part of a list, once for all requests that wait for it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_canonical::{BackendClient, BackendState, CallContext, Outcome, Parent};
use fanlight_protocol::Json;
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::load::{KeptPages, covers};
use super::part::{Loaded, Running};
use super::starting::Wait;
use super::{Catalogue, ListKind, load};
use crate::list_kind::{KeptList, ListStore};
use crate::topology::{BackendId, ListLimits, Topology};

/// How long the last complete list of a server is served after the list could not be read again.
const STALE_LISTS: Duration = Duration::from_secs(600);

impl Catalogue {
    /// Reads one part, or joins a running reading. The result includes at least `need` changes and
    /// has waited at least as long as `wait` for a server that is starting. Returns whether it
    /// began a reading, which then belongs to `trace`.
    pub(super) async fn read(
        self: &Arc<Self>,
        topology: &Topology,
        backend: BackendId,
        need: u64,
        wait: Wait,
        trace: &Parent,
    ) -> bool {
        let Some(member) = topology.get(backend) else {
            return false;
        };
        let mut began = false;
        // If the running reading is not enough, the next one is: it begins later and waits longer.
        for _ in 0..2 {
            let (reflects, waited, done) = self.with_state(|state| {
                let part = state.part(backend);
                let (number, is_untouched) = (part.readings + 1, part.is_untouched());
                let may_use_kept = is_untouched && may_serve_kept(topology, backend);
                let running = part.running.get_or_insert_with(|| {
                    (part.readings, began) = (number, true);
                    let (reflects, changes) = (part.announced, part.changes);
                    let begun = Begun {
                        backend,
                        number,
                        reflects,
                        changes,
                        may_use_kept,
                        wait,
                    };
                    // A principal's own list is never kept on disk.
                    let store = member.store.clone().filter(|_| self.own.is_none());
                    let client = member.client_for(self.own.as_ref().map(|own| &own.reader));
                    let source = Source {
                        client: Arc::clone(client),
                        store,
                    };
                    self.begin_reading(begun, source, topology.limits, trace.clone())
                });
                (running.reflects, running.wait, running.done.clone())
            });
            done.await;
            let gave_up = wait == Wait::Whole && waited == Wait::Brief && self.is_starting(backend);
            if reflects >= need && !gave_up {
                break;
            }
        }
        began
    }

    /// Whether the last reading gave up before the server had started.
    fn is_starting(&self, backend: BackendId) -> bool {
        self.with_state(|state| {
            state
                .part(backend)
                .loaded
                .as_ref()
                .is_some_and(Loaded::is_of_start)
        })
    }

    /// Reads and merges a part that no request waits for.
    pub(super) fn read_in_background(
        self: &Arc<Self>,
        topology: &Arc<Topology>,
        backend: BackendId,
        need: u64,
    ) {
        if self.with_state(|state| state.part(backend).running.is_some()) {
            return;
        }
        let (catalogue, topology) = (Arc::clone(self), Arc::clone(topology));
        drop(self.background.spawn(async move {
            catalogue
                .read(&topology, backend, need, Wait::Whole, &Parent::default())
                .await;
            drop(catalogue.merge(&topology));
        }));
    }

    /// Reads a part at `time`, when its stale list becomes too old, so that clients are notified of
    /// the loss.
    fn read_at(self: &Arc<Self>, time: Instant, backend: BackendId) {
        let catalogue = Arc::downgrade(self);
        drop(self.background.spawn(async move {
            sleep_until(time).await;
            let Some(catalogue) = catalogue.upgrade() else {
                return;
            };
            let topology = catalogue.topology.load();
            let need = catalogue.with_state(|state| {
                let part = state.parts.get_mut(&backend)?;
                part.is_expiring = false;
                let need = part.is_stale().then_some(part.announced)?;
                match &catalogue.own {
                    None => Some(need),
                    // A principal's list is read only when the principal asks for it.
                    Some(_) => {
                        part.loaded = None;
                        state.version += 1;
                        None
                    }
                }
            });
            if let Some(need) = need.filter(|_| topology.get(backend).is_some()) {
                catalogue.read_in_background(&topology, backend, need);
            }
        }));
    }

    /// Starts a reading in a task of its own, so that it survives the request that began it. It
    /// takes at most the time allowed for a list.
    fn begin_reading(
        self: &Arc<Self>,
        begun: Begun,
        source: Source,
        limits: ListLimits,
        trace: Parent,
    ) -> Running {
        let Begun {
            backend,
            number,
            reflects,
            changes,
            may_use_kept,
            wait,
        } = begun;
        let (reader, catalogue) = (Arc::clone(self), Arc::clone(self));
        let reading = trace.clone().scope(async move {
            let began = Instant::now();
            let kept = if may_use_kept {
                reader.load_kept(&source, &limits, &trace).await
            } else {
                None
            };
            let mut loaded = match kept {
                Some(kept) => kept,
                None => {
                    let declared = reader.capabilities.current();
                    reader
                        .load((&*source.client, None), wait, &limits, declared, &trace)
                        .await
                }
            };
            let expires = reader.with_state(|state| {
                state.last_read = Some(Instant::now());
                let part = state.part(backend);
                let was_announced = part.reflects < reflects;
                part.learn_needs(reader.kind, &mut loaded, changes);
                source.keep(reader.kind, &loaded);
                if reader.own.is_none() && loaded.contribution.outcome == Outcome::Ok {
                    reader
                        .announcer
                        .demand
                        .read(backend, reader.kind, loaded.has_time());
                }
                let is_new = part.store(loaded, reflects, STALE_LISTS, began.elapsed());
                let expires = part.expire(STALE_LISTS);
                state.version += u64::from(is_new);
                state.read_announced |= is_new && was_announced;
                expires
            });
            if let Some(expires) = expires {
                reader.read_at(expires, backend);
            }
        });
        let task = self.background.spawn(reading);
        let done = async move {
            if !matches!(task.await, Ok(Some(()))) {
                // The gateway is ending, or the reading panicked. The next request reads again.
                catalogue.with_state(|state| {
                    state
                        .part(backend)
                        .running
                        .take_if(|running| running.number == number)
                });
            }
        };
        Running {
            number,
            reflects,
            wait,
            may_use_kept,
            done: done.boxed().shared(),
        }
    }
}

impl Catalogue {
    async fn load(
        &self,
        source: (&dyn BackendClient, Option<&KeptPages>),
        wait: Wait,
        limits: &ListLimits,
        declared: Json,
        trace: &Parent,
    ) -> Loaded {
        let context = match &self.own {
            None => CallContext::for_lists_with(declared, trace),
            Some(own) => CallContext::for_lists_of(own.reader.principal(), declared, trace),
        };
        load::read_server(self.kind, source, wait, limits, self.reserve(), context).await
    }

    /// The list kept from an earlier run, if it can be used.
    async fn load_kept(
        &self,
        source: &Source,
        limits: &ListLimits,
        trace: &Parent,
    ) -> Option<Loaded> {
        let KeptList {
            pages,
            declared,
            read,
        } = source.store.as_ref()?.load(self.kind)?;
        if !covers(&declared, &self.capabilities.current()) {
            return None;
        }
        let (client, kept) = (&*source.client, KeptPages(pages));
        let loaded = self
            .load((client, Some(&kept)), Wait::Whole, limits, declared, trace)
            .await;
        if loaded.contribution.outcome != Outcome::Ok {
            let (backend, list, reason) = (
                source.client.name(),
                self.kind.member(),
                &loaded.contribution.reason,
            );
            warn!(backend, list, reason, "kept list ignored: it is not usable");
            return None;
        }
        // How much of the server's `ttlMs` remains is unknown.
        Some(Loaded {
            kept_since: Some(read),
            expires: None,
            ..loaded
        })
    }
}

/// The client that a list is read from, and the store that keeps it.
struct Source {
    client: Arc<dyn BackendClient>,
    store: Option<Arc<dyn ListStore>>,
}

impl Source {
    /// Keeps a list that the server itself gave. A list with entries that need an extension is not
    /// kept, because the store does not record which entries these are.
    fn keep(&self, kind: ListKind, loaded: &Loaded) {
        let Some(store) = self.store.as_ref().filter(|_| loaded.kept_since.is_none()) else {
            return;
        };
        let Loaded {
            contribution,
            declared,
            needs,
            ..
        } = loaded;
        if contribution.outcome != Outcome::Ok {
            return;
        }
        let list = || KeptList {
            pages: contribution.results.clone(),
            declared: declared.clone(),
            read: SystemTime::now(),
        };
        store.keep(kind, needs.is_empty().then(list));
    }
}

/// The state in which a reading began.
struct Begun {
    backend: BackendId,
    number: u64,
    /// The value of `announced`.
    reflects: u64,
    /// The number of changes that the server itself had announced.
    changes: u64,
    /// Whether a list of an earlier run may be used instead.
    may_use_kept: bool,
    wait: Wait,
}

/// Whether a list of an earlier run may be served: the server has a store, and it rests or is still
/// connecting.
fn may_serve_kept(topology: &Topology, backend: BackendId) -> bool {
    let keeping = topology
        .get(backend)
        .filter(|member| member.store.is_some());
    keeping.is_some_and(|member| {
        matches!(
            member.client.status().state,
            BackendState::Idle | BackendState::Connecting
        )
    })
}
