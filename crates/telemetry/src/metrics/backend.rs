//! The counters of one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::family::{Point, label};
use super::{add, directions, points, total};

fanlight_protocol::named! {
    /// The direction of bytes, seen from Fanlight.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Direction {
        /// Bytes to Fanlight.
        Receive = "receive",
        /// Bytes from Fanlight.
        Transmit = "transmit",
    }
}

fanlight_protocol::named! {
    /// The result of a copied request that went to a mirror.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MirrorOutcome {
        /// The mirror gave the same answer.
        Same = "same",
        /// The mirror gave a different answer.
        Different = "different",
        /// The mirror did not answer.
        Failed = "failed",
        /// The copy was not sent, because too many copies were under way or because it was too large.
        Dropped = "dropped",
    }
}

/// The values of the labels that name a server.
#[derive(Debug)]
pub(super) struct NamedBackend {
    pub(super) name: String,
    pub(super) address: Option<(Arc<str>, u16)>,
}

/// The counters of one server.
#[derive(Debug, Default)]
pub struct BackendMetrics {
    index: u16,
    name: Arc<str>,
    /// Host and port of a server that is reached over HTTP.
    address: RwLock<Option<(Arc<str>, u16)>>,
    is_configured: AtomicBool,
    /// How many endpoints can be used and how many cannot, of a server with several endpoints.
    endpoints: [AtomicU64; 2],
    restarts: AtomicU64,
    reconnects: AtomicU64,
    ejections: AtomicU64,
    /// How often each result of [`MirrorOutcome::ALL`] occurred, of a server with a mirror.
    mirrored: [AtomicU64; 4],
    failed_connections: AtomicU64,
    dropped_lines: AtomicU64,
    io: [AtomicU64; 2],
}

impl BackendMetrics {
    pub(super) fn new(index: u16, name: Arc<str>) -> Self {
        Self {
            index,
            name,
            is_configured: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// Counters outside of the registry, for use where nothing is counted.
    pub fn unregistered() -> Self {
        Self::new(u16::MAX, Arc::from(""))
    }

    /// Sets whether the current configuration has the server.
    pub fn set_configured(&self, is_configured: bool) {
        self.is_configured.store(is_configured, Ordering::Relaxed);
    }

    pub(crate) fn set_address(&self, address: Option<(Arc<str>, u16)>) {
        *self.address.write() = address;
    }

    /// The labels that name the server.
    pub(super) fn labels(&self) -> NamedBackend {
        let address = self.address.read().clone();
        NamedBackend {
            name: self.name.to_string(),
            address,
        }
    }

    pub(super) fn is_configured(&self) -> bool {
        self.is_configured.load(Ordering::Relaxed)
    }

    /// Sets how many of the server's endpoints are connected, and how many are not.
    pub fn set_endpoints(&self, up: usize, down: usize) {
        for (count, value) in self.endpoints.iter().zip([up, down]) {
            count.store(value as u64, Ordering::Relaxed);
        }
    }

    /// How many endpoints are in each state. Empty unless the server has several endpoints.
    pub(super) fn endpoints(&self) -> Vec<Point> {
        self.counted_by(label::STATE, ["up", "down"], &self.endpoints)
    }

    /// A count for each value of a label. Empty if all counts are zero.
    fn counted_by<const N: usize>(
        &self,
        label: &'static str,
        values: [&str; N],
        counts: &[AtomicU64; N],
    ) -> Vec<Point> {
        let points = points(Some(&self.name), label, values, counts.each_ref());
        let is_any = counts.iter().any(|count| total(count) > 0);
        if is_any { points } else { Vec::new() }
    }

    /// Counts a copy of a request for its mirror.
    pub fn count_mirrored(&self, outcome: MirrorOutcome) {
        add(&self.mirrored, outcome as usize, 1);
    }

    /// How often each result occurred for copies to the mirror. Empty if the server has had no
    /// copies.
    pub(super) fn mirror(&self) -> Vec<Point> {
        let outcomes = MirrorOutcome::ALL.map(MirrorOutcome::as_str);
        self.counted_by(label::OUTCOME, outcomes, &self.mirrored)
    }

    /// Counts a restart of the server's process.
    pub fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that the server was connected again.
    pub fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that Fanlight stopped using the server, because the server did not answer a check or
    /// its last calls.
    pub fn count_ejection(&self) {
        self.ejections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt to connect to the server that failed.
    pub fn connect_failed(&self) {
        self.failed_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts dropped lines of the server's standard error.
    pub fn lines_dropped(&self, lines: u64) {
        self.dropped_lines.fetch_add(lines, Ordering::Relaxed);
    }

    /// How many lines of the server's standard error were dropped.
    pub fn dropped_lines(&self) -> i64 {
        total(&self.dropped_lines)
    }

    /// Counts the bytes of messages from or to the server.
    pub fn io(&self, direction: Direction, count: u64) {
        add(&self.io, direction as usize, count);
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn restarts(&self) -> i64 {
        total(&self.restarts)
    }

    pub(super) fn reconnects(&self) -> i64 {
        total(&self.reconnects)
    }

    pub(super) fn ejections(&self) -> i64 {
        total(&self.ejections)
    }

    pub(super) fn failed_connections(&self) -> i64 {
        total(&self.failed_connections)
    }

    pub(super) fn bytes(&self) -> Vec<Point> {
        directions(Some(&self.name), &self.io)
    }
}
