//! A mock over HTTP: the Streamable HTTP transport of both eras.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_http::{
    AcceptLimits, Admissions, Guard, Http1Limits, ListeningSocket, Origins, accept_and_spawn, open,
    serve_http1, sockets,
};
use fanlight_protocol::header::{PROTOCOL_VERSION, SESSION_ID};
use fanlight_protocol::{Era, Message, Method, Revision, sse};
use futures_util::stream;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderValue, Method as Verb, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::QUEUE;
use super::connection::{Answering, MockedClient, Outgoing};
use super::connection::{MESSAGE, Malformed, messages};
use super::player::Player;
use crate::recording::script::era_of;

const EVENTS: &str = "text/event-stream";

/// The maximum number of sessions; the oldest one ends for a new one.
const SESSIONS: usize = 1000;

/// The time for running requests at the end.
const DRAIN: Duration = Duration::from_secs(1);

/// The limits of the listener. Constants, as only tests and people at this machine connect.
const LIMITS: AcceptLimits = AcceptLimits {
    connections: 1000,
    waiting: 100,
    longest_wait: Duration::from_secs(10),
    reserve: 0,
    per_peer: 0,
    name: "clients'",
};

/// The limits of a connection.
const HTTP: Http1Limits = Http1Limits {
    head: 64 << 10,
    head_timeout: Duration::from_secs(300),
    write_timeout: Duration::from_secs(60),
};

type Failed = Box<dyn Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Failed>;

/// A mock that serves over HTTP.
pub(super) struct HttpMock {
    player: Arc<Player>,
    /// The era of clients that are served; `None` for both.
    only: Option<Era>,
    /// Serves the era that was not recorded.
    bridge: Option<Bridge>,
    modern: Arc<MockedClient>,
    sessions: Mutex<VecDeque<(String, Arc<MockedClient>)>>,
    guard: Guard,
}

/// The gateway that translates for clients of the era that was not recorded.
#[derive(Debug)]
pub struct Bridge {
    url: String,
    key: String,
    client: reqwest::Client,
}

impl Bridge {
    /// The gateway with this URL and key.
    #[must_use]
    pub fn new(url: String, key: String) -> Self {
        let client = reqwest::Client::new();
        Self { url, key, client }
    }

    /// Passes a request on, and its answer back.
    async fn forward(&self, request: Request<Bytes>) -> reqwest::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        for name in [HOST, ORIGIN, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            parts.headers.remove(name);
        }
        let request = self.client.request(parts.method, &self.url);
        let request = request
            .headers(parts.headers)
            .bearer_auth(&self.key)
            .body(body);
        let mut answer = Response::from(request.send().await?);
        for name in [CONNECTION, TRANSFER_ENCODING] {
            answer.headers_mut().remove(name);
        }
        Ok(answer.map(|body| body.map_err(Failed::from).boxed_unsync()))
    }
}

/// Serves on `socket` until `shutdown`.
pub(super) async fn serve(
    mock: Arc<HttpMock>,
    socket: ListeningSocket,
    shutdown: CancellationToken,
) {
    let (_sender, sockets) = sockets(Some(Arc::new(socket)));
    let admissions = Admissions::new(LIMITS);
    let serve = |stream, usage, _, ending: CancellationToken| {
        let mock = Arc::clone(&mock);
        async move {
            let Ok(opened) = open(stream, None).await else {
                return;
            };
            let local = opened.local.map(|address| address.ip());
            let service = service_fn(move |request| {
                let mock = Arc::clone(&mock);
                async move { Ok::<_, Infallible>(mock.answer(request, local).await) }
            });
            if let Err(error) = serve_http1(opened.stream, service, HTTP, usage, ending).await {
                tracing::debug!(%error, "connection of a client broke");
            }
        }
    };
    accept_and_spawn(sockets, &admissions, || DRAIN, shutdown, serve).await;
}

impl HttpMock {
    pub(super) fn new(
        player: &Arc<Player>,
        only: Option<Era>,
        bridge: Option<Bridge>,
    ) -> Arc<Self> {
        Arc::new(Self {
            player: Arc::clone(player),
            only,
            bridge,
            modern: MockedClient::new(Arc::clone(player), Era::Modern),
            sessions: Mutex::default(),
            guard: Guard::new(&[], Origins::Own),
        })
    }

    async fn answer(&self, request: Request<Incoming>, local: Option<IpAddr>) -> Response<Body> {
        let (target, headers) = (request.uri(), request.headers());
        let checked = self.guard.check_host(target, headers, local);
        if let Err(error) = checked.and(self.guard.check_origin(target, headers).map(|_| ())) {
            return text_response(error.status(), error.to_string());
        }
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MESSAGE).collect().await else {
            return text_response(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is too large, or broke off",
            );
        };
        let request = Request::from_parts(parts, body.to_bytes());
        match *request.method() {
            Verb::POST => self.post(request).await,
            Verb::GET | Verb::DELETE => match self.session(request.headers()) {
                Some(connection) if request.method() == Verb::GET => listen(connection),
                Some(connection) => {
                    let mut sessions = self.sessions.lock();
                    sessions.retain(|(_, it)| !Arc::ptr_eq(it, &connection));
                    text_response(StatusCode::NO_CONTENT, "")
                }
                None => self.forward(request, StatusCode::NOT_FOUND).await,
            },
            _ => text_response(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE"),
        }
    }

    /// The session that a request names.
    fn session(&self, headers: &HeaderMap) -> Option<Arc<MockedClient>> {
        let id = headers.get(SESSION_ID)?.to_str().ok()?;
        let sessions = self.sessions.lock();
        let found = sessions.iter().find(|(known, _)| known == id)?;
        Some(Arc::clone(&found.1))
    }

    async fn post(&self, request: Request<Bytes>) -> Response<Body> {
        if let Some(author) = &self.player.author {
            author.read_headers(request.headers());
        }
        let version = request.headers().get(PROTOCOL_VERSION);
        let version = version.and_then(|it| Revision::from_name(it.to_str().ok()?));
        let version = version.map(|revision| revision.era);
        let messages = messages(request.body().clone());
        let first = messages.iter().flatten().next();
        let era = first.map_or(Era::Modern, |message| era_of(message, version));
        let opens = matches!(first, Some(Message::Request(it)) if it.method == Method::Initialize);
        if let Some(connection) = self.session(request.headers()) {
            return run(&connection, messages).await;
        }
        if let Some(served) = self.only.filter(|only| *only != era) {
            // It refuses requests of another era.
            return run(
                &MockedClient::new(Arc::clone(&self.player), served),
                messages,
            )
            .await;
        }
        match era {
            _ if !self.player.plays(era) => self.forward(request, StatusCode::NOT_FOUND).await,
            Era::Modern => run(&self.modern, messages).await,
            Era::Legacy if opens => self.open(messages).await,
            Era::Legacy if request.headers().contains_key(SESSION_ID) => text_response(
                StatusCode::NOT_FOUND,
                "the session is unknown, or has ended",
            ),
            Era::Legacy => text_response(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing"),
        }
    }

    /// Opens a session.
    async fn open(&self, messages: Vec<Result<Message, Malformed>>) -> Response<Body> {
        let id = format!("{:032x}", fastrand::u128(..));
        let connection = MockedClient::new(Arc::clone(&self.player), Era::Legacy);
        let mut answer = run(&connection, messages).await;
        if let Ok(value) = HeaderValue::from_str(&id) {
            answer.headers_mut().insert(SESSION_ID, value);
        }
        let mut sessions = self.sessions.lock();
        sessions.push_back((id, connection));
        if sessions.len() > SESSIONS {
            sessions.pop_front();
        }
        answer
    }

    /// Answers by the bridge, or with this status if there is none.
    async fn forward(&self, request: Request<Bytes>, otherwise: StatusCode) -> Response<Body> {
        let Some(bridge) = &self.bridge else {
            return text_response(otherwise, "no such session");
        };
        bridge.forward(request).await.unwrap_or_else(|error| {
            text_response(
                StatusCode::BAD_GATEWAY,
                format!("the translating gateway failed: {error}"),
            )
        })
    }
}

/// Answers the messages of one request.
async fn run(
    connection: &Arc<MockedClient>,
    messages: Vec<Result<Message, Malformed>>,
) -> Response<Body> {
    let answers = messages.into_iter().filter_map(|it| connection.receive(it));
    let mut answers: Vec<Answering> = answers.collect();
    let (out, mut answered) = mpsc::channel(QUEUE);
    if answers.len() == 1
        && let Some(answer) = answers.pop_if(|answer| !answer.is_stream())
    {
        connection.answer(answer, out).await;
        return match answered.recv().await {
            Some(Outgoing { text, status }) => {
                let status = status.and_then(|it| StatusCode::from_u16(it).ok());
                respond(status.unwrap_or_default(), "application/json", whole(text))
            }
            None => text_response(StatusCode::ACCEPTED, ""),
        };
    }
    if answers.is_empty() {
        return text_response(StatusCode::ACCEPTED, "");
    }
    for answer in answers {
        let (connection, out) = (Arc::clone(connection), out.clone());
        // It ends once nobody reads the stream.
        tokio::spawn(async move { connection.answer(answer, out).await });
    }
    events(answered)
}

/// The stream for the messages outside of requests.
fn listen(connection: Arc<MockedClient>) -> Response<Body> {
    let Ok(mut next) = Arc::clone(&connection.outside).try_lock_owned() else {
        return text_response(StatusCode::CONFLICT, "the session has such a stream");
    };
    let (out, messages) = mpsc::channel(QUEUE);
    // It ends once nobody reads the stream.
    tokio::spawn(async move {
        tokio::select! {
            () = connection.send_outside(&mut next, &out) => out.closed().await,
            () = out.closed() => {}
        }
    });
    events(messages)
}

fn events(messages: mpsc::Receiver<Outgoing>) -> Response<Body> {
    let frames = stream::unfold(messages, async |mut messages| {
        let message = messages.recv().await?;
        let event = Frame::data(sse::encode_message(&message.text));
        Some((Ok::<_, Failed>(event), messages))
    });
    respond(
        StatusCode::OK,
        EVENTS,
        StreamBody::new(frames).boxed_unsync(),
    )
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn text_response(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    respond(status, "text/plain", whole(text))
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
