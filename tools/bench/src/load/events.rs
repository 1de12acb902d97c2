//! The latency of progress notifications on the event streams of calls.
//!
//! The server writes the time into each event; both sides read the same clock of the same machine.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::calls::Served;
use super::connection::{Body, Connection, unexpected};
use super::request::{Id, Message, excerpt};
use super::session::Client;
use crate::era::Era;
use crate::error::{BenchError, Result, join_all, within};
use crate::latency::Latencies;
use crate::usage::monotonic_nanos;

/// Calls that report progress, each on its own connection.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) address: SocketAddr,
    pub(crate) era: Era,
    /// The name of the tool that reports progress.
    pub(crate) tool: String,
    pub(crate) streams: usize,
    /// Events on each stream.
    pub(crate) events: u32,
    /// Milliseconds between two events of one stream; zero for no pause.
    pub(crate) every_ms: u64,
}

const PATIENCE: u64 = 120;

impl Progress {
    /// Opens the connections, then makes all calls at once and reads their streams to the end.
    pub(crate) async fn run(&self) -> Result<Served> {
        let mut clients = Vec::new();
        for _ in 0..self.streams {
            clients.push(
                within(
                    "a connection",
                    PATIENCE,
                    Client::open(self.address, self.era),
                )
                .await?,
            );
        }
        let start = Instant::now();
        let mut running = JoinSet::new();
        for client in clients {
            let message = Message::progress(self.era, &self.tool, self.events, self.every_ms);
            let events = self.events;
            running.spawn(async move { follow(client, &message, events).await });
        }
        let mut latencies = Latencies::new()?;
        join_all("the events", PATIENCE, running)
            .await?
            .iter()
            .for_each(|of_one| latencies.add(of_one));
        Ok(Served {
            took: start.elapsed(),
            latencies,
        })
    }
}

async fn follow(mut client: Client, message: &Message, events: u32) -> Result<Latencies> {
    let mut exchange = client.exchange(message);
    let id = Id::number(1);
    let connection: &mut Connection = &mut client.connection;
    let head = connection.send(exchange.with_id(id)).await?;
    if head.status != 200 || !head.events {
        let body = connection.body(&head).await?;
        return Err(unexpected(&head, &body));
    }
    let mut latencies = Latencies::new()?;
    let (mut body, mut complete, mut seen) = (Body::new(&head), false, 0);
    loop {
        while let Some(event) = body.next_event() {
            // A resumable stream begins with an event that has an id and no data (2025-11-25
            // basic/transports, Listening for Messages from the Server).
            if event.is_empty() {
                continue;
            }
            if seen == events {
                // The last event is the answer, in whichever way the stream ends.
                return exchange.check(id, &event).map(|()| latencies);
            }
            let sent = sent_at(&event, seen)?;
            latencies.record(Duration::from_nanos(monotonic_nanos().saturating_sub(sent)));
            seen += 1;
        }
        if complete {
            return Err(BenchError::Wrong(format!(
                "the stream ended after {seen} of {events} events"
            )));
        }
        complete = connection.read_body(&mut body).await?;
    }
}

/// The server's sending time of this event, which must have the number `expected`, in nanoseconds.
fn sent_at(event: &[u8], expected: u32) -> Result<u64> {
    let before = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"token","progress":{expected},"total":"#
    );
    let rest = std::str::from_utf8(event)
        .ok()
        .and_then(|event| event.strip_prefix(&before));
    let time = rest.and_then(|rest| {
        rest.split_once(r#","message":""#)?
            .1
            .strip_suffix(r#""}}"#)?
            .parse()
            .ok()
    });
    time.ok_or_else(|| BenchError::Wrong(format!("not progress {expected}: {}", excerpt(event))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_event_must_be_the_expected_one() {
        let text = |token: &str, progress: u32| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}","progress":{progress},"total":9,"message":"12345"}}}}"#
            )
        };
        assert_eq!(sent_at(text("token", 3).as_bytes(), 3).unwrap(), 12345);
        assert!(
            sent_at(text("token", 4).as_bytes(), 3).is_err(),
            "one is missing"
        );
        assert!(
            sent_at(text("other", 3).as_bytes(), 3).is_err(),
            "another call's"
        );
        assert!(sent_at(b"{}", 0).is_err());
    }
}
