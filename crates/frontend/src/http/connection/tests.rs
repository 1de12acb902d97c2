use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::reply;
use super::*;
use crate::settings::FrontendSettings;

const HEAD: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(75);
const POST: &[u8] = b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n";

/// Answers each request by a function of its number and its body's length.
struct Endpoint<A> {
    answer: A,
    requests: AtomicUsize,
    has_balancer: bool,
}

impl<A, F> Serve for Endpoint<A>
where
    A: Fn(usize) -> F + Send + Sync + 'static,
    F: Future<Output = StatusCode> + Send,
{
    fn has_balancer(&self) -> bool {
        self.has_balancer
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        _: Arc<ConnectionFacts>,
        _: &ActiveRequest,
    ) -> Response<ReplyBody> {
        let number = 1 + self.requests.fetch_add(1, Ordering::Relaxed);
        let is_whole = request.into_body().collect().await.is_ok();
        reply::empty(if is_whole {
            (self.answer)(number).await
        } else {
            StatusCode::BAD_REQUEST
        })
    }
}

fn connection<A>(answer: A, shutdown: &CancellationToken) -> HttpConnection<Endpoint<A>> {
    connection_of(answer, shutdown, false)
}

fn connection_of<A>(
    answer: A,
    shutdown: &CancellationToken,
    has_balancer: bool,
) -> HttpConnection<Endpoint<A>> {
    let cut = CancellationToken::new();
    HttpConnection {
        endpoint: Arc::new(Endpoint {
            answer,
            requests: AtomicUsize::new(0),
            has_balancer,
        }),
        activity: Activity::new(&limits(), shutdown.clone(), cut.clone()),
        limits: Arc::new(limits()),
        cut,
    }
}

fn limits() -> ConnectionLimits {
    let settings = FrontendSettings {
        header_timeout: HEAD,
        idle_connection: IDLE,
        write_timeout: IDLE,
        ..FrontendSettings::default()
    };
    (&settings).into()
}

async fn head(client: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn status(client: &mut DuplexStream) -> String {
    head(client).await.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn requests_are_answered_in_order_however_their_bytes_arrive() {
    let (mut client, server) = duplex(64 << 10);
    let answer = |number| async move {
        for _ in 0..number {
            tokio::task::yield_now().await;
        }
        if number == 2 {
            StatusCode::ACCEPTED
        } else {
            StatusCode::NO_CONTENT
        }
    };
    let served = connection(answer, &CancellationToken::new()).serve_io(server, Arc::default());
    let ask = async {
        client
            .write_all(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab")
            .await
            .unwrap();
        assert_eq!(status(&mut client).await, "204");
        // Two requests at once, the first with a body in pieces.
        client
            .write_all(b"POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n")
            .await
            .unwrap();
        for _ in 0..100 {
            client.write_all(&[b'x'; 1000]).await.unwrap();
            tokio::task::yield_now().await;
        }
        client.write_all(POST).await.unwrap();
        assert_eq!(status(&mut client).await, "202");
        assert_eq!(status(&mut client).await, "204");
        drop(client);
    };
    tokio::join!(served, ask);
}

#[tokio::test]
async fn request_is_dropped_when_its_client_disconnects() {
    struct Noted(Arc<AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (mut client, server) = duplex(1 << 10);
    let (is_dropped, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let answer = {
        let (is_dropped, begun) = (Arc::clone(&is_dropped), Arc::clone(&begun));
        move |_| {
            let (noted, begun) = (Noted(Arc::clone(&is_dropped)), Arc::clone(&begun));
            async move {
                let _noted = noted;
                begun.notify_one();
                pending().await
            }
        }
    };
    let served = connection(answer, &CancellationToken::new()).serve_io(server, Arc::default());
    let leave = async {
        client.write_all(POST).await.unwrap();
        begun.notified().await;
        assert!(!is_dropped.load(Ordering::Relaxed));
        drop(client);
    };
    tokio::join!(served, leave);
    assert!(is_dropped.load(Ordering::Relaxed));
}

#[tokio::test]
async fn connection_ends_on_shutdown_once_its_request_is_answered() {
    for is_busy in [false, true] {
        let (mut client, server) = duplex(1 << 10);
        let (shutdown, answered) = (CancellationToken::new(), Arc::new(Notify::new()));
        let answer = {
            let (shutdown, answered) = (shutdown.clone(), Arc::clone(&answered));
            move |_| {
                shutdown.cancel();
                let answered = Arc::clone(&answered);
                async move {
                    answered.notified().await;
                    StatusCode::NO_CONTENT
                }
            }
        };
        let served = connection(answer, &shutdown).serve_io(server, Arc::default());
        let ask = async {
            if is_busy {
                client.write_all(POST).await.unwrap();
                tokio::task::yield_now().await;
                answered.notify_one();
                assert_eq!(status(&mut client).await, "204");
            } else {
                // Let the connection be polled first.
                tokio::task::yield_now().await;
                shutdown.cancel();
            }
            assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        };
        tokio::join!(served, ask);
    }
}

#[tokio::test(start_paused = true)]
async fn connection_that_was_just_accepted_is_served_its_first_request_after_shutdown() {
    let grace = limits().first_request;
    for (age, delay, is_served) in [
        (Duration::ZERO, grace / 2, true),
        (Duration::ZERO, grace * 2, false),
        (grace, grace / 2, false),
    ] {
        let (mut client, server) = duplex(1 << 10);
        let shutdown = CancellationToken::new();
        let served = connection(|_| async { StatusCode::NO_CONTENT }, &shutdown)
            .serve_io(server, Arc::default());
        let ask = async {
            sleep(age).await;
            shutdown.cancel();
            sleep(delay).await;
            // Two requests at once: only one is served.
            let _ = client.write_all(&[POST, POST].concat()).await;
            let mut answer = String::new();
            let _ = client.read_to_string(&mut answer).await;
            assert_eq!(
                answer.matches("HTTP/1.1 204").count(),
                usize::from(is_served),
                "{age:?} {delay:?} {answer}"
            );
        };
        tokio::join!(served, ask);
    }
}

/// The load balancer may just have sent a request on it.
#[tokio::test(start_paused = true)]
async fn idle_connection_of_a_load_balancer_is_served_one_request_after_shutdown() {
    for (delay, is_served) in [
        (Duration::from_millis(900), true),
        (Duration::from_millis(1100), false),
    ] {
        let (mut client, server) = duplex(1 << 10);
        let shutdown = CancellationToken::new();
        let answer = |_| async { StatusCode::NO_CONTENT };
        let served = connection_of(answer, &shutdown, true).serve_io(server, Arc::default());
        let ask = async {
            client.write_all(POST).await.unwrap();
            assert_eq!(status(&mut client).await, "204");
            shutdown.cancel();
            sleep(delay).await;
            let _ = client.write_all(&[POST, POST].concat()).await;
            let mut answer = String::new();
            let _ = client.read_to_string(&mut answer).await;
            let last = answer.starts_with("HTTP/1.1 204") && answer.contains("connection: close");
            assert_eq!(
                (last, answer.matches("HTTP/1.1").count()),
                (is_served, usize::from(is_served)),
                "{answer}"
            );
        };
        tokio::join!(served, ask);
    }
}

#[tokio::test(start_paused = true)]
async fn head_timeout_counts_from_the_first_byte_of_a_head() {
    let (mut client, server) = duplex(1 << 10);
    let answer = |_| async { StatusCode::NO_CONTENT };
    let served = connection(answer, &CancellationToken::new()).serve_io(server, Arc::default());
    let drip = async {
        client.write_all(POST).await.unwrap();
        assert_eq!(status(&mut client).await, "204");
        sleep(HEAD * 5 / 2).await;
        let start = Instant::now();
        while client.write_all(b"P").await.is_ok() {
            sleep(HEAD / 4).await;
        }
        assert!((HEAD..=HEAD + HEAD / 4).contains(&start.elapsed()));
    };
    tokio::join!(served, drip);
}

/// Answers the second request with a listen-only stream, and the others without a body.
struct Mixed(AtomicUsize);

impl Serve for Mixed {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        _: Arc<ConnectionFacts>,
        _: &ActiveRequest,
    ) -> Response<ReplyBody> {
        // The response does not wait for the body.
        tokio::spawn(request.into_body().collect());
        if self.0.fetch_add(1, Ordering::Relaxed) == 1 {
            let events = ["data: 1\n\n", "data: 2\n\n"]
                .map(Bytes::from)
                .into_iter()
                .collect();
            let mut response = reply::events(events, None);
            response.body_mut().bypasses_hyper = true;
            return response;
        }
        reply::empty(StatusCode::ACCEPTED)
    }
}

#[tokio::test]
async fn listen_only_stream_is_sent_between_the_responses_that_hyper_sends() {
    // Smaller than the head of a response.
    let (mut client, server) = duplex(16);
    let connection = HttpConnection {
        endpoint: Arc::new(Mixed(AtomicUsize::new(0))),
        activity: Activity::new(
            &limits(),
            CancellationToken::new(),
            CancellationToken::new(),
        ),
        limits: Arc::new(limits()),
        cut: CancellationToken::new(),
    };
    let served = connection.serve_io(server, Arc::default());
    let ask = async {
        // The first response blocks before its request has been read completely. So the second
        // request is read while part of that response is still in hyper's buffer.
        for bytes in [
            "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab",
            "cd",
            &"GET / HTTP/1.1\r\n\r\n".repeat(2),
        ] {
            client.write_all(bytes.as_bytes()).await.unwrap();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        let first = head(&mut client).await;
        let stream = head(&mut client).await;
        let mut events = [0; 33];
        client.read_exact(&mut events).await.unwrap();
        (
            first,
            stream,
            String::from_utf8(events.to_vec()).unwrap(),
            head(&mut client).await,
        )
    };
    let (first, stream, events, third) = tokio::select! {
        received = ask => received,
        () = served => unreachable!("the client keeps the connection"),
    };
    assert!(first.starts_with("HTTP/1.1 202 "), "{first}");
    assert!(
        stream.starts_with("HTTP/1.1 200 ") && stream.contains("transfer-encoding: chunked\r\n"),
        "{stream}"
    );
    assert_eq!(events, "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    assert!(third.starts_with("HTTP/1.1 202 "), "{third}");
}

#[tokio::test]
async fn response_is_written_after_tasks_that_are_ready() {
    let order = Mutex::new(Vec::new());
    let response = async {
        yield_to_other_tasks().await;
        order.lock().push("response");
    };
    tokio::join!(response, async { order.lock().push("other") });
    assert_eq!(order.into_inner(), ["other", "response"]);
}
