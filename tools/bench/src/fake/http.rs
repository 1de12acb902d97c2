//! The fake server over Streamable HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming as HyperBody};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::rpc::{self, Arguments, Incoming, Outcome, Rpc};
use super::{FakeArgs, Stats};
use crate::era::Era;
use crate::error::{Doing, Result};
use crate::usage::monotonic_nanos;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The state that all connections share.
pub(crate) struct Shared {
    rpc: Rpc,
    delay: Duration,
    sessions: AtomicU64,
    lists: AtomicU64,
    exported: AtomicU64,
    /// The number of notifications so far; each open stream has a receiver.
    emitted: watch::Sender<u64>,
}

impl Shared {
    pub(super) fn new(args: &FakeArgs) -> Self {
        let (rpc, delay) = (
            Rpc::new(args.era, args.tools),
            Duration::from_millis(args.delay_ms),
        );
        let (sessions, lists, exported) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
        Self {
            rpc,
            delay,
            sessions,
            lists,
            exported,
            emitted: watch::Sender::new(0),
        }
    }
}

/// Serves every connection until the future is dropped. `life` counts the server's restarts:
/// sessions of an earlier life are unknown.
pub(super) async fn accept(listener: TcpListener, life: u64, shared: Arc<Shared>) -> Result<()> {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (connection, _) = listener.accept().await.doing("accepting a connection")?;
        connection
            .set_nodelay(true)
            .doing("setting up a connection")?;
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(request, life, &shared).await) }
            });
            // An error means that the client has disconnected.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(connection), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<HyperBody>, life: u64, shared: &Shared) -> Response<Body> {
    match (request.uri().path(), request.method()) {
        ("/mcp", &Method::POST) => post(request, life, shared).await,
        ("/mcp", &Method::GET) if shared.rpc.era == Era::Legacy => {
            events(listening(shared.emitted.subscribe(), None, Bytes::new()))
        }
        ("/mcp", &Method::DELETE) if shared.rpc.era == Era::Legacy => {
            plain(StatusCode::OK, Bytes::new())
        }
        ("/mcp", _) => plain(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        ("/stats", &Method::GET) => {
            let stats = Stats {
                lists: shared.lists.load(Ordering::Relaxed),
                exported: shared.exported.load(Ordering::Relaxed),
                streams: shared.emitted.receiver_count(),
            };
            plain(
                StatusCode::OK,
                serde_json::to_vec(&stats).unwrap_or_default().into(),
            )
        }
        ("/emit", &Method::POST) => {
            shared.emitted.send_modify(|count| *count += 1);
            plain(StatusCode::ACCEPTED, Bytes::new())
        }
        ("/v1/traces", &Method::POST) => {
            let Ok(body) = request.into_body().collect().await else {
                return plain(StatusCode::BAD_REQUEST, Bytes::new());
            };
            let bytes = u64::try_from(body.to_bytes().len()).unwrap_or(u64::MAX);
            shared.exported.fetch_add(bytes, Ordering::Relaxed);
            plain(StatusCode::OK, Bytes::new())
        }
        // Without this route, Fanlight would log each attempt to export metrics.
        ("/v1/metrics", &Method::POST) => plain(StatusCode::OK, Bytes::new()),
        _ => plain(StatusCode::NOT_FOUND, Bytes::new()),
    }
}

async fn post(request: Request<HyperBody>, life: u64, shared: &Shared) -> Response<Body> {
    let session = request.headers().get("mcp-session-id").cloned();
    let Ok(body) = request.into_body().collect().await else {
        return plain(StatusCode::BAD_REQUEST, Bytes::new());
    };
    let body = body.to_bytes();
    let Ok(message) = serde_json::from_slice::<Incoming<'_>>(&body) else {
        return plain(StatusCode::BAD_REQUEST, Bytes::new());
    };
    let outcome = shared.rpc.answer(&message);
    let Some(id) = message.id else {
        return plain(StatusCode::ACCEPTED, Bytes::new());
    };
    if shared.rpc.era == Era::Legacy && !matches!(outcome, Outcome::Opened(_)) {
        match session {
            None => {
                return plain(
                    StatusCode::BAD_REQUEST,
                    rpc::error_response(id, -32600, "no session"),
                );
            }
            Some(session) if !session.as_bytes().starts_with(of_life(life).as_bytes()) => {
                return plain(
                    StatusCode::NOT_FOUND,
                    rpc::error_response(id, -32001, "no such session"),
                );
            }
            Some(_) => {}
        }
    }
    match message.method.as_deref() {
        Some("tools/call") | None => {}
        Some(method) => {
            if method == "tools/list" {
                shared.lists.fetch_add(1, Ordering::Relaxed);
            }
            if !shared.delay.is_zero() {
                tokio::time::sleep(shared.delay).await;
            }
        }
    }
    render(outcome, id, &message, life, shared)
}

/// The prefix of the session ids of one life of a server.
fn of_life(life: u64) -> String {
    format!("session-{life}-")
}

/// The response that begins a session.
fn in_session(mut response: Response<Body>, life: u64, shared: &Shared) -> Response<Body> {
    let session = format!(
        "{}{}",
        of_life(life),
        shared.sessions.fetch_add(1, Ordering::Relaxed)
    );
    if let Ok(session) = HeaderValue::from_str(&session) {
        response.headers_mut().insert("mcp-session-id", session);
    }
    response
}

fn render(
    outcome: Outcome,
    id: &RawValue,
    message: &Incoming<'_>,
    life: u64,
    shared: &Shared,
) -> Response<Body> {
    match outcome {
        Outcome::Nothing => plain(StatusCode::ACCEPTED, Bytes::new()),
        Outcome::Result(result) => plain(StatusCode::OK, rpc::response(id, &result)),
        Outcome::Error(code, text) => {
            let status = match shared.rpc.era {
                Era::Modern if code == -32601 => StatusCode::NOT_FOUND,
                _ => StatusCode::OK,
            };
            plain(status, rpc::error_response(id, code, text))
        }
        Outcome::Opened(result) => in_session(
            plain(StatusCode::OK, rpc::response(id, &result)),
            life,
            shared,
        ),
        Outcome::Progress(arguments, result) => {
            let token = message
                .params
                .meta
                .progress_token
                .map_or("0", RawValue::get)
                .to_owned();
            events(progress(token, arguments, rpc::response(id, &result)))
        }
        Outcome::Subscribed => {
            let acknowledged = rpc::acknowledgement(id, &message.params);
            let id = id.get().to_owned();
            events(listening(
                shared.emitted.subscribe(),
                Some(id),
                event(acknowledged.as_bytes()),
            ))
        }
    }
}

type Piece = std::result::Result<Frame<Bytes>, Infallible>;

fn frame(data: Bytes) -> Piece {
    Ok(Frame::data(data))
}

/// Progress notifications with their sending times, then the response.
fn progress(
    token: String,
    arguments: Arguments,
    response: Bytes,
) -> impl stream::Stream<Item = Piece> + Send {
    let pause = Duration::from_millis(arguments.every_ms);
    let timer = (!pause.is_zero()).then(|| tokio::time::interval(pause));
    stream::unfold(
        (0, timer, Some(response)),
        move |(sent, mut timer, mut response)| {
            let token = token.clone();
            async move {
                if sent == arguments.events {
                    return Some((frame(event(&response.take()?)), (sent, timer, None)));
                }
                if let Some(timer) = &mut timer {
                    timer.tick().await;
                }
                let text = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{sent},"total":{},"message":"{}"}}}}"#,
                    arguments.events,
                    monotonic_nanos()
                );
                Some((frame(event(text.as_bytes())), (sent + 1, timer, response)))
            }
        },
    )
}

/// A stream that stays open: `first`, then a notification for each `POST /emit`.
fn listening(
    emitted: watch::Receiver<u64>,
    subscription: Option<String>,
    first: Bytes,
) -> impl stream::Stream<Item = Piece> + Send {
    let meta = subscription.map_or_else(String::new, |id| {
        format!(r#","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}"#)
    });
    let first = Some(first).filter(|first| !first.is_empty());
    stream::unfold(
        (emitted, first, meta),
        |(mut emitted, first, meta)| async move {
            if let Some(first) = first {
                return Some((frame(first), (emitted, None, meta)));
            }
            emitted.changed().await.ok()?;
            let text =
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed"{meta}}}"#);
            Some((frame(event(text.as_bytes())), (emitted, None, meta)))
        },
    )
}

fn event(message: &[u8]) -> Bytes {
    [b"event: message\ndata: ", message, b"\n\n"]
        .concat()
        .into()
}

fn plain(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

fn events(stream: impl stream::Stream<Item = Piece> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Tells proxies not to buffer events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests;
