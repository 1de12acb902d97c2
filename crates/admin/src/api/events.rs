//! `/api/events`: the overview whenever it changes, and traces as they end.
//!
//! Nothing is queued for a slow reader: traces that end meanwhile are sent together. If there are
//! too many, an event says that some were missed.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::response::sse::Event;
use fanlight_protocol::Json;
use fanlight_telemetry::{Ring, TraceId, ring};
use futures_util::stream::{StreamExt as _, iter, unfold};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, sleep_until};

use super::overview::Latest;
use super::stream::{self, Watch, event};
use super::traces::{TracesEnded, filter, summary};
use super::{Answer, Query};
use crate::{AdminState, Operator, to_json};

/// How long traces are collected before they are sent, since a trace has several spans. There is no
/// option: a person does not notice the delay, and a shorter one would send most traces several
/// times.
const COLLECT: Duration = Duration::from_millis(200);
/// The limit of traces in an event. There is no option: after the event `missed`, a client queries
/// the rest.
const MOST_TRACES: usize = 100;

/// The stream of events.
pub(super) async fn answer(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    query: Query,
) -> Answer {
    let filter = filter(&query)?;
    let now = admin.now();
    let watch = Watch::follower(&admin, &now, operator)?;
    let events = unfold(Follower::new(watch, filter), |mut follower| async move {
        Some((iter(follower.next().await?), follower))
    });
    Ok(stream::response(&now, events.flatten()))
}

/// The state of one stream of events.
struct Follower {
    ring: Option<Arc<Ring>>,
    feed: Option<Receiver<TraceId>>,
    /// The traces that the reader wants.
    filter: ring::Query,
    latest: Arc<Latest>,
    check: Interval,
    watch: Watch,
    /// The latest overview sent.
    sent: Option<Json>,
    /// Traces in which a span has ended since the last event.
    ended: Vec<TraceId>,
    /// When these traces will be sent.
    due: Option<Instant>,
    missed: bool,
}

impl Follower {
    fn new(watch: Watch, filter: ring::Query) -> Self {
        let admin = &watch.admin;
        let ring = admin.subject.telemetry.ring().cloned();
        Self {
            feed: ring.as_ref().map(|ring| ring.subscribe()),
            ring,
            filter,
            latest: Arc::clone(&admin.latest),
            check: stream::ticks(),
            sent: None,
            ended: Vec::new(),
            due: None,
            missed: false,
            watch,
        }
    }

    /// The next events; `None` at shutdown, after a change of settings, and at the end of the
    /// operator's credentials or session. The first event is an overview, at once.
    async fn next(&mut self) -> Option<impl Iterator<Item = Event> + use<>> {
        loop {
            let due = self.due;
            tokio::select! {
                biased;
                _ = self.watch.ended() => return None,
                () = sleep_until_due(due) => return Some(self.traces().into_iter().flatten()),
                _ = self.check.tick() => {
                    if !self.watch.is_in_force().await {
                        return None;
                    }
                    if let Some(event) = self.overview() {
                        return Some([Some(event), None].into_iter().flatten());
                    }
                }
                ended = receive(&mut self.feed) => self.note(ended.ok()),
            }
        }
    }

    /// Notes a trace in which a span has ended; `None` if some were missed.
    fn note(&mut self, ended: Option<TraceId>) {
        match ended {
            Some(id) if self.ended.contains(&id) => {}
            Some(id) if self.ended.len() < MOST_TRACES => self.ended.push(id),
            _ => self.missed = true,
        }
        self.due.get_or_insert_with(|| Instant::now() + COLLECT);
    }

    fn traces(&mut self) -> [Option<Event>; 2] {
        self.due = None;
        let ring = self.ring.as_ref();
        let traces = self
            .ended
            .drain(..)
            .filter_map(|id| summary(&ring?.find(id, &self.filter)?))
            .collect();
        let missed =
            std::mem::take(&mut self.missed).then(|| event("missed", &Json::empty_object()));
        [
            Some(event("traces", &to_json(&TracesEnded { traces }))),
            missed,
        ]
    }

    fn overview(&mut self) -> Option<Event> {
        let now = self.latest.get();
        if self.sent.as_ref() == Some(&now) {
            return None;
        }
        let event = event("overview", &now);
        self.sent = Some(now);
        Some(event)
    }
}

async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn receive(feed: &mut Option<Receiver<TraceId>>) -> Result<TraceId, RecvError> {
    let Some(open) = feed else {
        return std::future::pending().await;
    };
    let received = open.recv().await;
    if matches!(received, Err(RecvError::Closed)) {
        *feed = None;
    }
    received
}
