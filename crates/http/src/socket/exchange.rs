//! Replaces the socket of a running listener.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::ListeningSocket;

/// The number of exchanges that may wait for the running one.
const WAITING: usize = 1;

/// The next socket of a listener.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// `None` to serve nothing.
    pub(crate) next: Option<Arc<ListeningSocket>>,
    /// Resolved once the listener accepts no more connections on the earlier socket.
    pub(crate) done: oneshot::Sender<()>,
}

/// Gives a listener its sockets, one after the other.
#[derive(Debug)]
pub struct SocketSender {
    exchanges: mpsc::Sender<Exchange>,
    /// Weak, since only the listener keeps the socket open.
    current: Mutex<Weak<ListeningSocket>>,
}

/// The sockets of a listener.
#[derive(Debug)]
pub struct SocketReceiver {
    pub(crate) first: Option<Arc<ListeningSocket>>,
    exchanges: mpsc::Receiver<Exchange>,
}

/// The sockets of a listener that begins with `first`.
pub fn sockets(first: Option<Arc<ListeningSocket>>) -> (SocketSender, SocketReceiver) {
    let (sender, exchanges) = mpsc::channel(WAITING);
    let current = first.as_ref().map(Arc::downgrade).unwrap_or_default();
    (
        SocketSender {
            exchanges: sender,
            current: Mutex::new(current),
        },
        SocketReceiver { first, exchanges },
    )
}

impl SocketSender {
    /// The socket that accepts connections now, if there is one.
    #[must_use]
    pub fn current(&self) -> Option<Arc<ListeningSocket>> {
        self.current.lock().upgrade()
    }

    /// Makes the listener accept connections on `next` instead of its current socket. That socket
    /// then closes, unless another listener uses it. Returns once this is done; false if the
    /// listener has stopped.
    pub async fn exchange(&self, next: Option<Arc<ListeningSocket>>) -> bool {
        let weak = next.as_ref().map(Arc::downgrade).unwrap_or_default();
        let (done, is_done) = oneshot::channel();
        if self.exchanges.send(Exchange { next, done }).await.is_err() || is_done.await.is_err() {
            return false;
        }
        *self.current.lock() = weak;
        true
    }
}

impl SocketReceiver {
    /// The sockets of a listener that keeps its current one.
    pub fn fixed(socket: TcpListener) -> Self {
        sockets(Some(Arc::new(ListeningSocket::own(socket)))).1
    }

    /// The next exchange; never resolves if there can be none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Exchange {
        match self.exchanges.recv().await {
            Some(exchange) => exchange,
            None => std::future::pending().await,
        }
    }
}
