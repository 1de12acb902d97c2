//! A client: a connection and, in the legacy era, a session on it.

use std::net::SocketAddr;

use super::connection::{Connection, unexpected};
use super::head::{bare, initialized};
use super::request::{Exchange, Id, Message};
use crate::access::Access;
use crate::era::Era;
use crate::error::Result;

/// A client that can send requests.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) session: Option<String>,
}

impl Client {
    pub(crate) async fn open(address: SocketAddr, era: Era) -> Result<Self> {
        Self::open_with(address, era, &Access::default()).await
    }

    /// Opens a client with the token and TLS in `access`, if any.
    pub(crate) async fn open_with(address: SocketAddr, era: Era, access: &Access) -> Result<Self> {
        let mut connection = Connection::open(address, access.tls.as_ref()).await?;
        let session = match era {
            Era::Modern => None,
            Era::Legacy => open_session(&mut connection, access).await?,
        };
        Ok(Self {
            connection,
            session,
        })
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

/// Sends `initialize` and `notifications/initialized`; returns the session id, if the server gives
/// one.
pub(crate) async fn open_session(
    connection: &mut Connection,
    access: &Access,
) -> Result<Option<String>> {
    let token = access.token.as_deref();
    let mut exchange = Exchange::post(&Message::initialize().with_token(token).leniently(), None);
    let id = Id::number(0);
    let head = connection.send(exchange.with_id(id)).await?;
    let answer = connection.body(&head).await?;
    if head.status != 200 {
        return Err(unexpected(&head, &answer));
    }
    exchange.check(id, &answer)?;
    let session = head.session;
    let head = connection
        .send(&initialized(session.as_deref(), token))
        .await?;
    let body = connection.body(&head).await?;
    if matches!(head.status, 200 | 202 | 204) {
        Ok(session)
    } else {
        Err(unexpected(&head, &body))
    }
}

/// Ends a session (DELETE).
pub(crate) async fn close_session(
    connection: &mut Connection,
    session: &str,
    access: &Access,
) -> Result<()> {
    let head = connection
        .send(&bare(
            "DELETE",
            "/mcp",
            Some(session),
            access.token.as_deref(),
        ))
        .await?;
    let body = connection.body(&head).await?;
    if matches!(head.status, 200 | 204) {
        Ok(())
    } else {
        Err(unexpected(&head, &body))
    }
}
