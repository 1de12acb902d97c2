//! The metrics: durations of messages, state, and losses.
//!
//! This registry of our own replaces the SDK's. Recording takes one look-up by a key of small numbers
//! and two atomic additions: there is no vector of labels to allocate and compare. The ranges are
//! fine enough for quantiles. The SDK's histograms cannot be filled from outside, so the SDK would
//! count each message a second time. The number of series is bounded, with an overflow
//! series. One snapshot serves both the Prometheus text and the OTLP export.
//!
//! Every label has a bounded set of values: known methods, known revisions, a closed list of
//! errors, and the names of tools and prompts in lists (limited per server). No label contains a
//! URI, a user, a session id or a request id.

mod backend;
mod durations;
mod family;
mod histogram;
mod known;
pub(crate) mod names;
mod prometheus;
mod timer;
mod tools;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fanlight_protocol::{Method, Revision, epoch};
use opentelemetry_sdk::Resource;
use parking_lot::RwLock;

use crate::error_type::ErrorType;
pub use backend::{BackendMetrics, Direction, MirrorOutcome};
use durations::Durations;
pub use family::{Counts, FAMILIES, Family, FamilyInfo, Labels, Point, Shape, Values, label};
pub use histogram::BOUNDS;
use histogram::{About, Key, Series};
use known::KnownNames;
pub use known::NameKind;
pub use prometheus::prometheus;
pub(crate) use timer::{BACKEND_HTTP, Timer};
pub use timer::{BackendLabels, SessionSide, Side};
use tools::ToolHistory;
pub use tools::{MINUTES, ToolFigures};

/// Limits of the labels of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricLimits {
    /// How many tools, and how many prompts, of a server are labels. All others are `_OTHER`.
    pub names_per_backend: usize,
    /// How many series a histogram has. All further ones are counted together, as
    /// `otel_metric_overflow`.
    pub series: usize,
}

impl Default for MetricLimits {
    fn default() -> Self {
        Self {
            names_per_backend: 100,
            series: 2000,
        }
    }
}

fanlight_protocol::named! {
    /// Why a span was not delivered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DropReason {
        /// A queue was full.
        QueueFull = "queue_full",
        /// The collector did not accept it.
        ExportFailed = "export_failed",
        /// It could not be written to the file or the terminal.
        WriteFailed = "write_failed",
    }
}

/// The state of the configuration.
#[derive(Debug, Default)]
struct ConfigurationMetrics {
    is_usable: AtomicU64,
    read_at: AtomicU64,
    generation: AtomicU64,
}

/// All metrics.
pub struct Metrics {
    server: Series,
    client: Series,
    /// Requests that could not be sent, by error.
    unsent: Series,
    server_sessions: Series,
    client_sessions: Series,
    tools: ToolHistory,
    known: KnownNames,
    backends: RwLock<BTreeMap<Arc<str>, Arc<BackendMetrics>>>,
    active_requests: AtomicI64,
    sessions: AtomicI64,
    suspended_calls: AtomicI64,
    io: [AtomicU64; 2],
    dropped: [AtomicU64; 3],
    dropped_log_lines: Arc<AtomicU64>,
    configuration: ConfigurationMetrics,
    /// The sources of further families, which other parts of the program count.
    sources: RwLock<Vec<Source>>,
    usable: OnceLock<UsableServers>,
}

/// A source of families.
type Source = Box<dyn Fn() -> Vec<Family> + Send + Sync>;

/// Tells the servers and whether each can be used.
type UsableServers = Box<dyn Fn() -> Vec<(String, bool)> + Send + Sync>;

impl Metrics {
    /// Creates metrics that are all zero.
    pub fn new(limits: MetricLimits) -> Self {
        Self {
            server: Series::new(limits.series),
            client: Series::new(limits.series),
            unsent: Series::new(limits.series),
            server_sessions: Series::new(limits.series),
            client_sessions: Series::new(limits.series),
            tools: ToolHistory::default(),
            known: KnownNames::new(limits.names_per_backend),
            backends: RwLock::default(),
            active_requests: AtomicI64::new(0),
            sessions: AtomicI64::new(0),
            suspended_calls: AtomicI64::new(0),
            io: Default::default(),
            dropped: Default::default(),
            dropped_log_lines: Arc::default(),
            configuration: ConfigurationMetrics::default(),
            sources: RwLock::default(),
            usable: OnceLock::new(),
        }
    }

    /// Adds this counter of dropped log lines to the metrics.
    #[must_use]
    pub fn with_dropped_log_lines(self, counter: Arc<AtomicU64>) -> Self {
        Self {
            dropped_log_lines: counter,
            ..self
        }
    }

    /// The counters of the server called `name`, which are created on first use.
    pub fn backend(&self, name: &str) -> Arc<BackendMetrics> {
        let mut backends = self.backends.write();
        let next = u16::try_from(backends.len() + 1).unwrap_or(u16::MAX);
        let name: Arc<str> = Arc::from(name);
        let made = backends
            .entry(Arc::clone(&name))
            .or_insert_with(|| Arc::new(BackendMetrics::new(next, name)));
        Arc::clone(made)
    }

    /// Makes the names in `list` labels of `backend`, or of messages from clients if there is no
    /// `backend`. `names` reads the list. A list that was read recently is not read again.
    pub fn learn(
        &self,
        backend: Option<&BackendMetrics>,
        kind: NameKind,
        list: &[u8],
        names: impl FnOnce() -> Vec<String>,
    ) {
        self.known
            .learn(backend.map_or(0, BackendMetrics::index), kind, list, names);
    }

    /// Counts that a session began (1) or ended (-1).
    pub fn sessions(&self, change: i64) {
        self.sessions.fetch_add(change, Ordering::Relaxed);
    }

    /// Counts a session that has ended, and how long it lasted. `error` is the reason; `None` after
    /// a regular end.
    pub fn session_ended(
        &self,
        side: SessionSide,
        revision: Revision,
        lasted: Duration,
        error: Option<ErrorType>,
    ) {
        let (series, backend, transport, http) = match side {
            SessionSide::Server(network) => (
                &self.server_sessions,
                0,
                network.transport(),
                network.http_version(),
            ),
            SessionSide::Client(labels) => (
                &self.client_sessions,
                labels.index,
                labels.transport,
                labels.http(),
            ),
        };
        let error = error.map(ErrorType::bounded);
        let (revision, transport) = (Some(revision), Some(transport));
        series.record(
            Key {
                backend,
                method: Method::Initialize,
                name: None,
                error,
                revision,
                transport,
                http,
            },
            lasted,
        );
    }

    /// Counts that a call was suspended (1), or that a suspended call was resumed or dropped (-1).
    pub fn suspended_calls(&self, change: i64) {
        self.suspended_calls.fetch_add(change, Ordering::Relaxed);
    }

    /// Counts the bytes of messages from or to clients.
    pub fn client_bytes(&self, direction: Direction, count: u64) {
        add(&self.io, direction as usize, count);
    }

    /// Records that the configuration was read and is valid. Its generation is now in force.
    pub fn configuration_read(&self, generation: u64) {
        let known = &self.configuration;
        known.is_usable.store(1, Ordering::Relaxed);
        known.read_at.store(epoch::seconds(), Ordering::Relaxed);
        known.generation.store(generation, Ordering::Relaxed);
    }

    /// Records that the configuration was read and is invalid. The previous one stays in force.
    pub fn configuration_failed(&self) {
        self.configuration.is_usable.store(0, Ordering::Relaxed);
    }

    /// Hides the counters of the server called `name`, which is no longer configured. They are
    /// visible again when it is configured again.
    pub fn retire_backend(&self, name: &str) {
        let backends = self.backends.read();
        backends
            .get(name)
            .iter()
            .for_each(|backend| backend.set_configured(false));
    }

    /// Counts spans that were not delivered.
    pub fn span_dropped(&self, reason: DropReason, count: u64) {
        add(&self.dropped, reason as usize, count);
    }

    /// How many spans were not delivered for this reason.
    pub fn spans_dropped(&self, reason: DropReason) -> u64 {
        self.dropped
            .get(reason as usize)
            .map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// All metrics in the Prometheus text exposition format 0.0.4.
    pub fn prometheus(&self, resource: &Resource) -> String {
        prometheus::with_target(resource, &self.snapshot())
    }

    /// Adds a source of further families.
    pub fn add(&self, source: impl Fn() -> Vec<Family> + Send + Sync + 'static) {
        let mut sources = self.sources.write();
        sources.push(Box::new(source));
    }

    fn add_active(&self, change: i64) {
        self.active_requests.fetch_add(change, Ordering::Relaxed);
    }

    pub(crate) fn series(&self, side: Side) -> &Series {
        match side {
            Side::Server => &self.server,
            Side::Client => &self.client,
            Side::Unsent => &self.unsent,
        }
    }

    /// The name of the configured backend with this index.
    fn configured_backend(&self, index: u16) -> Option<String> {
        let backends = self.backends.read();
        let backend = backends
            .values()
            .find(|backend| backend.index() == index && backend.is_configured());
        backend.map(|backend| backend.name().to_owned())
    }

    fn known_names(&self) -> &KnownNames {
        &self.known
    }

    /// All metrics at this moment.
    pub fn snapshot(&self) -> Vec<Family> {
        let backends: Vec<Arc<BackendMetrics>> = self.backends.read().values().cloned().collect();
        let named = |index: u16| {
            backends
                .iter()
                .find(|backend| backend.index() == index)
                .map(|one| one.labels())
        };
        let snapshot = |series: &Series, about| series.snapshot(about, &self.known, &named);
        let one = |value: i64| vec![(Vec::new(), Values::Integer(value))];
        let configured = || backends.iter().filter(|backend| backend.is_configured());
        let per_backend = |value: fn(&BackendMetrics) -> i64| {
            configured()
                .map(|b| {
                    (
                        vec![(label::BACKEND, b.name().to_owned())],
                        Values::Integer(value(b)),
                    )
                })
                .collect()
        };
        let load = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let sources = self.sources.read();
        let more = sources.iter().flat_map(|source| source());
        FAMILIES
            .iter()
            .map(|info| {
                let points = match info.name {
                    "mcp.server.operation.duration" => snapshot(&self.server, About::Received),
                    "mcp.client.operation.duration" => snapshot(&self.client, About::Sent),
                    "mcp.server.session.duration" => {
                        snapshot(&self.server_sessions, About::Session)
                    }
                    "mcp.client.session.duration" => {
                        snapshot(&self.client_sessions, About::Session)
                    }
                    "fanlight.requests.active" => one(load(&self.active_requests)),
                    "fanlight.sessions.active" => one(load(&self.sessions)),
                    "fanlight.calls.suspended" => one(load(&self.suspended_calls)),
                    "fanlight.client.io" => directions(None, &self.io),
                    "fanlight.backend.up" => self.usable(),
                    "fanlight.backend.endpoints" => configured()
                        .flat_map(|backend| backend.endpoints())
                        .collect(),
                    "fanlight.backend.restarts" => per_backend(BackendMetrics::restarts),
                    "fanlight.backend.reconnects" => per_backend(BackendMetrics::reconnects),
                    "fanlight.backend.ejections" => per_backend(BackendMetrics::ejections),
                    "fanlight.backend.failed_connections" => {
                        per_backend(BackendMetrics::failed_connections)
                    }
                    "fanlight.backend.stderr.dropped" => per_backend(BackendMetrics::dropped_lines),
                    "fanlight.backend.io" => {
                        configured().flat_map(|backend| backend.bytes()).collect()
                    }
                    "fanlight.backend.mirrored" => {
                        configured().flat_map(|backend| backend.mirror()).collect()
                    }
                    "fanlight.spans.dropped" => self.drops(),
                    "fanlight.log.dropped" => one(total(&self.dropped_log_lines)),
                    "fanlight.config.last_reload_successful" => {
                        one(total(&self.configuration.is_usable))
                    }
                    "fanlight.config.last_reload_success_timestamp" => {
                        one(total(&self.configuration.read_at))
                    }
                    "fanlight.config.generation" => one(total(&self.configuration.generation)),
                    _ => Vec::new(),
                };
                Family { info, points }
            })
            .chain(more)
            .collect()
    }

    /// Sets the source of the servers' states, once. It is read with each snapshot, so the metric
    /// agrees with the states that operators see.
    pub fn read_states(&self, states: impl Fn() -> Vec<(String, bool)> + Send + Sync + 'static) {
        let _ = self.usable.set(Box::new(states));
    }

    fn usable(&self) -> Vec<Point> {
        let states = self.usable.get().map(|states| states()).unwrap_or_default();
        let point = |(name, is_usable): (String, bool)| {
            (
                vec![(label::BACKEND, name)],
                Values::Integer(i64::from(is_usable)),
            )
        };
        states.into_iter().map(point).collect()
    }

    fn drops(&self) -> Vec<Point> {
        let reasons = DropReason::ALL.map(DropReason::as_str);
        points(None, label::REASON, reasons, self.dropped.each_ref())
    }
}

fn total(counter: &AtomicU64) -> i64 {
    i64::try_from(counter.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
}

fn add(counters: &[AtomicU64], at: usize, count: u64) {
    if let Some(counter) = counters.get(at) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

fn directions(server: Option<&str>, io: &[AtomicU64; 2]) -> Vec<Point> {
    let directions = Direction::ALL.map(Direction::as_str);
    points(server, label::DIRECTION, directions, io.each_ref())
}

/// A count for each value of `label`, with the name of the server if there is one.
fn points<const N: usize>(
    server: Option<&str>,
    label: &'static str,
    values: [&str; N],
    counts: [&AtomicU64; N],
) -> Vec<Point> {
    let point = |(value, count): (&str, &AtomicU64)| {
        let server = server.map(|name| (label::BACKEND, name.to_owned()));
        let labels = server.into_iter().chain([(label, value.to_owned())]);
        (labels.collect(), Values::Integer(total(count)))
    };
    values.into_iter().zip(counts).map(point).collect()
}

fanlight_protocol::opaque!(Metrics);

/// Values of `error.type` that do not count as failures of the server: the client gave up, or its
/// user has no credentials for the server.
pub const NO_FAILURE: [&str; 3] = ["abandoned", "cancelled", "no_credentials"];

fn is_failure(error: Option<ErrorType>) -> bool {
    error.is_some_and(|error| !NO_FAILURE.contains(&&*error.as_text()))
}

/// Whether Fanlight itself sends such messages: to connect, to ask whether the server is there, for
/// lists, and to listen.
fn is_own(method: &Method) -> bool {
    use Method::{Discover, Initialize, Listen, Ping};
    method.is_list() || matches!(method, Discover | Initialize | Listen | Ping)
}

/// The figures of one server since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendFigures {
    /// How many messages to the server have ended or could not be sent. Fanlight's own
    /// messages, for lists and to connect, do not count.
    pub requests: u64,
    /// How many of these failed and how many attempts to connect failed. This excludes messages
    /// with an error in [`NO_FAILURE`].
    pub errors: u64,
    /// How many attempts to connect failed.
    pub failed_connections: i64,
    /// The median time between a `tools/call` and its response, without connecting. `None` if no
    /// call was sent.
    pub median: Option<Duration>,
    /// The 95th percentile of this time.
    pub p95: Option<Duration>,
    /// How often the server's process was restarted.
    pub restarts: i64,
    /// How often the server was connected again.
    pub reconnects: i64,
}

impl Metrics {
    /// The figures of the server called `name`.
    pub fn figures(&self, name: &str) -> BackendFigures {
        let backend = self.backend(name);
        let mut figures = BackendFigures {
            restarts: backend.restarts(),
            reconnects: backend.reconnects(),
            failed_connections: backend.failed_connections(),
            ..Default::default()
        };
        let mut calls = Durations::default();
        self.client.for_each(|key, durations| {
            if key.backend != backend.index() {
                return;
            }
            let count = durations.count();
            if is_own(&key.method) {
                return;
            }
            figures.requests += count;
            let given_up = matches!(key.error, Some(ErrorType::Abandoned | ErrorType::Cancelled));
            figures.errors += if is_failure(key.error) { count } else { 0 };
            if key.method == Method::CallTool && !given_up {
                calls.add(&durations);
            }
        });
        self.unsent.for_each(|key, durations| {
            let count = if key.backend == backend.index() && !is_own(&key.method) {
                durations.count()
            } else {
                0
            };
            figures.requests += count;
            figures.errors += if is_failure(key.error) { count } else { 0 };
        });
        figures.errors += u64::try_from(figures.failed_connections).unwrap_or(0);
        figures.median = calls.quantile(0.5);
        figures.p95 = calls.quantile(0.95);
        figures
    }
}

#[cfg(test)]
mod tests;
