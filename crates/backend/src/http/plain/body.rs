//! The body of a response, with the connection it comes on.
//!
//! Must not know: what a body says.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;

use super::Error;
use super::connection::Connection;
use super::pool::Pool;

/// See the module.
pub(in crate::http) struct Body {
    // What is dropped first is declared first: the connection is told that nobody reads on.
    incoming: Incoming,
    held: Held,
}

/// A connection in use. Goes back to the pool if it can be used again.
pub(super) struct Held {
    pub(super) pool: Arc<Pool>,
    /// Taken when this is dropped.
    pub(super) connection: Option<Box<Connection>>,
}

impl Body {
    pub(super) fn new(incoming: Incoming, held: Held) -> Self {
        Self { incoming, held }
    }

    /// The length of what is left, if it is known.
    pub(in crate::http) fn length(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// The next piece; `None` at the end.
    pub(in crate::http) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        let Self { incoming, held: Held { connection: Some(connection), .. } } = self else {
            return Poll::Ready(Ok(None));
        };
        loop {
            let frame = ready!(connection.poll_frame(incoming, cx)).transpose().map_err(Error::Connection)?;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => return Poll::Ready(Ok(Some(data))),
                // Trailers say nothing here.
                Some(Err(_)) => {}
                None => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && connection.is_free()
        {
            self.pool.give(connection);
        }
    }
}
