//! The state and the figures of a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanlight_canonical::{
    BackendError, BackendStatus, CanaryStatus, EndpointStatus, FailureDetails, MirrorDifference,
    MirrorStatus, RunningProcess,
};
use fanlight_telemetry::Telemetry;
use fanlight_telemetry::metrics::NO_FAILURE;
use fanlight_telemetry::names::BACKEND_NAME;
use fanlight_telemetry::ring::{Trace, attribute, failure};

use crate::ready::{reason, state};
use crate::reply::{millis, moment};

answers! {
    /// A server.
    pub(crate) struct Backend {
        name: String,
        /// `idle`, `connecting`, `ready`, `ejected`, `down` or `failed`.
        state: &'static str,
        /// `stdio`, `http` or `sse`.
        transport: &'static str,
        /// `legacy` or `modern`.
        era: Option<String>,
        revision: Option<&'static str>,
        /// The reason why it cannot be used.
        error: Option<String>,
        /// The number of its running processes, by their owner.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        processes: BTreeMap<String, usize>,
        /// Its endpoints, if it has several.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        endpoints: Vec<BackendEndpoint>,
        /// The running attempt to connect.
        starting: Option<Starting>,
        /// The failure of the last attempt to connect, until one succeeds.
        failure: Option<Failure>,
        last_error: Option<LastError>,
        /// Finished messages to the server. Fanlight's own, for lists and to connect, do not count.
        requests: u64,
        errors: u64,
        /// Failed attempts to connect.
        failed_connections: i64,
        /// Estimated from the buckets of a histogram.
        median_ms: Option<f64>,
        p95_ms: Option<f64>,
        /// Starts of its process after the first.
        restarts: i64,
        /// Connections after the first.
        reconnects: i64,
    } + optional {
        /// The version that serves a share of its clients.
        canary: Canary,
        /// The server that gets copies of its requests.
        mirror: Mirror,
    }

    /// One of several endpoints of a server.
    struct BackendEndpoint {
        /// Scheme, host and port, and the address if the host has several.
        place: String,
        /// `connecting`, `ready`, `ejected` or `down`.
        state: &'static str,
        /// The reason why it cannot be used.
        error: Option<String>,
        /// Whether the configuration no longer has this endpoint. It then gets only requests that
        /// belong to it.
        leaving: bool,
    } + optional {
        /// Running requests. Absent from event streams, since it always changes.
        running: usize,
        /// The recent duration of its calls. Absent from event streams.
        latency_ms: f64,
    }

    /// A running attempt to connect.
    struct Starting {
        /// When it began, in milliseconds since the Unix epoch.
        since: f64,
        /// The last line of the process.
        last_line: Option<String>,
    } + optional {
        /// The duration so far. Absent from event streams, since it always changes.
        seconds: f64,
    }

    /// A failed attempt to connect.
    struct Failure {
        what: String,
        /// `unreachable`, `timeout`, `starting`, `unauthorized` or `error`.
        kind: &'static str,
        /// The last lines of its standard error.
        stderr: Vec<String>,
        /// The last lines of its standard output that were not messages.
        stdout: Vec<String>,
        /// The remedy.
        remedy: Option<String>,
    }

    /// The latest failure in the ring of traces.
    struct LastError {
        r#type: String,
        at_ms: f64,
        trace_id: String,
    }
}

/// Whether to show the duration of a running start, which always changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seconds {
    Shown,
    Omitted,
}

impl Backend {
    /// The state of the server called `name`, with its last failure among `failed`.
    pub(super) fn new(
        name: &str,
        (status, endpoints): (&BackendStatus, &[EndpointStatus]),
        running: &[RunningProcess],
        (canary, mirror): (Option<&CanaryStatus>, Option<&MirrorStatus>),
        telemetry: &Telemetry,
        failed: &[Trace],
        seconds: Seconds,
    ) -> Self {
        let figures = telemetry
            .metrics()
            .map(|metrics| metrics.figures(name))
            .unwrap_or_default();
        Self {
            name: name.to_owned(),
            state: state(&status.state),
            transport: status.transport,
            era: status.era.map(|era| era.to_string()),
            revision: status.revision,
            // Leave out the time until the next attempt, which always changes.
            error: reason(&status.state).map(ToString::to_string),
            processes: running.iter().fold(BTreeMap::new(), |mut all, one| {
                *all.entry(one.owner.clone()).or_default() += 1;
                all
            }),
            endpoints: endpoints
                .iter()
                .map(|endpoint| BackendEndpoint::from_status(endpoint, seconds))
                .collect(),
            canary: canary.map(Canary::from),
            mirror: mirror.map(Mirror::from),
            starting: status.starting.as_ref().map(|starting| Starting {
                since: moment(starting.since),
                seconds: (seconds == Seconds::Shown).then_some(starting.elapsed.as_secs_f64()),
                last_line: starting.last_line.as_ref().map(ToString::to_string),
            }),
            failure: status.failure.as_ref().map(Failure::from_error),
            last_error: LastError::find(name, failed),
            requests: figures.requests,
            errors: figures.errors,
            failed_connections: figures.failed_connections,
            median_ms: figures.median.map(millis),
            p95_ms: figures.p95.map(millis),
            restarts: figures.restarts,
            reconnects: figures.reconnects,
        }
    }
}

impl BackendEndpoint {
    fn from_status(status: &EndpointStatus, seconds: Seconds) -> Self {
        let is_shown = seconds == Seconds::Shown;
        Self {
            place: status.place.clone(),
            state: state(&status.state),
            error: reason(&status.state).map(ToString::to_string),
            leaving: status.is_leaving,
            running: is_shown.then_some(status.running),
            latency_ms: is_shown.then(|| millis(status.latency)),
        }
    }
}

impl Failure {
    fn from_error(error: &BackendError) -> Self {
        let texts = |lines: &[Arc<str>]| lines.iter().map(ToString::to_string).collect();
        let none = FailureDetails::default();
        let FailureDetails {
            stderr,
            stdout,
            remedy,
            challenge: _,
        } = error.details().unwrap_or(&none);
        Self {
            what: error.summary(),
            kind: error.outcome().as_str(),
            stderr: texts(stderr),
            stdout: texts(stdout),
            remedy: remedy.as_ref().map(|remedy| remedy.text.to_string()),
        }
    }
}

impl LastError {
    /// The latest failure of a message to or from the server called `name`.
    fn find(name: &str, failed: &[Trace]) -> Option<Self> {
        let is_named = |value: &str| value == name;
        let (trace, span) = failed.iter().find_map(|trace| {
            let span = trace.spans.iter().rev().find(|span| {
                attribute(span, BACKEND_NAME).is_some_and(|value| is_named(&value.as_str()))
                    && failure(span)
                        .is_some_and(|error| !NO_FAILURE.contains(&error.as_str().as_ref()))
            })?;
            Some((trace, span))
        })?;
        let r#type = failure(span)?.as_str().into_owned();
        Some(Self {
            r#type,
            at_ms: moment(span.end_time),
            trace_id: trace.id.to_string(),
        })
    }
}

answers! {
    /// The version of a server that serves a share of its clients.
    pub(super) struct Canary {
        /// The name of its own entry.
        server: String,
        /// The share of the clients, from 0 to 1.
        share: f64,
        /// The state, as for a server.
        state: &'static str,
    }

    /// The server that gets copies of requests.
    pub(super) struct Mirror {
        /// The name of its own entry.
        server: String,
        /// The share of the requests, from 0 to 1.
        share: f64,
        /// The state, as for a server.
        state: &'static str,
        /// Copies with the same answer as the server's.
        same: u64,
        /// Copies with a different answer.
        different: u64,
        /// Copies without an answer.
        failed: u64,
        /// Copies that were not sent, because too many were running or they were too large.
        dropped: u64,
    }

    /// A differing answer of a mirror.
    pub(super) struct Difference {
        at_ms: f64,
        method: String,
        /// The requested item: a tool, or a resource without its query.
        item: Option<String>,
        /// The differences. They include values only under `content: on` of the server.
        lines: Vec<String>,
        /// The trace of the copy.
        trace_id: Option<String>,
    }
}

impl From<&CanaryStatus> for Canary {
    fn from(canary: &CanaryStatus) -> Self {
        Self {
            server: canary.server.to_string(),
            share: canary.rule.share,
            state: state(&canary.status.state),
        }
    }
}

impl From<&MirrorStatus> for Mirror {
    fn from(mirror: &MirrorStatus) -> Self {
        let [same, different, failed, dropped] = mirror.counts;
        let (server, state) = (mirror.server.to_string(), state(&mirror.status.state));
        Self {
            server,
            share: mirror.share,
            state,
            same,
            different,
            failed,
            dropped,
        }
    }
}

impl From<&MirrorDifference> for Difference {
    fn from(difference: &MirrorDifference) -> Self {
        Self {
            at_ms: moment(difference.at),
            method: difference.method.to_string(),
            item: difference.item.as_deref().map(str::to_owned),
            lines: difference.lines.clone(),
            trace_id: difference.trace.as_deref().map(str::to_owned),
        }
    }
}
