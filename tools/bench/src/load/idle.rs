//! Open streams that are mostly idle.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::task::JoinSet;

use super::connection::{Body, Connection, unexpected};
use super::head::bare;
use super::request::{Exchange, Id, Message};
use super::session::Client;
use crate::access::Access;
use crate::era::Era;
use crate::error::{BenchError, Result, within};

/// Streams that are opened at the same time.
const AT_ONCE: usize = 32;

const PATIENCE: u64 = 120;

/// One open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    connection: Connection,
    body: Body,
}

/// Opens `count` streams. In the legacy era each belongs to its own session, which a GET holds
/// open; in the modern era they are subscriptions. Returns [`BenchError::Unsupported`] if the
/// system has no such streams.
pub(crate) async fn open(
    address: SocketAddr,
    access: &Access,
    era: Era,
    count: usize,
) -> Result<Vec<Stream>> {
    let opening = stream::iter(0..count)
        .map(|_| open_one(address, access, era))
        .buffer_unordered(AT_ONCE);
    within("the streams to open", PATIENCE, opening.try_collect()).await
}

async fn open_one(address: SocketAddr, access: &Access, era: Era) -> Result<Stream> {
    let client = Client::open_with(address, era, access).await?;
    hold(client, access, era).await
}

/// Opens the stream of a client on its connection.
pub(crate) async fn hold(client: Client, access: &Access, era: Era) -> Result<Stream> {
    let Client {
        mut connection,
        session,
    } = client;
    let token = access.token.as_deref();
    let head = match era {
        Era::Legacy => {
            connection
                .send(&bare("GET", "/mcp", session.as_deref(), token))
                .await?
        }
        Era::Modern => {
            let mut exchange = Exchange::post(&Message::listen().with_token(token), None);
            connection.send(exchange.with_id(Id::number(0))).await?
        }
    };
    if head.status == 200 && head.events {
        return Ok(Stream {
            body: Body::new(&head),
            connection,
        });
    }
    let body = connection.body(&head).await?;
    match unexpected(&head, &body) {
        BenchError::Wrong(what) | BenchError::Refused(what)
            if matches!(head.status, 404 | 405) || era == Era::Modern =>
        {
            Err(BenchError::Unsupported(format!("no such stream: {what}")))
        }
        other => Err(other),
    }
}

/// The number of streams that get a notification about changed lists, each within `patience` of the
/// previous one.
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
        let Ok((notified, stream)) = done else {
            continue;
        };
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
