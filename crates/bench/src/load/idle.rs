//! Streams that stay open and are idle most of the time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::task::JoinSet;

use super::connection::{Body, Connection, unexpected};
use super::request::{Exchange, Id, Message, bare};
use super::session::open_session;
use crate::era::Era;
use crate::error::{BenchError, Result, within};

/// Streams that are being opened at the same time.
const AT_ONCE: usize = 32;

const PATIENCE: u64 = 120;

/// One open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    connection: Connection,
    body: Body,
}

/// Opens `count` streams: in the legacy era each of a session of its own, which a GET holds open; in the modern one
/// subscriptions. [`BenchError::Unsupported`] if the system has no such streams.
pub(crate) async fn open(address: SocketAddr, era: Era, count: usize) -> Result<Vec<Stream>> {
    let opening = stream::iter(0..count).map(|_| open_one(address, era)).buffer_unordered(AT_ONCE);
    within("the streams to open", PATIENCE, opening.try_collect()).await
}

async fn open_one(address: SocketAddr, era: Era) -> Result<Stream> {
    let mut connection = Connection::open(address, None).await?;
    let head = match era {
        Era::Legacy => {
            let session = open_session(&mut connection).await?;
            connection.send(&bare("GET", "/mcp", Some(&session))).await?
        }
        Era::Modern => {
            let mut exchange = Exchange::post(&Message::listen(), None);
            connection.send(exchange.with_id(Id::number(0))).await?
        }
    };
    if head.status == 200 && head.events {
        return Ok(Stream { body: Body::new(&head), connection });
    }
    let body = connection.body(&head).await?;
    match unexpected(&head, &body) {
        BenchError::Wrong(what) if matches!(head.status, 404 | 405) || era == Era::Modern => {
            Err(BenchError::Unsupported(format!("no such stream: {what}")))
        }
        other => Err(other),
    }
}

/// How many of the streams get a notification that lists have changed within `patience` of each other.
pub(crate) async fn notified(streams: Vec<Stream>, patience: Duration) -> (usize, Vec<Stream>) {
    let end = Instant::now() + patience;
    let mut waiting = JoinSet::new();
    for mut stream in streams {
        waiting.spawn(async move {
            let changed = tokio::time::timeout_at(end.into(), stream.changed()).await;
            (matches!(changed, Ok(Ok(()))), stream)
        });
    }
    let (mut count, mut streams) = (0, Vec::new());
    while let Some(done) = waiting.join_next().await {
        let Ok((notified, stream)) = done else { continue };
        count += usize::from(notified);
        streams.push(stream);
    }
    (count, streams)
}

impl Stream {
    /// Waits for a notification that the tools have changed.
    async fn changed(&mut self) -> Result<()> {
        loop {
            while let Some(event) = self.body.next_event() {
                if memchr::memmem::find(&event, b"notifications/tools/list_changed").is_some() {
                    return Ok(());
                }
            }
            if self.connection.read_body(&mut self.body).await? {
                return Err(BenchError::Closed("the server"));
            }
        }
    }
}
