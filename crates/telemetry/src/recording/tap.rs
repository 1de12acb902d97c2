//! The tap: the edges give it each message, and a recording takes them from its queue. Nothing waits
//! for a recording: what does not fit into the queue is counted as lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Framing, Loss, Side, To};

/// The limits of the queue: bytes of messages, and messages.
const QUEUE: (usize, usize) = (32 << 20, 64 << 10);
/// The limit of bytes that are taken from the queue at once.
const BATCH: usize = 1 << 20;

/// A number that nothing else in this process has: of a connection, or of an exchange.
#[must_use]
pub fn fresh_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The messages that a recording keeps.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The path of the endpoint; `None` for all.
    pub endpoint: Option<Box<str>>,
    /// The names of the servers; empty for all.
    pub servers: Vec<Box<str>>,
}

impl Selection {
    /// Whether the recording keeps messages of this server.
    #[must_use]
    pub fn has_server(&self, name: &str) -> bool {
        self.servers.is_empty() || self.servers.iter().any(|server| **server == *name)
    }

    fn keeps(&self, captured: &Captured) -> bool {
        match &captured.peer {
            Party::Client { endpoint } => self.has_endpoint(endpoint),
            Party::Server { name } => self.has_server(name),
        }
    }

    fn has_endpoint(&self, path: &str) -> bool {
        self.endpoint.as_deref().is_none_or(|only| only == path)
    }
}

/// The other side of a recorded connection.
#[derive(Clone, Debug)]
pub enum Party {
    /// A client.
    Client {
        /// The endpoint's path.
        endpoint: Arc<str>,
    },
    /// A server.
    Server {
        /// The server's name.
        name: Arc<str>,
    },
}

impl Party {
    pub(super) fn side(&self) -> Side {
        match self {
            Self::Client { .. } => Side::Client,
            Self::Server { .. } => Side::Server,
        }
    }
}

/// A message as an edge gives it to the tap.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The other side of the connection.
    pub peer: Party,
    /// The number of the connection.
    pub connection: u64,
    /// The key of the client's session, if it has one.
    pub session: Option<u64>,
    /// The number of the exchange.
    pub exchange: u64,
    /// The direction.
    pub to: To,
    /// The form in which it travels.
    pub kind: Framing,
    /// `http`, `sse` or `stdio`.
    pub transport: &'static str,
    /// The revision of the protocol, unless nothing tells it.
    pub revision: Option<&'static str>,
    /// The method of the HTTP request.
    pub method: Option<&'static str>,
    /// The status of the HTTP response.
    pub status: Option<u16>,
    /// All headers, by lower-case name.
    pub headers: Vec<(Box<str>, Bytes)>,
    /// The text in pieces. The text of [`Framing::Event`] is an event stream, unless it comes from
    /// a server.
    pub text: Vec<Bytes>,
    /// The exchange of the client's message that caused it; 0 if none is known.
    pub cause: u64,
}

impl Captured {
    /// A line of a stream, whose messages share an exchange. Edges replace what differs.
    pub fn line(peer: Party, connection: u64, text: Bytes) -> Self {
        Self {
            peer,
            connection,
            session: None,
            exchange: connection,
            to: To::Client,
            kind: Framing::Line,
            transport: "stdio",
            revision: None,
            method: None,
            status: None,
            headers: Vec::new(),
            text: vec![text],
            cause: 0,
        }
    }
}

/// The place at which both edges deliver messages for a recording. Off, it costs one read of a flag.
#[derive(Debug, Default)]
pub struct Tap {
    is_on: AtomicBool,
    active: Mutex<Option<Arc<Active>>>,
}

#[derive(Debug)]
struct Active {
    selection: Selection,
    queue: Mutex<Queue>,
    arrived: Notify,
}

/// An entry of the queue.
#[derive(Debug)]
pub(crate) enum Item {
    Message(Box<Captured>),
    /// The value of a header that the edge adds after it has given the message to the tap.
    Secret(Bytes),
}

impl Item {
    fn len(&self) -> usize {
        match self {
            Self::Message(captured) => captured.text.iter().map(Bytes::len).sum(),
            Self::Secret(value) => value.len(),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Instant, Item)>,
    bytes: usize,
    lost: Loss,
    /// Whether the recording has ended, and takes no more.
    is_closed: bool,
}

impl Tap {
    /// Whether there is a recording.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The number for a new exchange; 0 if nothing records it.
    #[inline]
    #[must_use]
    pub fn exchange(&self) -> u64 {
        if self.is_on() { fresh_number() } else { 0 }
    }

    /// The number for a new exchange with a client at this endpoint; 0 if nothing records it.
    #[inline]
    #[must_use]
    pub fn exchange_at(&self, endpoint: &str) -> u64 {
        if !self.is_on() {
            return 0;
        }
        self.running()
            .filter(|active| active.selection.has_endpoint(endpoint))
            .map_or(0, |_| fresh_number())
    }

    /// Gives a message to the recording, if there is one; else does not ask for it. Does not wait.
    #[inline]
    pub fn capture(&self, message: impl FnOnce() -> Captured) {
        if self.is_on() {
            self.keep(message());
        }
    }

    fn keep(&self, captured: Captured) {
        let active = self.running();
        if let Some(active) = active.filter(|active| active.selection.keeps(&captured)) {
            active.push(Item::Message(Box::new(captured)));
        }
    }

    /// Tells the recording, if there is one, a credential that its messages may contain.
    pub fn hide(&self, value: &[u8]) {
        if let Some(active) = self.running() {
            active.push(Item::Secret(Bytes::copy_from_slice(value)));
        }
    }

    /// Ends the recording, if there is one. Its reader still gets what was captured.
    pub fn end(&self) {
        if let Some(active) = self.running() {
            active.end();
        }
    }

    fn running(&self) -> Option<Arc<Active>> {
        self.active.lock().clone()
    }

    /// Starts a recording; `None` while there is one.
    #[must_use]
    pub fn start(self: &Arc<Self>, selection: Selection) -> Option<Captures> {
        let mut place = self.active.lock();
        if place.is_some() {
            return None;
        }
        let active = Arc::new(Active {
            selection,
            queue: Mutex::default(),
            arrived: Notify::new(),
        });
        *place = Some(Arc::clone(&active));
        drop(place);
        self.is_on.store(true, Ordering::Relaxed);
        Some(Captures {
            tap: Arc::clone(self),
            active,
        })
    }
}

impl Active {
    fn push(&self, item: Item) {
        self.queue.lock().push(item);
        self.arrived.notify_one();
    }

    fn end(&self) {
        self.queue.lock().is_closed = true;
        self.arrived.notify_one();
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost == Loss::default()
    }

    /// Whether messages may come, and none has.
    fn is_waiting(&self) -> bool {
        !self.is_closed && self.is_empty()
    }

    fn push(&mut self, item: Item) {
        if self.is_closed {
            return;
        }
        let bytes = item.len();
        if self.bytes.saturating_add(bytes) > QUEUE.0 || self.waiting.len() >= QUEUE.1 {
            self.lost.messages += 1;
            self.lost.bytes += bytes as u64;
            return;
        }
        self.bytes += bytes;
        // The clock is read under the lock, so that the queue is in the order of time.
        self.waiting.push_back((Instant::now(), item));
    }

    fn take(&mut self) -> Batch {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH
            && let Some(next) = self.waiting.pop_front()
        {
            bytes += next.1.len();
            items.push(next);
        }
        self.bytes -= bytes;
        // Losses come after all messages that did fit.
        let lost = match self.waiting.is_empty() {
            true => std::mem::take(&mut self.lost),
            false => Loss::default(),
        };
        Batch {
            is_last: self.is_closed && self.is_empty(),
            items,
            lost,
        }
    }
}

/// Messages that were taken from the queue, and the loss after them.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) items: Vec<(Instant, Item)>,
    pub(crate) lost: Loss,
    /// Whether the recording has ended, and nothing else was captured.
    pub is_last: bool,
}

/// The messages of a running recording. Dropping it ends the recording.
#[derive(Debug)]
pub struct Captures {
    tap: Arc<Tap>,
    active: Arc<Active>,
}

impl Captures {
    /// Waits until there are messages, or the recording has ended.
    pub async fn arrived(&self) {
        while self.active.queue.lock().is_waiting() {
            self.active.arrived.notified().await;
        }
    }

    /// Ends the recording. Captured messages can still be taken.
    pub fn end(&self) {
        self.active.end();
    }

    /// The messages that wait, without waiting for others.
    #[must_use]
    pub fn take(&self) -> Batch {
        self.active.queue.lock().take()
    }

    /// The messages that the recording keeps.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.active.selection
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.tap.is_on.store(false, Ordering::Relaxed);
        *self.tap.active.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(endpoint: &str, text: Bytes) -> Captured {
        let endpoint = endpoint.into();
        Captured {
            to: To::Server,
            ..Captured::line(Party::Client { endpoint }, 1, text)
        }
    }

    #[test]
    fn one_recording_gets_what_it_selects_while_it_lasts() {
        let tap = Arc::new(Tap::default());
        assert_eq!(
            (tap.is_on(), tap.exchange(), tap.exchange_at("/a")),
            (false, 0, 0)
        );
        tap.capture(|| panic!("nothing is recorded"));
        let selection = Selection {
            endpoint: Some("/a".into()),
            servers: vec!["s".into()],
        };
        let captures = tap.start(selection.clone()).unwrap();
        assert!(tap.start(selection).is_none() && captures.selection().has_server("s"));
        assert!(tap.exchange_at("/a") > 0 && tap.exchange_at("/b") == 0 && tap.exchange() > 0);
        for endpoint in ["/a", "/b", "/a"] {
            tap.capture(|| captured(endpoint, Bytes::from_static(b"x")));
        }
        assert_eq!(captures.take().items.len(), 2);
        // Messages after the end are in no batch.
        tap.capture(|| captured("/a", Bytes::new()));
        tap.end();
        tap.capture(|| captured("/a", Bytes::new()));
        let last = captures.take();
        assert_eq!((last.items.len(), last.is_last), (1, true));
        drop(captures);
        assert!(!tap.is_on() && tap.start(Selection::default()).is_some());
    }

    #[test]
    fn what_does_not_fit_is_counted_and_told_once() {
        let tap = Arc::new(Tap::default());
        let captures = tap.start(Selection::default()).unwrap();
        let large = Bytes::from(vec![b'x'; QUEUE.0 / 4]);
        for _ in 0..6 {
            tap.capture(|| captured("/", large.clone()));
        }
        let mut taken = Vec::new();
        for _ in 0..5 {
            let batch = captures.take();
            taken.push((batch.items.len(), batch.lost.messages));
        }
        assert_eq!(taken, [(1, 0), (1, 0), (1, 0), (1, 2), (0, 0)]);
        assert_eq!(captures.active.queue.lock().bytes, 0);
    }
}
