//! `/api/overview` and `/api/backends`: the state and figures of each backend, and of the process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fanlight_canonical::{BackendError, BackendStatus, FailureDetails, Starting};
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::metrics::GIVEN_UP;
use fanlight_telemetry::names::BACKEND_NAME;
use fanlight_telemetry::ring::{Query, Trace, attribute, failure};

use crate::ready::{is_ready, reason, state};
use crate::values::{array, count, flag, millis, moment, number, optional};
use crate::{LiveSettings, Subject};

/// How many failed traces are searched for the last error of each backend. No option: what is older than so many
/// failures is not the last.
const FAILED: usize = 100;

/// The overview, made once for all event streams.
pub(crate) struct Latest {
    subject: Arc<Subject>,
    started: SystemTime,
    began: Instant,
    live: LiveSettings,
    made: Mutex<Option<(Instant, Json)>>,
}

impl Latest {
    pub(crate) fn new(subject: Arc<Subject>, live: LiveSettings, started: SystemTime) -> Self {
        Self { subject, live, started, began: Instant::now(), made: Mutex::default() }
    }

    /// What the page needs to know: its intervals.
    fn page(&self) -> Json {
        let now = self.live.load();
        let mut page = ObjectBuilder::new();
        page.member("refreshMs", &millis(now.settings.page_refresh));
        page.member("listsMs", &millis(now.settings.page_lists));
        page.finish()
    }

    /// An overview not older than the interval of event streams, without values that always change.
    pub(crate) fn get(&self) -> Json {
        // Each check of event streams is to find a new one, though timers are late.
        let fresh = self.live.load().settings.event_interval * 9 / 10;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((at, json)) if at.elapsed() < fresh => json.clone(),
            _ => {
                let json = self.make(Seconds::Omitted);
                *made = Some((Instant::now(), json.clone()));
                json
            }
        }
    }

    /// The overview now, with the uptime of the process.
    pub(crate) fn with_uptime(&self) -> Json {
        let mut object = ObjectBuilder::new();
        object.member("uptimeSeconds", &number(self.began.elapsed().as_secs_f64()));
        let overview = self.make(Seconds::Shown);
        for member in overview.members() {
            object.raw_member(&overview.slice(member.key), &overview.slice(member.value));
        }
        object.finish()
    }

    /// The backends now.
    pub(crate) fn backends(&self) -> Json {
        let mut object = ObjectBuilder::new();
        object.member("backends", &self.all_backends(Seconds::Shown));
        object.finish()
    }

    fn all_backends(&self, seconds: Seconds) -> Json {
        let ring = self.subject.telemetry.ring();
        let failed = ring.map(|ring| ring.query(&Query { error: Some(true), limit: FAILED, ..Query::default() }));
        let failed = failed.unwrap_or_default();
        let status = self.subject.gateway.status();
        array(status.iter().map(|(name, status)| self.backend(name, status, &failed, seconds)))
    }

    fn make(&self, seconds: Seconds) -> Json {
        let subject = &self.subject;
        let clients = subject.clients.counts();
        let mut object = ObjectBuilder::new();
        object.string("version", subject.version).string("endpoint", &subject.operations.endpoint());
        object.member("startedMs", &moment(self.started));
        object.member("ready", &flag(is_ready(&subject.gateway, &subject.draining)));
        object.integer("sessions", count(clients.sessions)).integer("suspendedCalls", count(clients.suspended));
        object.integer("streams", count(clients.streams));
        if let Some(ring) = subject.telemetry.ring() {
            let (traces, bytes) = ring.size();
            object.integer("traces", count(traces)).integer("traceBytes", count(bytes));
        }
        object.member("page", &self.page());
        object.member("backends", &self.all_backends(seconds));
        object.finish()
    }

    fn backend(&self, name: &str, status: &BackendStatus, failed: &[Trace], seconds: Seconds) -> Json {
        let mut object = ObjectBuilder::new();
        object.string("name", name).string("state", state(&status.state)).string("transport", status.transport);
        optional(&mut object, "era", status.era.map(|era| era.to_string()).as_deref());
        optional(&mut object, "revision", status.revision);
        // Without the time until the next attempt, which always changes.
        optional(&mut object, "error", reason(&status.state).map(ToString::to_string).as_deref());
        let starting = status.starting.as_ref().map(|starting| json_of_start(starting, seconds));
        object.member("starting", &starting.unwrap_or_else(Json::null));
        object.member("failure", &status.failure.as_ref().map_or_else(Json::null, json_of_failure));
        object.member("lastError", &last_error(name, failed).unwrap_or_else(Json::null));
        let figures = self.subject.telemetry.metrics().map(|metrics| metrics.figures(name)).unwrap_or_default();
        let duration = |value: Option<Duration>| value.map_or_else(Json::null, millis);
        object.integer("requests", count(figures.requests)).integer("errors", count(figures.errors));
        object.integer("failedConnections", figures.failed_connections);
        object.member("medianMs", &duration(figures.median)).member("p95Ms", &duration(figures.p95));
        object.integer("restarts", figures.restarts).integer("reconnects", figures.reconnects);
        object.finish()
    }
}

/// Whether an overview includes the duration of a running start, which always changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seconds {
    Shown,
    Omitted,
}

/// An attempt to connect that is being made.
fn json_of_start(starting: &Starting, seconds: Seconds) -> Json {
    let mut object = ObjectBuilder::new();
    object.member("since", &moment(starting.since));
    if seconds == Seconds::Shown {
        object.member("seconds", &number(starting.elapsed.as_secs_f64()));
    }
    optional(&mut object, "lastLine", starting.last_line.as_deref());
    object.finish()
}

/// Why the last attempt to connect failed.
fn json_of_failure(error: &BackendError) -> Json {
    let texts = |lines: &[Arc<str>]| array(lines.iter().map(|line| Json::string(line)));
    let none = FailureDetails::default();
    let FailureDetails { stderr, stdout, remedy } = error.details().unwrap_or(&none);
    let mut object = ObjectBuilder::new();
    object.string("what", &error.what()).string("kind", error.outcome().as_str());
    object.member("stderr", &texts(stderr)).member("stdout", &texts(stdout));
    optional(&mut object, "remedy", remedy.as_ref().map(|remedy| &*remedy.text));
    object.finish()
}

/// The newest failure of a message to or from the backend in the ring.
fn last_error(name: &str, failed: &[Trace]) -> Option<Json> {
    let is_named = |value: &str| value == name;
    let (trace, span) = failed.iter().find_map(|trace| {
        let span = trace.spans.iter().rev().find(|span| {
            attribute(span, BACKEND_NAME).is_some_and(|value| is_named(&value.as_str()))
                && failure(span).is_some_and(|error| !GIVEN_UP.contains(&error.as_str().as_ref()))
        })?;
        Some((trace, span))
    })?;
    let mut object = ObjectBuilder::new();
    object.string("type", &failure(span)?.as_str());
    object.member("atMs", &moment(span.end_time)).string("traceId", &trace.id.to_string());
    Some(object.finish())
}
