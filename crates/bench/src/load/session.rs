//! A client: a connection and, in the legacy era, a session on it.

use std::net::SocketAddr;

use tokio_rustls::TlsConnector;

use super::connection::{Connection, unexpected};
use super::request::{Exchange, Id, Message, bare, initialized};
use crate::era::Era;
use crate::error::{BenchError, Result};

/// A client that can send requests.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) session: Option<String>,
}

impl Client {
    pub(crate) async fn open(address: SocketAddr, era: Era) -> Result<Self> {
        Self::open_with(address, era, None).await
    }

    /// On a connection that is secured by `tls`, if there is one.
    pub(crate) async fn open_with(address: SocketAddr, era: Era, tls: Option<&TlsConnector>) -> Result<Self> {
        let mut connection = Connection::open(address, tls).await?;
        let session = match era {
            Era::Modern => None,
            Era::Legacy => Some(open_session(&mut connection).await?),
        };
        Ok(Self { connection, session })
    }

    /// The request of this client for a message.
    pub(crate) fn exchange(&self, message: &Message) -> Exchange {
        Exchange::post(message, self.session.as_deref())
    }

    /// Sends a request once and checks the answer.
    pub(crate) async fn once(&mut self, message: &Message) -> Result<bytes::Bytes> {
        let mut exchange = self.exchange(message);
        let id = Id::number(0);
        let answer = self.connection.exchange(exchange.with_id(id)).await?;
        exchange.check(id, &answer)?;
        Ok(answer)
    }
}

/// `initialize` and `notifications/initialized`; the id of the session.
pub(crate) async fn open_session(connection: &mut Connection) -> Result<String> {
    let mut exchange = Exchange::post(&Message::initialize(), None);
    let id = Id::number(0);
    let head = connection.send(exchange.with_id(id)).await?;
    let answer = connection.body(&head).await?;
    if head.status != 200 {
        return Err(unexpected(&head, &answer));
    }
    exchange.check(id, &answer)?;
    let session = head.session.ok_or_else(|| BenchError::Wrong("a session without an id".into()))?;
    let head = connection.send(&initialized(&session)).await?;
    let body = connection.body(&head).await?;
    if head.status == 202 { Ok(session) } else { Err(unexpected(&head, &body)) }
}

/// Ends a session (DELETE).
pub(crate) async fn close_session(connection: &mut Connection, session: &str) -> Result<()> {
    let head = connection.send(&bare("DELETE", "/mcp", Some(session))).await?;
    let body = connection.body(&head).await?;
    if matches!(head.status, 200 | 204) { Ok(()) } else { Err(unexpected(&head, &body)) }
}
