//! The scripted server over Streamable HTTP, on hyper.

use std::convert::Infallible;
use std::future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::reply::End;
use super::{Era, Fault, Received, Reply, Shared, huge_result, response};

type Body = BoxBody<Bytes, io::Error>;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Connections are served by tasks of this set, which end with the server.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
            // An error here is a connection that a fault or the client ended.
            let _ =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service).await;
        });
    }
}

/// `Err` closes the connection without an answer.
async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, io::Error> {
    let (head, body) = request.into_parts();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    if head.method != Method::POST {
        shared.record(Received { text: String::new(), headers, method: format!("HTTP {}", head.method) });
        let status = if head.method == Method::DELETE { StatusCode::OK } else { StatusCode::METHOD_NOT_ALLOWED };
        return Ok(plain(status, "text/plain", ""));
    }
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let text = String::from_utf8(body.into()).expect("UTF-8 in a body");
    let request = shared.record(Received::message(text, headers));
    match shared.reply(&request) {
        Some(reply) if reply.stream || !reply.before.is_empty() => Ok(streamed(reply, request, shared)),
        Some(reply) => single(reply, request, shared).await,
        None => Ok(plain(StatusCode::ACCEPTED, "text/plain", "")),
    }
}

/// An answer that is one JSON object, or a fault in its place.
async fn single(reply: Reply, request: Arc<Received>, shared: Arc<Shared>) -> Result<Response<Body>, io::Error> {
    let waiting = Waiting::new(&shared, &request);
    if let Some(gate) = &reply.gate {
        gate.pass().await;
    }
    let (status, member, value) = match reply.end {
        End::Result(result) => (StatusCode::OK, "result", result),
        End::Compute(compute) => (StatusCode::OK, "result", compute(&request)),
        End::Error(error) => (error_status(shared.era, &error), "error", error),
        End::Fault(Fault::Huge(size)) => (StatusCode::OK, "result", huge_result(size)),
        End::Fault(Fault::Hang) => future::pending().await,
        End::Fault(Fault::Die(_)) => return Err(io::ErrorKind::ConnectionAborted.into()),
        End::Fault(Fault::Status(status, kind, body)) => {
            waiting.answered();
            return Ok(plain(StatusCode::from_u16(status).unwrap(), kind, body));
        }
        End::Fault(Fault::Garbage(bytes, _)) => {
            waiting.answered();
            return Ok(plain(StatusCode::OK, "application/json", bytes));
        }
        End::Fault(Fault::BreakOff) => {
            waiting.answered();
            let half = response(&request, "result", r#"{"content":[]"#);
            return Ok(body_of("application/json", broken_off(half)));
        }
        End::Fault(fault @ Fault::HalfEvent) => panic!("{fault:?} needs a stream"),
    };
    waiting.answered();
    let mut answer = plain(status, "application/json", response(&request, member, &value));
    if request.method() == "initialize" && shared.era == Era::Legacy && status == StatusCode::OK {
        static SESSION: AtomicUsize = AtomicUsize::new(1);
        let session = format!("session-{}", SESSION.fetch_add(1, Ordering::Relaxed));
        answer.headers_mut().insert("mcp-session-id", HeaderValue::from_str(&session).unwrap());
    }
    Ok(answer)
}

/// An answer as an event stream.
fn streamed(reply: Reply, request: Arc<Received>, shared: Arc<Shared>) -> Response<Body> {
    let (events, received) = mpsc::channel(1);
    tokio::spawn(async move {
        let waiting = Waiting::new(&shared, &request);
        tokio::select! {
            () = send_events(&events, reply, &request) => waiting.answered(),
            () = events.closed() => {}
        }
    });
    let body = stream::unfold(received, |mut received| async {
        let frame: Option<Result<Frame<Bytes>, io::Error>> = received.recv().await;
        Some((frame?, received))
    });
    body_of("text/event-stream", StreamBody::new(body).boxed())
}

type Events = mpsc::Sender<Result<Frame<Bytes>, io::Error>>;

async fn send_events(events: &Events, reply: Reply, request: &Received) {
    for message in reply.messages_before(request) {
        send(events, &event(&message)).await;
    }
    if let Some(gate) = &reply.gate {
        gate.pass().await;
    }
    let last = match reply.end {
        End::Result(result) => event(&response(request, "result", &result)),
        End::Compute(compute) => event(&response(request, "result", &compute(request))),
        End::Error(error) => event(&response(request, "error", &error)),
        End::Fault(Fault::Hang) => future::pending().await,
        End::Fault(Fault::Huge(size)) => event(&response(request, "result", &huge_result(size))),
        End::Fault(Fault::HalfEvent) => {
            let whole = event(&response(request, "result", r#"{"content":[]}"#));
            whole[..whole.len() / 2].to_owned()
        }
        End::Fault(Fault::BreakOff | Fault::Die(_)) => {
            let _ = events.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
            return;
        }
        End::Fault(Fault::Garbage(bytes, result)) => {
            let _ = events.send(Ok(Frame::data(bytes.into()))).await;
            event(&response(request, "result", &result))
        }
        End::Fault(fault @ Fault::Status(..)) => panic!("{fault:?} comes instead of a stream"),
    };
    send(events, &last).await;
}

fn event(message: &str) -> String {
    format!("event: message\ndata: {message}\n\n")
}

async fn send(events: &Events, text: &str) {
    // The client may be gone; the caller notices by itself.
    let _ = events.send(Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))).await;
}

/// This text, and then the connection is gone.
fn broken_off(text: String) -> Body {
    let body = stream::unfold(Some(text), |text| async {
        match text {
            Some(text) => Some((Ok(Frame::data(text.into())), None)),
            None => {
                // A body that pauses is flushed, so the client gets the text before the connection ends.
                tokio::task::yield_now().await;
                Some((Err(io::ErrorKind::ConnectionAborted.into()), None))
            }
        }
    });
    StreamBody::new(body).boxed()
}

/// Records, if it is dropped without an answer, that the client did not wait for one.
struct Waiting {
    shared: Arc<Shared>,
    method: Option<String>,
}

impl Waiting {
    fn new(shared: &Arc<Shared>, request: &Received) -> Self {
        Self { shared: Arc::clone(shared), method: Some(request.method().to_owned()) }
    }

    fn answered(mut self) {
        self.method = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(method) = self.method.take() {
            self.shared.abandoned.send_modify(|methods| methods.push(method));
        }
    }
}

/// Legacy servers answer errors with 200; the modern revision has statuses for some
/// (2026-07-28 streamable-http, Protocol Version Header). A legacy server knows nothing of `server/discover` before
/// `initialize` and says so with 400, as the official SDKs do.
fn error_status(era: Era, error: &str) -> StatusCode {
    match (era, fanlight_tests::slicer::member(error, "code")) {
        (Era::Modern, Some("-32601")) => StatusCode::NOT_FOUND,
        (Era::Modern, Some("-32020" | "-32021" | "-32022")) => StatusCode::BAD_REQUEST,
        (Era::Legacy, Some("-32601")) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn plain(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed();
    let mut response = body_of(content_type, body);
    *response.status_mut() = status;
    response
}

fn body_of(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
