//! `/api/events`: the overview whenever it has changed, and traces as they come.
//!
//! Nothing is kept for one who reads slowly: traces that end meanwhile are told together, and if
//! there are too many, only that some were missed.
//!
//! Must not know: HTTP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_telemetry::{Ring, TraceId};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::overview::{Latest, event};
use super::traces::summary;

/// How often it is looked whether the overview has changed.
const LOOK: Duration = Duration::from_secs(1);
/// How long traces are collected before they are told: a trace has several spans.
const COLLECT: Duration = Duration::from_millis(200);
/// How many traces are told at once.
const MOST: usize = 100;

/// One who follows.
pub(crate) struct Follower {
    ring: Option<Arc<Ring>>,
    feed: Option<Receiver<TraceId>>,
    latest: Arc<Latest>,
    look: Interval,
    keep_alive: Duration,
    shutdown: CancellationToken,
    told: Option<Json>,
    /// In which a span has ended and that has not been told.
    ended: Vec<TraceId>,
    /// When they are told.
    due: Option<Instant>,
    missed: bool,
    ready: VecDeque<Bytes>,
    _slot: OwnedSemaphorePermit,
}

enum Happened {
    Shutdown,
    Ended(TraceId),
    Missed,
    Due,
    Look,
    Silence,
}

impl Follower {
    pub(crate) fn new(
        ring: Option<Arc<Ring>>,
        latest: Arc<Latest>,
        keep_alive: Duration,
        shutdown: CancellationToken,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            feed: ring.as_ref().map(|ring| ring.subscribe()),
            ring,
            latest,
            look,
            keep_alive,
            shutdown,
            told: None,
            ended: Vec::new(),
            due: None,
            missed: false,
            ready: VecDeque::new(),
            _slot: slot,
        }
    }

    /// What is sent. The first look is at once.
    pub(crate) fn stream(self) -> impl Stream<Item = Bytes> + Send + 'static {
        unfold(self, |mut follower| async move { Some((follower.next().await?, follower)) })
    }

    async fn next(&mut self) -> Option<Bytes> {
        let silence = Instant::now() + self.keep_alive;
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(chunk);
            }
            match self.happens(silence).await {
                Happened::Shutdown => return None,
                Happened::Ended(id) => self.note(id),
                Happened::Missed => {
                    self.missed = true;
                    self.due.get_or_insert_with(|| Instant::now() + COLLECT);
                }
                Happened::Due => self.tell_traces(),
                Happened::Look => self.tell_overview(),
                Happened::Silence => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }

    async fn happens(&mut self, silence: Instant) -> Happened {
        let due = self.due;
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Happened::Shutdown,
            () = sleep_until(due.unwrap_or(silence)), if due.is_some() => Happened::Due,
            _ = self.look.tick() => Happened::Look,
            ended = heard(&mut self.feed) => match ended {
                Ok(id) => Happened::Ended(id),
                Err(_) => Happened::Missed,
            },
            () = sleep_until(silence) => Happened::Silence,
        }
    }

    fn note(&mut self, id: TraceId) {
        if !self.ended.contains(&id) {
            if self.ended.len() < MOST { self.ended.push(id) } else { self.missed = true }
        }
        self.due.get_or_insert_with(|| Instant::now() + COLLECT);
    }

    fn tell_traces(&mut self) {
        self.due = None;
        let mut traces = ArrayBuilder::default();
        for id in self.ended.drain(..) {
            if let Some(trace) = self.ring.as_ref().and_then(|ring| summary(&ring.get(id)?)) {
                traces.push(&trace);
            }
        }
        let mut object = ObjectBuilder::new();
        object.member("traces", &traces.finish());
        self.ready.push_back(event("traces", &object.finish()));
        if std::mem::take(&mut self.missed) {
            self.ready.push_back(event("missed", &Json::empty_object()));
        }
    }

    fn tell_overview(&mut self) {
        let now = self.latest.get();
        if self.told.as_ref() != Some(&now) {
            self.ready.push_back(event("overview", &now));
            self.told = Some(now);
        }
    }
}

async fn heard(feed: &mut Option<Receiver<TraceId>>) -> Result<TraceId, RecvError> {
    match feed {
        Some(open) => {
            let heard = open.recv().await;
            if matches!(heard, Err(RecvError::Closed)) {
                *feed = None;
            }
            heard
        }
        None => std::future::pending().await,
    }
}
