//! The counters of one backend.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::family::{Point, Values, label};

/// The direction of bytes, seen from Fanlight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards Fanlight.
    Receive,
    /// Away from it.
    Transmit,
}

impl Direction {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Transmit => "transmit",
        }
    }
}

/// What became of the copy of a request for a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorOutcome {
    /// The mirror answered the same.
    Same,
    /// It answered something else.
    Different,
    /// It did not answer.
    Failed,
    /// The copy was not sent: too many were on their way, or it was too large.
    Dropped,
}

impl MirrorOutcome {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Same, Self::Different, Self::Failed, Self::Dropped];

    /// Its name for operators.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// A backend as labels name it.
#[derive(Debug)]
pub(super) struct NamedBackend {
    pub(super) name: String,
    pub(super) address: Option<(Arc<str>, u16)>,
}

/// The counters of one backend.
#[derive(Debug)]
pub struct BackendMetrics {
    index: u16,
    name: Arc<str>,
    /// Host and port of a server that is reached over HTTP.
    address: RwLock<Option<(Arc<str>, u16)>>,
    is_configured: AtomicBool,
    up: AtomicBool,
    /// Of one that has several endpoints: those that can be used, and the others.
    endpoints: [AtomicU64; 2],
    restarts: AtomicU64,
    reconnects: AtomicU64,
    ejections: AtomicU64,
    /// Of one that has a mirror: what became of the copies, in the order of [`MirrorOutcome::ALL`].
    mirrored: [AtomicU64; 4],
    failed_connections: AtomicU64,
    dropped_lines: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl BackendMetrics {
    pub(super) fn new(index: u16, name: Arc<str>) -> Self {
        Self {
            index,
            name,
            address: RwLock::default(),
            is_configured: AtomicBool::new(true),
            up: AtomicBool::new(false),
            endpoints: Default::default(),
            restarts: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            mirrored: Default::default(),
            failed_connections: AtomicU64::new(0),
            dropped_lines: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// Counters outside of the registry, where nothing is counted.
    #[must_use]
    pub fn unregistered() -> Self {
        Self::new(u16::MAX, Arc::from(""))
    }

    /// Sets whether the configuration in force has it.
    pub fn set_configured(&self, is_configured: bool) {
        self.is_configured.store(is_configured, Ordering::Relaxed);
    }

    pub(crate) fn set_address(&self, address: Option<(Arc<str>, u16)>) {
        *self.address.write().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// How labels name it.
    pub(super) fn named(&self) -> NamedBackend {
        let address = self
            .address
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        NamedBackend {
            name: self.name.to_string(),
            address,
        }
    }

    pub(super) fn is_configured(&self) -> bool {
        self.is_configured.load(Ordering::Relaxed)
    }

    /// Sets whether it can be used.
    pub fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }

    /// Sets how many of its several endpoints are connected, and how many are not: it can be used while any is.
    pub fn set_endpoints(&self, up: usize, down: usize) {
        self.set_up(up > 0);
        for (count, value) in self.endpoints.iter().zip([up, down]) {
            count.store(value as u64, Ordering::Relaxed);
        }
    }

    /// The number of its endpoints by their state; none of one that has no several.
    pub(super) fn endpoints(&self) -> Vec<Point> {
        let [up, down] = self
            .endpoints
            .each_ref()
            .map(|count| i64::try_from(count.load(Ordering::Relaxed)));
        let states = [
            ("up", up.unwrap_or(i64::MAX)),
            ("down", down.unwrap_or(i64::MAX)),
        ];
        let any = states.iter().any(|(_, count)| *count > 0);
        let point = |(state, count): (&str, i64)| {
            (
                vec![
                    (label::BACKEND, self.name.to_string()),
                    (label::STATE, state.to_owned()),
                ],
                Values::Integer(count),
            )
        };
        if any {
            states.into_iter().map(point).collect()
        } else {
            Vec::new()
        }
    }

    /// Counts a copy of a request for its mirror.
    pub fn mirrored(&self, outcome: MirrorOutcome) {
        if let Some(count) = self.mirrored.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of the copies for its mirror; nothing if it has had none.
    pub(super) fn mirror(&self) -> Vec<Point> {
        let counts = self.mirrored.each_ref().map(count);
        let point = |(outcome, count): (MirrorOutcome, i64)| {
            let labels = vec![
                (label::BACKEND, self.name.to_string()),
                (label::OUTCOME, outcome.as_str().to_owned()),
            ];
            (labels, Values::Integer(count))
        };
        let is_any = counts.iter().any(|count| *count > 0);
        if is_any {
            MirrorOutcome::ALL
                .into_iter()
                .zip(counts)
                .map(point)
                .collect()
        } else {
            Vec::new()
        }
    }

    /// Its process was restarted.
    pub fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// It was reconnected.
    pub fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    /// It was taken out of use: it did not answer a check, or its last calls.
    pub fn ejected(&self) {
        self.ejections.fetch_add(1, Ordering::Relaxed);
    }

    /// An attempt to connect to it failed.
    pub fn connect_failed(&self) {
        self.failed_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// So many lines of its standard error were dropped.
    pub fn lines_dropped(&self, lines: u64) {
        self.dropped_lines.fetch_add(lines, Ordering::Relaxed);
    }

    /// Lines of its standard error that were dropped.
    #[must_use]
    pub fn dropped_lines(&self) -> i64 {
        count(&self.dropped_lines)
    }

    /// Counts bytes of messages from or to it.
    pub fn io(&self, direction: Direction, count: u64) {
        match direction {
            Direction::Receive => &self.received,
            Direction::Transmit => &self.sent,
        }
        .fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_up(&self) -> i64 {
        i64::from(self.up.load(Ordering::Relaxed))
    }

    pub(super) fn restarts(&self) -> i64 {
        count(&self.restarts)
    }

    pub(super) fn reconnects(&self) -> i64 {
        count(&self.reconnects)
    }

    pub(super) fn ejections(&self) -> i64 {
        count(&self.ejections)
    }

    pub(super) fn failed_connections(&self) -> i64 {
        count(&self.failed_connections)
    }

    pub(super) fn bytes(&self) -> Vec<Point> {
        super::directions(&self.received, &self.sent)
            .into_iter()
            .map(|(mut labels, value)| {
                labels.insert(0, (label::BACKEND, self.name.to_string()));
                (labels, value)
            })
            .collect::<Vec<(_, Values)>>()
    }
}

fn count(counter: &AtomicU64) -> i64 {
    i64::try_from(counter.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
}
