//! Requests that run in one session or connection, so that the client can cancel them by id.
//!
//! Must not know: what the requests are, or how the cancellation arrived.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use futures_util::task::AtomicWaker;
use slab::Slab;

/// A JSON-RPC id as a value: `"a"` and `"\u0061"` are the same id, `1` and `"1"` are not.
#[derive(Debug, PartialEq, Eq)]
enum RequestId<'a> {
    Number(&'a str),
    String(Cow<'a, str>),
    /// A string that no text can stand for; compared as written.
    Raw(&'a str),
}

impl<'a> RequestId<'a> {
    fn of(id: &'a Json) -> Self {
        match (id.kind(), id.as_str()) {
            (Kind::String, Some(text)) => Self::String(text),
            (Kind::String, None) => Self::Raw(id.as_text()),
            _ if id.as_text() == "-0" => Self::Number("0"),
            _ => Self::Number(id.as_text()),
        }
    }
}

/// The running requests of one session or connection. Nearly all of them end without being cancelled, so
/// entering costs little, and their ids are looked at when one is.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<Slab<Entry>>);

#[derive(Debug)]
struct Entry {
    id: Json,
    signal: Arc<Signal>,
}

/// That one request is cancelled.
#[derive(Debug, Default)]
struct Signal {
    is_given: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    fn give(&self) {
        self.is_given.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl InFlight {
    /// Enters a request. It leaves when the returned [`Stop`] is dropped.
    pub(crate) fn begin(self: &Arc<Self>, id: &Json) -> Stop {
        let signal = Arc::<Signal>::default();
        let key = self.lock().insert(Entry { id: id.clone(), signal: Arc::clone(&signal) });
        Stop { signal, registry: Arc::clone(self), key }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Cancels the request with this id. One that is not running is no error: it may just have
    /// finished (2025-11-25 and 2026-07-28 cancellation, Behavior Requirements).
    pub(crate) fn cancel(&self, id: &Json) {
        let id = RequestId::of(id);
        self.lock().iter().filter(|(_, running)| RequestId::of(&running.id) == id).for_each(|(_, it)| it.signal.give());
    }

    /// Cancels every request.
    pub(crate) fn cancel_all(&self) {
        self.lock().iter().for_each(|(_, running)| running.signal.give());
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cancellation of one request, and its entry among those that run.
#[derive(Debug)]
pub(crate) struct Stop {
    signal: Arc<Signal>,
    registry: Arc<InFlight>,
    key: usize,
}

impl Future for Stop {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Before the look, so that no signal after it is missed.
        self.signal.waker.register(cx.waker());
        if self.signal.is_given.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // Dropped without the lock.
        let _entry = self.registry.lock().try_remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_compared_by_value() {
        let id = Json::literal;
        assert_eq!(RequestId::of(&id(r#""a""#)), RequestId::of(&id(r#""\u0061""#)));
        assert_ne!(RequestId::of(&id("1")), RequestId::of(&id(r#""1""#)));
        assert_eq!(RequestId::of(&id("-0")), RequestId::of(&id("0")));
        assert_eq!(RequestId::of(&id(r#""\ud800""#)), RequestId::of(&id(r#""\ud800""#)));
        assert_ne!(RequestId::of(&id(r#""\ud800""#)), RequestId::of(&id(r#""\ud801""#)));
    }

    #[tokio::test]
    async fn cancels_the_one_with_the_id_and_forgets_it() {
        let running = Arc::new(InFlight::default());
        let first = running.begin(&Json::literal("1"));
        let mut second = running.begin(&Json::literal(r#""1""#));
        running.cancel(&Json::literal("1"));
        first.await;
        assert!(futures_pending(&mut second));
        assert_eq!(running.count(), 1);
        running.cancel(&Json::literal("99"));
        running.cancel_all();
        second.await;
        assert!(running.count() == 0);
    }

    fn futures_pending(stop: &mut Stop) -> bool {
        Pin::new(stop).poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending()
    }
}
