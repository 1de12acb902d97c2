//! The load: requests on kept connections, with every answer checked.
//!
//! *Closed loop*: each connection sends its next request after the answer to the last one. *Fixed
//! rate*: requests are due at fixed times, whatever happened before. Latency counts from the due
//! time, so that a stalled system is charged for its late requests (coordinated omission).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::connection::Connection;
use super::request::{Exchange, Id, Message};
use super::session::{Client, close_session};
use super::timer::Timer;
use crate::access::Access;
use crate::era::Era;
use crate::error::{BenchError, Result, join_all, within};
use crate::latency::Latencies;
use crate::system::System;

/// A load on one address.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) era: Era,
    pub(crate) connections: usize,
    /// The messages of each connection, sent in turn.
    pub(crate) messages: Arc<Vec<Message>>,
    access: Access,
}

/// The pace of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    Closed,
    /// Requests per second.
    Rate(f64),
    /// This many requests on each connection, as in a closed loop.
    Count(u64),
}

/// The answers and their latencies.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) took: Duration,
    pub(crate) latencies: Latencies,
}

impl Served {
    pub(crate) fn per_second(&self) -> f64 {
        count(self.latencies.count()) / self.took.as_secs_f64().max(1e-9)
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts of calls are far below 2^52"
)]
pub(crate) fn count(calls: u64) -> f64 {
    calls as f64
}

/// Open connections, each of which has had one answer.
pub(crate) struct Ready {
    workers: Vec<Worker>,
    access: Access,
}

struct Worker {
    load: Load,
    client: Client,
    exchanges: Vec<Exchange>,
    next: u64,
    answered: Instant,
}

/// The time-out of a connection attempt and of an answer, in seconds.
const PATIENCE: u64 = 60;
/// The longest idle time of a connection. Servers close connections after longer idle times, many
/// after five seconds. A client that sends a request at that moment cannot know whether it ran.
const KEPT: Duration = Duration::from_secs(3);

impl Load {
    /// A load on `system`, with the access that the system needs.
    pub(crate) fn on(
        system: &System,
        era: Era,
        connections: usize,
        messages: Vec<Message>,
    ) -> Self {
        Self::at(system.address, &system.access, era, connections, messages)
    }

    /// A load on the listener at `address`.
    pub(crate) fn at(
        address: SocketAddr,
        access: &Access,
        era: Era,
        connections: usize,
        messages: Vec<Message>,
    ) -> Self {
        let token = access.token.as_deref();
        let messages = messages
            .into_iter()
            .map(|message| message.with_token(token))
            .collect();
        Self {
            address,
            era,
            connections,
            messages: Arc::new(messages),
            access: access.clone(),
        }
    }

    /// Opens the connections, and sends each message once on the first one, so that the work of a
    /// first call is done before the measurement.
    pub(crate) async fn open(&self) -> Result<Ready> {
        let mut workers = Vec::new();
        for number in 0..self.connections {
            let client = within(
                "a connection",
                PATIENCE,
                Client::open_with(self.address, self.era, &self.access),
            )
            .await?;
            let exchanges: Vec<_> = self
                .messages
                .iter()
                .map(|message| client.exchange(message))
                .collect();
            let mut worker = Worker {
                load: self.clone(),
                client,
                exchanges,
                next: 0,
                answered: Instant::now(),
            };
            let turns = if number == 0 { self.messages.len() } else { 1 };
            for _ in 0..turns {
                within("an answer", PATIENCE, worker.turn()).await?;
            }
            // Connections begin with different messages.
            worker.next += u64::try_from(number).unwrap_or(0);
            workers.push(worker);
        }
        Ok(Ready {
            workers,
            access: self.access.clone(),
        })
    }
}

impl Ready {
    /// Ends the sessions. A gateway that does not let clients end them is no fault of the
    /// measurement.
    pub(crate) async fn close(self) {
        for mut worker in self.workers {
            if let Some(session) = &worker.client.session {
                let closing = close_session(&mut worker.client.connection, session, &self.access);
                let _ = within("the end of a session", PATIENCE, closing).await;
            }
        }
    }

    /// Sends requests for `time`. The first wrong answer ends the run.
    pub(crate) async fn run(&mut self, pace: Pace, time: Duration) -> Result<Served> {
        let start = Instant::now();
        let schedule = Arc::new(Schedule {
            start,
            end: start + time,
            pace,
            claimed: AtomicU64::new(0),
        });
        let mut running = JoinSet::new();
        for mut worker in self.workers.drain(..) {
            let schedule = Arc::clone(&schedule);
            running.spawn(async move {
                let latencies = worker.work(&schedule).await?;
                Ok::<_, BenchError>((worker, latencies))
            });
        }
        let mut latencies = Latencies::new()?;
        for (worker, own) in join_all("the answers", time.as_secs() + PATIENCE, running).await? {
            latencies.add(&own);
            self.workers.push(worker);
        }
        Ok(Served {
            took: start.elapsed(),
            latencies,
        })
    }
}

/// The due times of requests, for all connections together.
struct Schedule {
    start: Instant,
    end: Instant,
    pace: Pace,
    claimed: AtomicU64,
}

impl Schedule {
    /// The due time of request `number` at `rate` requests per second.
    fn due(&self, number: u64, rate: f64) -> Instant {
        self.start + Duration::from_secs_f64(count(number) / rate)
    }
}

impl Worker {
    async fn work(&mut self, schedule: &Schedule) -> Result<Latencies> {
        let (mut latencies, mut timer) = (Latencies::new()?, Timer::new()?);
        let mut before = Instant::now();
        for turn in 0.. {
            let done = match schedule.pace {
                Pace::Closed => before >= schedule.end,
                Pace::Count(turns) => turn == turns,
                Pace::Rate(rate) => {
                    before = schedule.due(schedule.claimed.fetch_add(1, Ordering::Relaxed), rate);
                    before >= schedule.end
                }
            };
            if done {
                break;
            }
            timer.until(before).await?;
            self.turn().await?;
            let after = Instant::now();
            latencies.record(after - before);
            before = after;
        }
        Ok(latencies)
    }

    /// One request and its answer.
    async fn turn(&mut self) -> Result<()> {
        let id = Id::number(self.next % 1_000_000_000);
        let length = u64::try_from(self.exchanges.len()).unwrap_or(1).max(1);
        let index = usize::try_from(self.next % length).unwrap_or(0);
        self.next += 1;
        let Some(exchange) = self.exchanges.get_mut(index) else {
            return Ok(());
        };
        if self.answered.elapsed() > KEPT {
            self.client.connection =
                Connection::open(self.load.address, self.load.access.tls.as_ref()).await?;
        }
        let answer = self
            .client
            .connection
            .exchange(exchange.with_id(id))
            .await?;
        self.answered = Instant::now();
        exchange.check(id, &answer)
    }
}
