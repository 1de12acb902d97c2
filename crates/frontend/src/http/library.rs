//! The HTTP library on an HTTP/1 connection, with the answers beside it.
//!
//! The library would drive the answer to a request itself, and look at everything that it has to do each time there
//! is something to do for the answer. Here it leaves a request on a desk and finds the response there, and is polled
//! only when there is something for it to do.
//!
//! Must not know: how a request is answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::server::graceful::GracefulConnection;

use super::activity::{Activity, Busy};
use super::connection::{BoxError, Driven};
use super::reply::ReplyBody;
use crate::woken::Woken;

/// The library, until the connection is over or a response is to be sent without it.
pub(super) struct Library<'a, C, A, F> {
    connection: Pin<&'a mut C>,
    /// Whether there is something for the library to do.
    woken: Woken,
    desk: &'a Desk,
    /// Begins to answer a request.
    answer: A,
    /// The answer to the one request that a connection has at a time, until the response is there. In a box, since
    /// the place of this future would else be as large on each way of the connection; always in the same one, since
    /// each request has such a future.
    work: Pin<Box<Option<F>>>,
    /// While there is `work`.
    busy: Option<Busy>,
    /// The response is on the desk, but others have their turn first.
    answered: bool,
    /// A response that is to be sent without the library.
    apart: Option<Box<Response<ReplyBody>>>,
    activity: &'a Arc<Activity>,
}

impl<'a, C, A, F> Library<'a, C, A, F> {
    /// The library that serves `connection` and leaves its requests on `desk`.
    pub(super) fn new(connection: Pin<&'a mut C>, desk: &'a Desk, answer: A, activity: &'a Arc<Activity>) -> Self {
        Self {
            connection,
            woken: Woken::new(),
            desk,
            answer,
            work: Box::pin(None),
            busy: None,
            answered: false,
            apart: None,
            activity,
        }
    }

    /// The response that is to be sent without the library, if that is why it is no longer driven.
    pub(super) fn into_apart(self) -> Option<Box<Response<ReplyBody>>> {
        self.apart
    }
}

impl<C, A, F> Driven for Library<'_, C, A, F>
where
    C: GracefulConnection<Error = hyper::Error>,
    A: FnMut(Request<Incoming>) -> F,
    F: Future<Output = Response<ReplyBody>>,
{
    fn poll_driven(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            self.poll_answer(cx);
            if !self.woken.look(cx) {
                return Poll::Pending;
            }
            if let Poll::Ready(ended) = self.connection.as_mut().poll(&mut self.woken.context()) {
                return Poll::Ready(ended.map_err(Into::into));
            }
            if self.apart.is_some() && !self.activity.is_writing() {
                // It has written all there was before.
                return Poll::Ready(Ok(()));
            }
            let Some(request) = self.desk.request.take() else {
                self.activity.awaits_more();
                return Poll::Pending;
            };
            self.busy = Some(self.activity.begin(false));
            self.work.set(Some((self.answer)(request)));
        }
    }

    fn finish(&mut self) {
        self.connection.as_mut().graceful_shutdown();
        self.woken.again();
    }
}

impl<C, A, F: Future<Output = Response<ReplyBody>>> Library<'_, C, A, F> {
    /// Goes on with the answer. Responses that are there at the same time are written one after the other: clients on
    /// other processors are then woken once for several, and the code that writes is still in the cache.
    fn poll_answer(&mut self, cx: &mut Context<'_>) {
        if let Some(work) = self.work.as_mut().as_pin_mut() {
            let Poll::Ready(mut response) = work.poll(cx) else { return };
            self.work.set(None);
            if let Some(busy) = self.busy.take() {
                response.body_mut().hold(busy);
            }
            if response.body().stands_apart() {
                self.apart = Some(Box::new(response));
            } else {
                self.desk.response.put(response);
            }
            self.answered = true;
            cx.waker().wake_by_ref();
        } else if std::mem::take(&mut self.answered) {
            self.woken.again();
        }
    }
}

/// Where the library leaves a request, and finds the response to it.
#[derive(Default)]
pub(super) struct Desk {
    request: Place<Request<Incoming>>,
    response: Place<Response<ReplyBody>>,
}

impl Desk {
    /// Leaves a request. Gives the response once it is there; who puts it there has this polled.
    pub(super) fn ask(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ReplyBody>, Infallible>> {
        self.request.put(request);
        poll_fn(|_| self.response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))))
    }
}

/// Room for one thing, looked for more often than it is there.
struct Place<T> {
    is_full: AtomicBool,
    thing: Mutex<Option<T>>,
}

impl<T> Place<T> {
    fn put(&self, thing: T) {
        *self.lock() = Some(thing);
        self.is_full.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<T> {
        if !self.is_full.load(Ordering::Acquire) {
            return None;
        }
        self.is_full.store(false, Ordering::Relaxed);
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        // What is in it is only put in and taken out.
        self.thing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self { is_full: AtomicBool::new(false), thing: Mutex::new(None) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use http::StatusCode;
    use http_body_util::BodyExt as _;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::super::activity::{Expired, Watched};
    use super::super::reply;
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);

    /// Serves `stream`; each request is answered by `answer`.
    async fn serve<F: Future<Output = StatusCode>>(
        stream: DuplexStream,
        answer: impl FnMut(usize) -> F,
        finish: impl Future<Output = ()>,
    ) -> Result<(), BoxError> {
        serve_watched(stream, answer, finish, &Activity::new(HEAD, IDLE)).await
    }

    async fn serve_watched<F: Future<Output = StatusCode>>(
        stream: DuplexStream,
        mut answer: impl FnMut(usize) -> F,
        finish: impl Future<Output = ()>,
        activity: &Arc<Activity>,
    ) -> Result<(), BoxError> {
        let desk = Desk::default();
        let stream = Watched::new(stream, Arc::clone(activity));
        let service = service_fn(|request| desk.ask(request));
        let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let mut number = 0;
        let answers = |request: Request<Incoming>| {
            number += 1;
            let status = answer(number);
            async move {
                let body = request.into_body().collect().await.map(|body| body.to_bytes().len());
                let status = if body.is_ok() { status.await } else { StatusCode::BAD_REQUEST };
                reply::empty(status)
            }
        };
        let mut library = Library::new(Pin::new(&mut connection), &desk, answers, activity);
        let mut finish = std::pin::pin!(finish);
        let mut finished = false;
        poll_fn(|cx| {
            if !finished && finish.as_mut().poll(cx).is_ready() {
                finished = true;
                library.finish();
            }
            library.poll_driven(cx)
        })
        .await
    }

    async fn status(client: &mut DuplexStream) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned()
    }

    #[tokio::test]
    async fn requests_are_answered_one_after_the_other_however_they_come() {
        let (mut client, server) = duplex(64 << 10);
        let served = serve(
            server,
            |number| async move {
                for _ in 0..number {
                    tokio::task::yield_now().await;
                }
                if number == 2 { StatusCode::ACCEPTED } else { StatusCode::NO_CONTENT }
            },
            std::future::pending(),
        );
        let ask = async {
            client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab").await.unwrap();
            assert_eq!(status(&mut client).await, "204");
            // Two at once, the first with a body that comes in pieces.
            client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n").await.unwrap();
            for _ in 0..100 {
                client.write_all(&[b'x'; 1000]).await.unwrap();
                tokio::task::yield_now().await;
            }
            client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            assert_eq!(status(&mut client).await, "202");
            assert_eq!(status(&mut client).await, "204");
            drop(client);
        };
        let (served, ()) = tokio::join!(served, ask);
        served.unwrap();
    }

    #[tokio::test]
    async fn an_answer_ends_with_its_client() {
        struct Noted<'a>(&'a Cell<bool>);
        impl Drop for Noted<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let (mut client, server) = duplex(1 << 10);
        let gone = Cell::new(false);
        let begun = tokio::sync::Notify::new();
        let served = serve(
            server,
            |_| async {
                let _noted = Noted(&gone);
                begun.notify_one();
                std::future::pending().await
            },
            std::future::pending(),
        );
        let leave = async {
            client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            begun.notified().await;
            assert!(!gone.get());
            drop(client);
        };
        let (served, ()) = tokio::join!(served, leave);
        assert!(served.is_err() && gone.get());
    }

    #[tokio::test]
    async fn a_connection_that_is_to_finish_does_once_its_request_is_answered() {
        for busy in [false, true] {
            let (mut client, server) = duplex(1 << 10);
            let (finish, answer) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
            let served = serve(
                server,
                |_| async {
                    finish.notify_one();
                    answer.notified().await;
                    StatusCode::NO_CONTENT
                },
                finish.notified(),
            );
            let ask = async {
                if busy {
                    client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    tokio::task::yield_now().await;
                    answer.notify_one();
                    assert_eq!(status(&mut client).await, "204");
                } else {
                    // The connection has been looked at before.
                    tokio::task::yield_now().await;
                    finish.notify_one();
                }
                assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
            };
            let (served, ()) = tokio::join!(served, ask);
            served.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_head_counts_from_its_first_byte() {
        let (mut client, server) = duplex(1 << 10);
        let activity = Activity::new(HEAD, IDLE);
        let began = Cell::new(None);
        let served = serve_watched(server, |_| async { StatusCode::NO_CONTENT }, std::future::pending(), &activity);
        let drip = async {
            client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            assert_eq!(status(&mut client).await, "204");
            tokio::time::sleep(HEAD * 5 / 2).await;
            began.set(Some(Instant::now()));
            for _ in 0..100 {
                client.write_all(b"P").await.unwrap();
                tokio::time::sleep(HEAD / 4).await;
            }
        };
        let expired = tokio::select! {
            _ = served => unreachable!("it is the timer that ends it"),
            () = drip => unreachable!("the head never ends"),
            expired = activity.expired(Duration::ZERO) => expired,
        };
        assert_eq!((expired, began.get().unwrap().elapsed()), (Expired::Stuck, HEAD));
    }
}
