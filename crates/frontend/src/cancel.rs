//! Requests that run in one session or connection, so that the client can cancel them by id.
//!
//! Must not know: what the requests are, or how the cancellation arrived.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A JSON-RPC id as a value: `"a"` and `"\u0061"` are the same id, `1` and `"1"` are not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestId {
    Number(Box<str>),
    String(Box<str>),
    /// A string that no text can stand for; compared as written.
    Raw(Box<str>),
}

impl RequestId {
    fn of(id: &Json) -> Self {
        match (id.kind(), id.as_str()) {
            (Kind::String, Some(text)) => Self::String(text.as_ref().into()),
            (Kind::String, None) => Self::Raw(id.as_text().into()),
            _ if id.as_text() == "-0" => Self::Number("0".into()),
            _ => Self::Number(id.as_text().into()),
        }
    }
}

/// The running requests of one session or connection.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<u64, (RequestId, CancellationToken)>,
    next: u64,
}

impl InFlight {
    /// Enters a request. It leaves when the returned [`Stop`] is dropped.
    pub(crate) fn begin(self: &Arc<Self>, id: &Json) -> Stop {
        let token = CancellationToken::new();
        let mut table = self.lock();
        let key = table.next;
        table.next += 1;
        table.calls.insert(key, (RequestId::of(id), token.clone()));
        drop(table);
        Stop { signal: Box::pin(token.cancelled_owned()), registry: Arc::clone(self), key }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().calls.len()
    }

    /// Cancels the request with this id. One that is not running is no error: it may just have
    /// finished (2025-11-25 and 2026-07-28 cancellation, Behavior Requirements).
    pub(crate) fn cancel(&self, id: &Json) {
        let id = RequestId::of(id);
        for (_, token) in self.lock().calls.values().filter(|(running, _)| *running == id) {
            token.cancel();
        }
    }

    /// Cancels every request.
    pub(crate) fn cancel_all(&self) {
        for (_, token) in self.lock().calls.values() {
            token.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cancellation of one request, and its entry among those that run.
#[derive(Debug)]
pub(crate) struct Stop {
    signal: Pin<Box<WaitForCancellationFutureOwned>>,
    registry: Arc<InFlight>,
    key: u64,
}

impl Future for Stop {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.signal.as_mut().poll(cx)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.registry.lock().calls.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_compared_by_value() {
        let id = |text: &'static str| RequestId::of(&Json::literal(text));
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert_ne!(id("1"), id(r#""1""#));
        assert_eq!(id("-0"), id("0"));
        assert_eq!(id(r#""\ud800""#), id(r#""\ud800""#));
        assert_ne!(id(r#""\ud800""#), id(r#""\ud801""#));
    }

    #[tokio::test]
    async fn cancels_the_one_with_the_id_and_forgets_it() {
        let running = Arc::new(InFlight::default());
        let first = running.begin(&Json::literal("1"));
        let mut second = running.begin(&Json::literal(r#""1""#));
        running.cancel(&Json::literal("1"));
        first.await;
        assert!(futures_pending(&mut second));
        assert_eq!(running.lock().calls.len(), 1);
        running.cancel(&Json::literal("99"));
        running.cancel_all();
        second.await;
        assert!(running.lock().calls.is_empty());
    }

    fn futures_pending(stop: &mut Stop) -> bool {
        Pin::new(stop).poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending()
    }
}
