//! The running requests of a session or connection, which the client can cancel by id.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::SessionRequest;
use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::oneshot;

/// A JSON-RPC id as a value: `"a"` and `"\u0061"` are the same id, `1` and `"1"` are not.
#[derive(Debug, PartialEq, Eq)]
enum RequestId<'a> {
    Number(&'a str),
    String(Cow<'a, str>),
    /// A string whose escapes stand for no character; compared as written.
    Raw(&'a str),
}

impl<'a> RequestId<'a> {
    fn new(id: &'a Json) -> Self {
        match (id.kind(), id.as_str()) {
            (Kind::String, Some(text)) => Self::String(text),
            (Kind::String, None) => Self::Raw(id.as_text()),
            _ if id.as_text() == "-0" => Self::Number("0"),
            _ => Self::Number(id.as_text()),
        }
    }
}

/// The running requests of a session or connection. Nearly all end without being cancelled. So
/// adding one is cheap, and ids are compared only on a cancellation.
#[derive(Debug, Default)]
pub(crate) struct RunningRequests(Mutex<Slab<Entry>>);

#[derive(Debug)]
struct Entry {
    id: Json,
    /// A session's request, which other messages of the client can name.
    request: Option<Arc<SessionRequest>>,
    /// `None` after cancellation.
    cancel: Option<oneshot::Sender<()>>,
}

impl RunningRequests {
    /// Adds a request. Dropping the returned [`Cancellation`] removes it.
    pub(crate) fn begin(self: &Arc<Self>, id: &Json) -> Cancellation {
        self.enter(id, None)
    }

    /// [`RunningRequests::begin`] for a request of a session.
    pub(crate) fn begin_named(
        self: &Arc<Self>,
        id: &Json,
        request: Arc<SessionRequest>,
    ) -> Cancellation {
        self.enter(id, Some(request))
    }

    fn enter(self: &Arc<Self>, id: &Json, request: Option<Arc<SessionRequest>>) -> Cancellation {
        let (cancel, cancelled) = oneshot::channel();
        let key = self.0.lock().insert(Entry {
            id: id.clone(),
            request,
            cancel: Some(cancel),
        });
        Cancellation {
            cancelled,
            requests: Arc::clone(self),
            key,
        }
    }

    /// The number of requests.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Cancels the request with this id. An unknown id is no error, since the request may just have
    /// finished (2025-11-25 and 2026-07-28 cancellation, Behavior Requirements).
    /// The server gets the client's `params`.
    pub(crate) fn cancel(&self, id: &Json, params: Option<Json>) {
        let id = RequestId::new(id);
        self.cancel_where(|entry| {
            let is_meant = RequestId::new(&entry.id) == id;
            if let (true, Some(request), Some(params)) = (is_meant, &entry.request, &params) {
                // An error means that the client has cancelled it before.
                let _ = request.cancellation.set(params.detached());
            }
            is_meant
        });
    }

    /// The session's request with this id and this progress token, as far as given; `None` unless
    /// there is exactly one.
    pub(crate) fn find(
        &self,
        id: Option<&Json>,
        token: Option<&Json>,
    ) -> Option<Arc<SessionRequest>> {
        let is_same = |own: Option<&Json>, given: Option<&Json>| {
            given.is_none_or(|given| {
                own.is_some_and(|own| RequestId::new(own) == RequestId::new(given))
            })
        };
        let requests = self.0.lock();
        let mut found = requests.iter().filter_map(|(_, entry)| {
            let request = entry.request.as_ref()?;
            (is_same(Some(&entry.id), id) && is_same(request.progress_token(), token))
                .then_some(request)
        });
        let only = found.next()?;
        found.next().is_none().then(|| Arc::clone(only))
    }

    /// Cancels every request.
    pub(crate) fn cancel_all(&self) {
        self.cancel_where(|_| true);
    }

    fn cancel_where(&self, is_meant: impl Fn(&Entry) -> bool) {
        let mut requests = self.0.lock();
        for (_, entry) in requests.iter_mut().filter(|(_, entry)| is_meant(entry)) {
            // An error means that the request has just ended.
            entry.cancel.take().map(|cancel| cancel.send(()));
        }
    }
}

/// The entry of a request; resolves when the client cancels it. Must not be polled after it has
/// resolved.
#[derive(Debug)]
pub(crate) struct Cancellation {
    cancelled: oneshot::Receiver<()>,
    requests: Arc<RunningRequests>,
    key: usize,
}

impl Future for Cancellation {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Never an error: the sender lives as long as the entry.
        Pin::new(&mut self.cancelled).poll(cx).map(drop)
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        // The entry is dropped without the lock.
        let _entry = self.requests.0.lock().try_remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_compared_by_value() {
        let id = Json::literal;
        assert_eq!(
            RequestId::new(&id(r#""a""#)),
            RequestId::new(&id(r#""\u0061""#))
        );
        assert_ne!(RequestId::new(&id("1")), RequestId::new(&id(r#""1""#)));
        assert_eq!(RequestId::new(&id("-0")), RequestId::new(&id("0")));
        assert_eq!(
            RequestId::new(&id(r#""\ud800""#)),
            RequestId::new(&id(r#""\ud800""#))
        );
        assert_ne!(
            RequestId::new(&id(r#""\ud800""#)),
            RequestId::new(&id(r#""\ud801""#))
        );
    }

    #[tokio::test]
    async fn cancel_reaches_the_request_with_the_id() {
        let running = Arc::new(RunningRequests::default());
        let first = running.begin(&Json::literal("1"));
        let mut second = running.begin(&Json::literal(r#""1""#));
        running.cancel(&Json::literal("1"), None);
        first.await;
        assert!(is_pending(&mut second));
        assert_eq!(running.count(), 1);
        running.cancel(&Json::literal("99"), None);
        running.cancel_all();
        second.await;
        assert!(running.count() == 0);
    }

    #[tokio::test]
    async fn request_is_named_by_its_id_or_its_token() {
        let running = Arc::new(RunningRequests::default());
        let request =
            |token: Option<&'static str>| Arc::new(SessionRequest::new(token.map(Json::literal)));
        let (first, second) = (request(Some(r#""t""#)), request(Some("7")));
        let _first = running.begin_named(&Json::literal("1"), Arc::clone(&first));
        let _second = running.begin_named(&Json::literal("7"), Arc::clone(&second));
        let _unnamed = running.begin(&Json::literal("3"));
        let named = |id: Option<&'static str>, token: Option<&'static str>| {
            let (id, token) = (id.map(Json::literal), token.map(Json::literal));
            let found = running.find(id.as_ref(), token.as_ref())?;
            Some(if Arc::ptr_eq(&found, &first) { 1 } else { 2 })
        };
        assert_eq!(
            (named(Some("1"), None), named(None, Some(r#""\u0074""#))),
            (Some(1), Some(1))
        );
        assert_eq!(
            (named(Some("7"), None), named(Some("7"), Some("7"))),
            (Some(2), Some(2))
        );
        for (id, token) in [
            (Some("1"), Some("7")),
            (Some("3"), None),
            (Some("9"), None),
            (None, Some("1")),
        ] {
            assert_eq!(named(id, token), None, "{id:?} {token:?}");
        }
        assert_eq!(named(None, None), None, "several");
    }

    fn is_pending(cancellation: &mut Cancellation) -> bool {
        Pin::new(cancellation)
            .poll(&mut Context::from_waker(std::task::Waker::noop()))
            .is_pending()
    }
}
