//! `/api/overview` and `/api/backends`: the state and figures of each server, and of the process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use fanlight_canonical::BackendStatus;
use fanlight_protocol::Json;
use fanlight_telemetry::ring::Query;
use parking_lot::Mutex;

use super::server_state::{Backend, Seconds};
use crate::ready::is_ready;
use crate::{ReplicasView, Subject, event_interval, millis, moment, to_json};

/// The interval at which the page requests data that no event contains, while it shows such data.
const PAGE_REFRESH: Duration = Duration::from_secs(2);

/// How long the page uses the lists of the catalogue.
const PAGE_LISTS: Duration = Duration::from_secs(5);

/// How many failed traces are searched for each server's last error. There is no option: an error
/// before so many failures is not the last one.
const FAILED: usize = 100;

answers! {
    /// The overview.
    pub(crate) struct Overview {
        version: &'static str,
        /// The URL of the endpoint for clients, or `stdio`.
        endpoint: String,
        /// When the process started.
        started_ms: f64,
        /// Whether clients' requests can be served.
        ready: bool,
        /// Sessions of clients.
        sessions: usize,
        /// Calls that wait for their client's input.
        suspended_calls: usize,
        /// Streams on which clients only listen.
        streams: usize,
        page: Page,
        backends: Vec<Backend>,
    } + optional {
        /// Absent from event streams, since it always changes.
        uptime_seconds: f64,
        /// Traces in the ring; absent if there is none.
        traces: usize,
        /// Bytes of the ring; absent if there is none.
        trace_bytes: usize,
        /// The replicas; absent if this process is alone.
        replicas: ReplicasView,
    }

    /// The intervals at which the page polls.
    struct Page {
        refresh_ms: f64,
        lists_ms: f64,
    }

    /// The servers.
    pub(crate) struct Backends {
        backends: Vec<Backend>,
    }
}

/// The latest overview, computed once for all event streams.
pub(crate) struct Latest {
    subject: Arc<Subject>,
    started: SystemTime,
    began: Instant,
    made: Mutex<Option<(Instant, Json)>>,
    /// Whether every server's first attempt to connect after the start has ended.
    settled: AtomicBool,
}

impl Latest {
    pub(crate) fn new(subject: Arc<Subject>, started: SystemTime) -> Self {
        Self {
            subject,
            started,
            began: Instant::now(),
            made: Mutex::default(),
            settled: AtomicBool::default(),
        }
    }

    /// An overview no older than the interval of event streams, without constantly changing values.
    pub(crate) fn get(&self) -> Json {
        // Each check of the event streams needs a new overview, even if timers are late.
        let fresh = event_interval() * 9 / 10;
        let mut made = self.made.lock();
        match &*made {
            Some((at, json)) if at.elapsed() < fresh => json.clone(),
            _ => {
                let json = to_json(&self.make(Seconds::Omitted));
                *made = Some((Instant::now(), json.clone()));
                json
            }
        }
    }

    /// The current overview, with the uptime of the process.
    pub(crate) fn with_uptime(&self) -> Overview {
        Overview {
            uptime_seconds: Some(self.began.elapsed().as_secs_f64()),
            ..self.make(Seconds::Shown)
        }
    }

    /// The current state of all servers.
    pub(crate) fn backends(&self) -> Backends {
        Backends {
            backends: self.all_backends(Seconds::Shown),
        }
    }

    fn all_backends(&self, seconds: Seconds) -> Vec<Backend> {
        let telemetry = &self.subject.telemetry;
        let failed = Query {
            error: Some(true),
            limit: FAILED,
            ..Query::default()
        };
        let failed = telemetry
            .ring()
            .map(|ring| ring.query(&failed))
            .unwrap_or_default();
        let (status, endpoints) = (
            self.subject.gateway.status(),
            self.subject.gateway.endpoints_of_backends(),
        );
        let versions = self.subject.gateway.versions_of_backends();
        let processes = self.subject.gateway.processes();
        let backend = |(name, status): &(String, BackendStatus)| {
            let versions = versions.get(name);
            let versions = versions.map_or((None, None), |(canary, mirror)| {
                (canary.as_ref(), mirror.as_ref())
            });
            let endpoints = endpoints.get(name).map_or(&[][..], Vec::as_slice);
            Backend::new(
                name,
                (status, endpoints),
                processes.get(name).map_or(&[][..], Vec::as_slice),
                versions,
                telemetry,
                &failed,
                seconds,
            )
        };
        status.iter().map(backend).collect()
    }

    /// Whether clients' requests can be served.
    pub(crate) fn is_ready(&self) -> bool {
        let Subject {
            gateway, draining, ..
        } = &*self.subject;
        is_ready(gateway, draining, &self.settled)
    }

    fn make(&self, seconds: Seconds) -> Overview {
        let subject = &self.subject;
        let clients = subject.clients.counts();
        let (traces, trace_bytes) = subject.telemetry.ring().map(|ring| ring.size()).unzip();
        Overview {
            uptime_seconds: None,
            version: subject.version,
            endpoint: subject.operations.endpoint().to_string(),
            started_ms: moment(self.started),
            ready: self.is_ready(),
            sessions: clients.sessions,
            suspended_calls: clients.suspended,
            streams: clients.streams,
            traces,
            trace_bytes,
            replicas: subject.replicas.as_ref().map(|replicas| replicas.view()),
            page: Page {
                refresh_ms: millis(PAGE_REFRESH),
                lists_ms: millis(PAGE_LISTS),
            },
            backends: self.all_backends(seconds),
        }
    }
}
