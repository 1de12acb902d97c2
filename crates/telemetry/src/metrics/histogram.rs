//! Histograms by label. Each consists of a few atomic numbers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_protocol::{Method, Revision};
use foldhash::fast::RandomState;
use parking_lot::RwLock;

use super::backend::NamedBackend;
use super::durations::{Durations, LIMITS, RANGES, range_of};
use super::family::{Counts, Labels, Point, Values, label};
use super::known::{KnownNames, NameId};
use crate::error_type::ErrorType;
use crate::message::Transport;
use crate::names::OTHER;

/// The upper bounds of the buckets in seconds (conventions for MCP).
pub const BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
/// The labels of a series. They need no allocation: unknown methods have an empty name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) backend: u16,
    pub(crate) method: Method,
    pub(crate) name: Option<NameId>,
    pub(crate) error: Option<ErrorType>,
    pub(crate) revision: Option<Revision>,
    pub(crate) transport: Option<Transport>,
    /// The version of HTTP. `None` over other transports, or while it is unknown.
    pub(crate) http: Option<&'static str>,
}

/// The messages or sessions that a metric counts, which decides about its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Received,
    Sent,
    Session,
}

/// One series.
#[derive(Debug)]
struct Histogram {
    ranges: [AtomicU64; RANGES],
    sum_nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            ranges: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_nanos: AtomicU64::new(0),
        }
    }
}

/// All series of one metric.
#[derive(Debug)]
pub(crate) struct Series {
    series: RwLock<HashMap<Key, Arc<Histogram>, RandomState>>,
    most: usize,
    /// The histogram of all series beyond `most`.
    overflow: Histogram,
}

impl Series {
    pub(super) fn new(most: usize) -> Self {
        Self {
            series: RwLock::default(),
            most,
            overflow: Histogram::default(),
        }
    }

    pub(super) fn record(&self, key: Key, duration: Duration) {
        if let Some(histogram) = self.series.read().get(&key) {
            histogram.add(duration);
            return;
        }
        let mut series = self.series.write();
        if series.len() >= self.most && !series.contains_key(&key) {
            self.overflow.add(duration);
        } else {
            series.entry(key).or_default().add(duration);
        }
    }

    /// Calls `each` with every series except the overflow.
    pub(super) fn for_each(&self, mut each: impl FnMut(&Key, Durations)) {
        for (key, histogram) in self.series.read().iter() {
            each(key, histogram.durations());
        }
    }

    pub(super) fn snapshot(
        &self,
        about: About,
        known: &KnownNames,
        backend: &dyn Fn(u16) -> Option<NamedBackend>,
    ) -> Vec<Point> {
        let series: Vec<(Key, Arc<Histogram>)> = {
            let series = self.series.read();
            series
                .iter()
                .map(|(key, histogram)| (key.clone(), Arc::clone(histogram)))
                .collect()
        };
        let point = |(key, one): &(Key, Arc<Histogram>)| {
            (
                labels(about, key, known, backend(key.backend)),
                Values::Histogram(one.counts()),
            )
        };
        let mut points: Vec<Point> = series.iter().map(point).collect();
        points.sort_by(|a, b| a.0.cmp(&b.0));
        let overflow = self.overflow.counts();
        if overflow.buckets.iter().any(|count| *count > 0) {
            points.push((
                vec![(label::OVERFLOW, "true".to_owned())],
                Values::Histogram(overflow),
            ));
        }
        points
    }
}

impl Histogram {
    fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        if let Some(range) = self.ranges.get(range_of(nanos)) {
            range.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn durations(&self) -> Durations {
        Durations(std::array::from_fn(|range| {
            self.ranges
                .get(range)
                .map_or(0, |count| count.load(Ordering::Relaxed))
        }))
    }

    fn counts(&self) -> Counts {
        let mut buckets = vec![0; BOUNDS.len() + 1];
        for (range, count) in self.durations().0.into_iter().enumerate() {
            let bucket = LIMITS.get(range).map_or(BOUNDS.len(), |limit| {
                BOUNDS.partition_point(|bound| {
                    Duration::from_secs_f64(*bound) < Duration::from_nanos(*limit)
                })
            });
            buckets
                .get_mut(bucket)
                .into_iter()
                .for_each(|sum| *sum += count);
        }
        Counts {
            buckets,
            sum_seconds: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

fn labels(about: About, key: &Key, known: &KnownNames, backend: Option<NamedBackend>) -> Labels {
    let mut out = if about == About::Session {
        Vec::new()
    } else {
        labels_of_message(key, known)
    };
    // The receiver has not failed if the sender made a mistake (conventions for MCP, Server).
    let is_failure = |error: &ErrorType| about != About::Received || !error.is_mistake_of_sender();
    out.extend(
        key.error
            .filter(is_failure)
            .map(|error| (label::ERROR, error.as_text().into_owned())),
    );
    let code = key.error.and_then(|error| error.status_code());
    out.extend(code.map(|code| (label::STATUS, code.to_string())));
    out.extend(
        key.revision
            .map(|revision| (label::REVISION, revision.to_string())),
    );
    out.extend(
        key.transport
            .map(|transport| (label::TRANSPORT, transport.as_str().to_owned())),
    );
    if key.transport == Some(Transport::Tcp) {
        out.push((label::PROTOCOL, "http".to_owned()));
        out.extend(
            key.http
                .map(|version| (label::PROTOCOL_VERSION, version.to_owned())),
        );
    }
    let Some(NamedBackend { name, address }) = backend else {
        return out;
    };
    if let Some((host, port)) = address.filter(|_| about != About::Received) {
        out.extend([
            (label::ADDRESS, host.to_string()),
            (label::PORT, port.to_string()),
        ]);
    }
    out.push((label::BACKEND, name));
    out
}

fn labels_of_message(key: &Key, known: &KnownNames) -> Labels {
    let method = match &key.method {
        Method::Other(_) => OTHER,
        known => known.as_str(),
    };
    let mut out = vec![(label::METHOD, method.to_owned())];
    out.extend(key.name.map(|id| (id.label(), known.text(id))));
    if key.method == Method::CallTool {
        out.push((label::OPERATION, "execute_tool".to_owned()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the wrong bucket could count a value.
    #[test]
    fn every_bound_ends_a_range() {
        for bound in BOUNDS {
            let nanos = u64::try_from(Duration::from_secs_f64(bound).as_nanos()).unwrap();
            assert!(LIMITS.contains(&nanos), "{bound}");
            let histogram = Histogram::default();
            histogram.add(Duration::from_nanos(nanos));
            histogram.add(Duration::from_nanos(nanos + 1));
            let index = BOUNDS.iter().position(|other| *other == bound).unwrap();
            let buckets = histogram.counts().buckets;
            assert_eq!((buckets[index], buckets[index + 1]), (1, 1), "{bound}");
        }
    }
}
