//! The scripted server over Streamable HTTP, on hyper: HTTP/1.1, and HTTP/2 if the client begins
//! with it.

use std::convert::Infallible;
use std::future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::slicer::member;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::channel::{Channel, Events, event};
use super::reply::End;
use super::{Era, Fault, REFUSED, Received, Reply, Shared, Stream, huge_result, response};

type Body = BoxBody<Bytes, io::Error>;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Tasks of this set serve the connections and end with the server.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
            let mut first = [0; 3];
            let is_http2 = connection.peek(&mut first).await.is_ok() && &first == b"PRI";
            let connection = TokioIo::new(connection);
            // An error means that a fault or the client has ended the connection.
            let _ = match is_http2 {
                true => {
                    http2::Builder::new(TokioExecutor::new())
                        .serve_connection(connection, service)
                        .await
                }
                false => {
                    http1::Builder::new()
                        .serve_connection(connection, service)
                        .await
                }
            };
        });
    }
}

/// `Err` closes the connection without a response.
async fn handle(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, io::Error> {
    let (head, body) = request.into_parts();
    let protection = shared.protection.lock().unwrap().clone();
    if let Some(described) = head
        .uri
        .path()
        .strip_prefix("/.well-known/oauth-protected-resource")
    {
        let resource = protection
            .and_then(|protection| protection.resource)
            .filter(|_| described == "/mcp");
        let status = if resource.is_some() {
            StatusCode::OK
        } else {
            StatusCode::NOT_FOUND
        };
        return Ok(plain(
            status,
            "application/json",
            resource.unwrap_or_default(),
        ));
    }
    let headers: Vec<(String, String)> = head
        .headers
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let text = String::from_utf8(body.into()).expect("UTF-8 in a body");
    let shown = Received::message(text.clone(), headers.clone());
    if let Some((status, fields)) = protection.and_then(|protection| protection.refusal(&shown)) {
        shared.record(Received {
            text: String::new(),
            method: REFUSED.to_owned(),
            ..shown
        });
        let mut refusal = plain(status, "text/plain", "");
        let field = |(name, value): (_, String)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(&value).unwrap(),
            )
        };
        refusal.headers_mut().extend(fields.into_iter().map(field));
        return Ok(refusal);
    }
    if head.method != Method::POST {
        let request = shared.record(Received {
            text: String::new(),
            headers,
            process: None,
            method: format!("HTTP {}", head.method),
        });
        match shared.reply(&request) {
            Some(reply) if matches!(reply.end, End::Driven) => {
                // The reply's gate may hold back the head of the stream.
                reply.take_steps(&request, &shared, None).await;
                return Ok(driven(request, shared));
            }
            Some(reply) => return single(reply, request, shared).await,
            None => {}
        }
        return Ok(match head.method {
            Method::DELETE => plain(StatusCode::OK, "text/plain", ""),
            _ => plain(StatusCode::METHOD_NOT_ALLOWED, "text/plain", ""),
        });
    }
    let request = shared.record(Received::message(text, headers));
    match shared.reply(&request) {
        Some(reply) if matches!(reply.end, End::Driven) => Ok(driven(request, shared)),
        Some(reply) if matches!(reply.end, End::Acknowledged) => {
            let (stream, response) = unopened(request, &shared);
            // The channel holds one event before the body is polled.
            stream.acknowledge(stream.filter().expect("a filter")).await;
            shared.opened(stream);
            Ok(response)
        }
        Some(reply) if reply.stream || !reply.steps.is_empty() => {
            Ok(streamed(reply, request, shared))
        }
        Some(reply) => single(reply, request, shared).await,
        None => Ok(plain(StatusCode::ACCEPTED, "text/plain", "")),
    }
}

/// A response of one JSON object, or a fault in its place.
async fn single(
    reply: Reply,
    request: Arc<Received>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, io::Error> {
    let waiting = Waiting::new(&shared, &request);
    reply.take_steps(&request, &shared, None).await;
    if let Some(text) = reply.end.response(&request, &[]) {
        waiting.answered();
        shared.record_sent(&text);
        return Ok(whole(&shared, &request, text));
    }
    Ok(match reply.end {
        End::Fault(Fault::Hang) => future::pending().await,
        End::Fault(Fault::Die(_)) => return Err(io::ErrorKind::ConnectionAborted.into()),
        End::Fault(fault) => {
            waiting.answered();
            match fault {
                Fault::Huge(size) => whole(
                    &shared,
                    &request,
                    response(&request, "result", &huge_result(size)),
                ),
                Fault::Status(status, kind, body) => {
                    plain(StatusCode::from_u16(status).unwrap(), kind, body)
                }
                Fault::Garbage(bytes, _) => plain(StatusCode::OK, "application/json", bytes),
                Fault::BreakOff => {
                    let half = response(&request, "result", r#"{"content":[]"#);
                    body_of("application/json", broken_off(half))
                }
                fault => panic!("{fault:?} needs a stream"),
            }
        }
        _ => unreachable!("answered above"),
    })
}

/// A response as one JSON object; the response to `initialize` opens a session.
fn whole(shared: &Shared, request: &Received, text: String) -> Response<Body> {
    // A search comes first, since slicing a long result takes long.
    let error = text
        .contains("\"error\"")
        .then(|| member(&text, "error"))
        .flatten();
    let status = error.map_or(StatusCode::OK, |error| error_status(shared.era, error));
    let mut answer = plain(status, "application/json", text);
    if request.method() == "initialize" && shared.era == Era::Legacy && status == StatusCode::OK {
        static SESSION: AtomicUsize = AtomicUsize::new(1);
        let session = format!("session-{}", SESSION.fetch_add(1, Ordering::Relaxed));
        answer
            .headers_mut()
            .insert("mcp-session-id", HeaderValue::from_str(&session).unwrap());
    }
    answer
}

/// A response as an event stream.
fn streamed(reply: Reply, request: Arc<Received>, shared: Arc<Shared>) -> Response<Body> {
    let (events, received) = mpsc::channel(1);
    tokio::spawn(async move {
        let waiting = Waiting::new(&shared, &request);
        tokio::select! {
            () = send_events(&events, reply, &request, &shared) => waiting.answered(),
            () = events.closed() => {}
        }
    });
    stream_of(received)
}

/// A stream that the test writes.
fn driven(request: Arc<Received>, shared: Arc<Shared>) -> Response<Body> {
    let (stream, response) = unopened(request, &shared);
    shared.opened(stream);
    response
}

fn unopened(request: Arc<Received>, shared: &Arc<Shared>) -> (Stream, Response<Body>) {
    let (events, received) = mpsc::channel(1);
    (
        Stream::of_events(request, events, Arc::clone(shared)),
        stream_of(received),
    )
}

fn stream_of(received: mpsc::Receiver<Option<io::Result<Bytes>>>) -> Response<Body> {
    let body = stream::unfold(received, |mut received| async {
        let part = received.recv().await??;
        Some((part.map(Frame::data), received))
    });
    body_of("text/event-stream", StreamBody::new(body).boxed())
}

async fn send_events(events: &Events, reply: Reply, request: &Received, shared: &Shared) {
    let channel = Channel::Events(events.clone());
    let answers = reply.take_steps(request, shared, Some(&channel)).await;
    if let Some(text) = reply.end.response(request, &answers) {
        shared.record_sent(&text);
        return send(events, &event(&text)).await;
    }
    let last = match reply.end {
        End::Fault(Fault::Hang) => future::pending().await,
        End::Fault(Fault::Huge(size)) => event(&response(request, "result", &huge_result(size))),
        End::Fault(Fault::HalfEvent) => {
            let whole = event(&response(request, "result", r#"{"content":[]}"#));
            whole[..whole.len() / 2].to_owned()
        }
        End::Fault(Fault::BreakOff | Fault::Die(_)) => {
            let _ = events
                .send(Some(Err(io::ErrorKind::ConnectionAborted.into())))
                .await;
            return;
        }
        End::Fault(Fault::Garbage(bytes, result)) => {
            let _ = events.send(Some(Ok(bytes.into()))).await;
            event(&response(request, "result", &result))
        }
        End::Fault(fault @ (Fault::Status(..) | Fault::Kill)) => {
            panic!("{fault:?} comes instead of a stream")
        }
        _ => unreachable!("answered above"),
    };
    send(events, &last).await;
}

async fn send(events: &Events, text: &str) {
    // The client may have disconnected; the caller notices by itself.
    let _ = events
        .send(Some(Ok(Bytes::copy_from_slice(text.as_bytes()))))
        .await;
}

/// A body with this text that then closes the connection.
fn broken_off(text: String) -> Body {
    let body = stream::unfold(Some(text), |text| async {
        match text {
            Some(text) => Some((Ok(Frame::data(text.into())), None)),
            None => {
                // hyper flushes when the body is pending, so the client gets the text before the
                // connection ends.
                tokio::task::yield_now().await;
                Some((Err(io::ErrorKind::ConnectionAborted.into()), None))
            }
        }
    });
    StreamBody::new(body).boxed()
}

/// Records an abandoned request if it is dropped without a response.
struct Waiting {
    shared: Arc<Shared>,
    method: Option<String>,
}

impl Waiting {
    fn new(shared: &Arc<Shared>, request: &Received) -> Self {
        Self {
            shared: Arc::clone(shared),
            method: Some(request.method().to_owned()),
        }
    }

    fn answered(mut self) {
        self.method = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(method) = self.method.take() {
            self.shared
                .abandoned
                .send_modify(|methods| methods.push(method));
        }
    }
}

/// The status of an error. Legacy servers respond with 200; the modern revision has statuses for
/// some errors (2026-07-28 streamable-http, Protocol Version Header). A legacy server rejects
/// `server/discover` before `initialize` with 400, like the official SDKs.
fn error_status(era: Era, error: &str) -> StatusCode {
    match (era, member(error, "code")) {
        (Era::Modern, Some("-32601")) => StatusCode::NOT_FOUND,
        (Era::Modern, Some("-32020" | "-32021" | "-32022")) => StatusCode::BAD_REQUEST,
        (Era::Legacy, Some("-32601")) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn plain(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into())
        .map_err(|never: Infallible| match never {})
        .boxed();
    let mut response = body_of(content_type, body);
    *response.status_mut() = status;
    response
}

fn body_of(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
