//! Histograms by label, each a handful of atomics.
//!
//! Must not know: what is measured.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fanlight_protocol::{Method, Revision};
use foldhash::fast::RandomState;

use super::family::{Labels, Point, Values, label};
use super::known::{Known, NameId};
use crate::error_type::ErrorType;
use crate::message::Transport;
use crate::names::OTHER;

/// Upper bounds of the buckets in seconds, as the conventions for MCP have them.
pub const BOUNDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
const BOUNDS_NANOS: [u64; 14] = [
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    300_000_000_000,
];
/// Series are spread over so many locks, by backend.
const SHARDS: usize = 8;

/// What tells series apart. Small and without allocations: unknown methods have an empty name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) backend: u16,
    pub(crate) method: Method,
    pub(crate) name: Option<NameId>,
    pub(crate) error: Option<ErrorType>,
    pub(crate) revision: Option<Revision>,
    pub(crate) transport: Option<Transport>,
}

/// One series.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

/// A histogram's values at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// The values in each bucket, not cumulative; the last bucket is above all of [`BOUNDS`].
    pub buckets: Vec<u64>,
    /// The sum of all values, in seconds.
    pub sum_seconds: f64,
}

/// All series of one metric.
#[derive(Debug)]
pub(crate) struct Series {
    shards: [RwLock<HashMap<Key, Arc<Histogram>, RandomState>>; SHARDS],
    count: AtomicUsize,
    most: usize,
    overflow: Histogram,
}

impl Series {
    pub(super) fn new(most: usize) -> Self {
        Self { shards: Default::default(), count: AtomicUsize::new(0), most, overflow: Histogram::default() }
    }

    pub(super) fn record(&self, key: Key, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let Some(shard) = self.shards.get(usize::from(key.backend) % SHARDS) else { return };
        if let Some(histogram) = shard.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            histogram.add(nanos);
            return;
        }
        let mut series = shard.write().unwrap_or_else(PoisonError::into_inner);
        if !series.contains_key(&key) && self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.overflow.add(nanos);
            return;
        }
        series.entry(key).or_default().add(nanos);
    }

    pub(super) fn snapshot(&self, known: &Known, backend: &dyn Fn(u16) -> Option<String>) -> Vec<Point> {
        let mut points = Vec::new();
        for shard in &self.shards {
            let series: Vec<(Key, Arc<Histogram>)> = {
                let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
                shard.iter().map(|(key, histogram)| (key.clone(), Arc::clone(histogram))).collect()
            };
            for (key, histogram) in series {
                points.push((labels(&key, known, backend), Values::Histogram(histogram.counts())));
            }
        }
        points.sort_by(|a, b| a.0.cmp(&b.0));
        let overflow = self.overflow.counts();
        if overflow.buckets.iter().any(|count| *count > 0) {
            points.push((vec![(label::OVERFLOW, "true".to_owned())], Values::Histogram(overflow)));
        }
        points
    }
}

impl Histogram {
    fn add(&self, nanos: u64) {
        let bucket = BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn counts(&self) -> Counts {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Counts { buckets, sum_seconds: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)).as_secs_f64() }
    }
}

fn labels(key: &Key, known: &Known, backend: &dyn Fn(u16) -> Option<String>) -> Labels {
    let method = match &key.method {
        Method::Other(_) => OTHER,
        known => known.as_str(),
    };
    let mut out = vec![(label::METHOD, method.to_owned())];
    out.extend(key.name.map(|id| (id.label(), known.text(id))));
    out.extend(key.error.map(|error| (label::ERROR, error.as_text().into_owned())));
    out.extend(key.revision.map(|revision| (label::REVISION, revision.as_str().to_owned())));
    out.extend(key.transport.map(|transport| (label::TRANSPORT, transport.as_str().to_owned())));
    out.extend(backend(key.backend).map(|name| (label::BACKEND, name)));
    out
}
