//! `/api/overview`: the state and figures of each backend, and of the process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fanlight_canonical::{BackendState, BackendStatus};
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_telemetry::metrics::GIVEN_UP;
use fanlight_telemetry::names::BACKEND_NAME;
use fanlight_telemetry::ring::{Query, Trace, attribute, failure};

use crate::ready::{is_ready, state};
use crate::values::{count, flag, millis, moment, number, optional};
use crate::{AdminSettings, Subject};

/// How many failed traces are searched for the last error of each backend. No option: what is older than so many
/// failures is not the last.
const FAILED: usize = 100;

/// The overview, made once for all event streams.
pub(crate) struct Latest {
    subject: Arc<Subject>,
    started: SystemTime,
    began: Instant,
    /// How long an overview is shared by event streams.
    fresh: Duration,
    /// What the page needs to know: its intervals.
    page: Json,
    made: Mutex<Option<(Instant, Json)>>,
}

impl Latest {
    pub(crate) fn new(subject: Arc<Subject>, settings: &AdminSettings, started: SystemTime) -> Self {
        let mut page = ObjectBuilder::new();
        page.member("refreshMs", &millis(settings.page_refresh)).member("listsMs", &millis(settings.page_lists));
        // Each of their checks is to find a new one, though timers are late.
        let fresh = settings.event_interval * 9 / 10;
        Self { subject, started, began: Instant::now(), fresh, page: page.finish(), made: Mutex::default() }
    }

    /// An overview not older than the interval of event streams, without values that always change.
    pub(crate) fn get(&self) -> Json {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((at, json)) if at.elapsed() < self.fresh => json.clone(),
            _ => {
                let json = self.make();
                *made = Some((Instant::now(), json.clone()));
                json
            }
        }
    }

    /// The overview now, with the uptime of the process.
    pub(crate) fn with_uptime(&self) -> Json {
        let mut object = ObjectBuilder::new();
        object.member("uptimeSeconds", &number(self.began.elapsed().as_secs_f64()));
        let overview = self.make();
        for member in overview.members() {
            object.raw_member(&overview.slice(member.key), &overview.slice(member.value));
        }
        object.finish()
    }

    fn make(&self) -> Json {
        let subject = &self.subject;
        let clients = subject.clients.counts();
        let failed = subject
            .telemetry
            .ring()
            .map(|ring| ring.query(&Query { error: Some(true), limit: FAILED, ..Query::default() }));
        let failed = failed.unwrap_or_default();
        let mut backends = ArrayBuilder::default();
        for (name, status) in subject.gateway.status() {
            backends.push(&self.backend(&name, &status, &failed));
        }
        let mut object = ObjectBuilder::new();
        object.string("version", subject.version).string("endpoint", &subject.endpoint);
        object.member("startedMs", &moment(self.started));
        object.member("ready", &flag(is_ready(&subject.gateway, &subject.draining)));
        object.integer("sessions", count(clients.sessions)).integer("suspendedCalls", count(clients.suspended));
        object.integer("streams", count(clients.streams));
        if let Some(ring) = subject.telemetry.ring() {
            let (traces, bytes) = ring.size();
            object.integer("traces", count(traces)).integer("traceBytes", count(bytes));
        }
        object.member("page", &self.page);
        object.member("backends", &backends.finish());
        object.finish()
    }

    fn backend(&self, name: &str, status: &BackendStatus, failed: &[Trace]) -> Json {
        let mut object = ObjectBuilder::new();
        object.string("name", name).string("state", state(&status.state)).string("transport", status.transport);
        optional(&mut object, "era", status.era.map(|era| era.to_string()).as_deref());
        optional(&mut object, "revision", status.revision);
        let error = match &status.state {
            // Without the time until the next attempt, which always changes.
            BackendState::Down { error, .. } | BackendState::Failed { error } => Some(error.to_string()),
            _ => None,
        };
        optional(&mut object, "error", error.as_deref());
        object.member("lastError", &last_error(name, failed).unwrap_or_else(Json::null));
        let figures = self.subject.telemetry.metrics().map(|metrics| metrics.figures(name)).unwrap_or_default();
        let seconds = |value: Option<f64>| value.map_or_else(Json::null, |value| number(value * 1000.0));
        object.integer("requests", count(figures.requests)).integer("errors", count(figures.errors));
        object.member("medianMs", &seconds(figures.median)).member("p95Ms", &seconds(figures.p95));
        object.integer("restarts", figures.restarts).integer("reconnects", figures.reconnects);
        object.finish()
    }
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
