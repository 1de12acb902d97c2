//! The deprecated HTTP+SSE transport, for the default endpoint. A GET opens a stream that carries
//! all messages to the client. The stream names the URI for the client's own messages, which it
//! sends by POST.
//!
//! Source: 2024-11-05 basic/transports, HTTP with SSE; 2025-11-25 basic/transports, Backwards
//! Compatibility.

mod sessions;

use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::{HandleSeal, Holder, Keeper};
use fanlight_gateway::Gateway;
use fanlight_protocol::{Chunks, Era};
use fanlight_telemetry::clients::SessionView;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use smallvec::smallvec;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::arrived::{Arrived, stream_permit};
use crate::call::{Answer, ResponseItem, ResponseStream};
use crate::channel::{ChannelConnection, ChannelOptions, Outbound, QUEUE};
use crate::http::events::stream::EventStream;
use crate::http::reply::{self, Refusal, Reply, ReplyBody};
use crate::http::{LiveLimits, cors};
use crate::{FrontendSettings, ingress};
use sessions::{SessionEntry, SseSessions};

/// The HTTP methods at the stream's path. A client that tries Streamable HTTP there gets 405 for
/// its POST (Backwards Compatibility).
const STREAM_METHODS: &str = "GET, OPTIONS";
/// The HTTP methods at the path for messages.
const MESSAGE_METHODS: &str = "POST, OPTIONS";
/// The path for messages, below the stream's path.
const MESSAGE: &str = "message";
const SESSION_ID: &str = "sessionId";

/// The endpoint of the transport.
pub(super) struct SseTransport {
    core: Arc<Gateway>,
    settings: Arc<FrontendSettings>,
    sessions: SseSessions,
    limits: Arc<LiveLimits>,
}

impl SseTransport {
    /// Creates the transport. Streams end after their running requests when their connection must
    /// end, at the latest when `cut` is cancelled.
    pub(super) fn new(
        core: Arc<Gateway>,
        settings: Arc<FrontendSettings>,
        limits: Arc<LiveLimits>,
        cut: CancellationToken,
        handles: Arc<HandleSeal>,
    ) -> Self {
        Self {
            core,
            sessions: SseSessions::new(
                settings.max_sessions,
                settings.max_peer_sessions,
                cut,
                handles,
            ),
            settings,
            limits,
        }
    }

    /// Answers a request if its path belongs to this transport.
    pub(super) async fn route(&self, arrived: &Arrived<'_>, body: &mut Incoming) -> Option<Reply> {
        let head = arrived.head;
        let path = head.uri.path().trim_end_matches('/');
        let base = self.settings.sse_path.as_deref()?.trim_end_matches('/');
        let below = path.strip_prefix(base)?;
        Some(match (below, &head.method) {
            ("", &http::Method::GET) => self.open(base, arrived),
            ("", _) => Err(Refusal::method(STREAM_METHODS)),
            (below, method) if below.strip_prefix('/') == Some(MESSAGE) => match *method {
                http::Method::POST => self.take(arrived, body).await,
                _ => Err(Refusal::method(MESSAGE_METHODS)),
            },
            _ => return None,
        })
    }

    /// Answers a preflight request if its path belongs to this transport.
    pub(super) fn preflight(
        &self,
        head: &Parts,
        forwarded: &[String],
    ) -> Option<Response<ReplyBody>> {
        let path = head.uri.path().trim_end_matches('/');
        let methods = if self.resource_of(path)? == path {
            STREAM_METHODS
        } else {
            MESSAGE_METHODS
        };
        Some(cors::preflight(&head.headers, forwarded, methods))
    }

    /// The transport's path, for which tokens must be issued; `None` if `path` is not the
    /// transport's.
    pub(super) fn resource_of(&self, path: &str) -> Option<&str> {
        let base = self.settings.sse_path.as_deref()?.trim_end_matches('/');
        let below = path.trim_end_matches('/').strip_prefix(base)?;
        (below.is_empty() || below.strip_prefix('/') == Some(MESSAGE)).then_some(base)
    }

    /// The number of sessions.
    pub(super) fn count(&self) -> usize {
        self.sessions.count()
    }

    /// All sessions, for operators.
    pub(super) fn views(&self) -> Vec<SessionView> {
        self.sessions.views()
    }

    /// Ends the session with this digest, as shown to operators; returns whether it existed.
    pub(super) fn end_shown(&self, digest: &str) -> bool {
        self.sessions.end_shown(digest)
    }

    /// Waits for requests that are still finishing after the end of their session.
    pub(super) async fn finished(&self) {
        self.sessions.finished().await;
    }

    /// Opens a session, which lives as long as its stream.
    fn open(&self, base: &str, arrived: &Arrived<'_>) -> Reply {
        let origin = &arrived.origin;
        arrived.fields.check_sse_get()?;
        let shutdown = arrived.active.shutdown();
        if shutdown.is_cancelled() {
            return Err(unavailable("shutting down; try again later"));
        }
        let peer = origin.peer();
        let permit = stream_permit(&self.limits.streams, &peer)?;
        let (queue, messages) = mpsc::channel(QUEUE);
        let background = arrived.active.background();
        let options = ChannelOptions {
            only: Some(Era::Legacy),
            write_timeout: Some(self.limits.connection_limits().write_timeout),
            cut: self.sessions.cut.child_token(),
            running: Some(Box::new(move || Box::new(background()))),
        };
        let connection =
            ChannelConnection::new(Arc::clone(&self.core), &self.settings, queue, options)
                .map_err(|error| unavailable(&error.to_string()))?;
        let entry = self.sessions.open(origin.holder.clone(), peer, &connection);
        let entry = entry.map_err(|error| unavailable(&error.to_string()))?;
        arrived.recorded.note_channel(connection.number);
        tracing::debug!("session of the deprecated HTTP+SSE transport opened");
        // Relative, so that it works under every host name of this server.
        let endpoint = format!(
            "event: endpoint\ndata: {base}/{MESSAGE}?{SESSION_ID}={}\n\n",
            entry.id()
        );
        let stream = SseSessionStream::new(messages, connection, entry, shutdown.clone());
        let stream = EventStream::from_responses(Box::new(stream), (&*self.settings).into());
        let mut response = reply::events(smallvec![endpoint.into()], Some(stream));
        response.body_mut().listen(permit, &origin.identity);
        Ok(response)
    }

    /// The refusal of a message whose session of `holder` is at another replica; `None` if it is
    /// not.
    pub(super) fn kept_elsewhere(
        &self,
        head: &Parts,
        holder: &Holder,
    ) -> Option<Box<ingress::Refusal>> {
        let path = head.uri.path().trim_end_matches('/');
        let is_message = head.method == http::Method::POST && self.resource_of(path)? != path;
        let id = session_id(head.uri.query()?).filter(|_| is_message)?;
        let keeper = self.sessions.enter(id, holder).err()?;
        Some(unknown_session(keeper)).filter(|refusal| refusal.kept_by.is_some())
    }

    /// Handles one message. Results go to the session's stream.
    async fn take(&self, arrived: &Arrived<'_>, body: &mut Incoming) -> Reply {
        arrived.fields.check_content_type()?;
        let id = session_id(arrived.head.uri.query().unwrap_or_default()).ok_or_else(|| {
            let message =
                "\"sessionId\" is missing: POST to the URI that the \"endpoint\" event names";
            Refusal::invalid(StatusCode::BAD_REQUEST, message)
        })?;
        let connection = self
            .sessions
            .enter(id, &arrived.origin.holder)
            .map_err(unknown_session)?;
        let text = arrived.read(body).await?;
        arrived.recorded.note_channel(connection.number);
        if arrived.recorded.exchange > 0 {
            arrived.record(&text);
        }
        connection.take(&arrived.origin, text).await?;
        Ok(reply::empty(StatusCode::ACCEPTED))
    }
}

fn session_id(query: &str) -> Option<&str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(name, _)| *name == SESSION_ID)
        .map(|(_, id)| id)
}

/// The refusal of an unknown session. Its text does not depend on the keeper.
fn unknown_session(keeper: Keeper) -> Box<ingress::Refusal> {
    let message = "no such session: its event stream has ended; open a new one with GET";
    ingress::Refusal::unknown_session(keeper, message)
}

fn unavailable(message: &str) -> Box<Refusal> {
    Refusal::invalid(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// All messages to the client of one session.
struct SseSessionStream {
    messages: mpsc::Receiver<Outbound>,
    /// Owns the session and resolves at its end; `None` after that.
    end: Option<BoxFuture<'static, ()>>,
}

impl SseSessionStream {
    /// The stream of `messages` of `connection`. After `shutdown` is cancelled, it ends with the
    /// answer to the last running request.
    fn new(
        messages: mpsc::Receiver<Outbound>,
        connection: Arc<ChannelConnection>,
        entry: SessionEntry,
        shutdown: CancellationToken,
    ) -> Self {
        let end = async move {
            let _entry = entry;
            let drained = async {
                shutdown.cancelled().await;
                connection.close();
                connection.finished().await;
            };
            tokio::select! { () = drained => {} () = connection.is_cut() => {} }
        };
        Self {
            messages,
            end: Some(Box::pin(end)),
        }
    }
}

impl ResponseStream<Answer> for SseSessionStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ResponseItem<Chunks, Answer>>> {
        let item = |Outbound { text, ending }| {
            ResponseItem::Response(Answer {
                text: text.into(),
                error: None,
                ending,
            })
        };
        if let Poll::Ready(message) = self.messages.poll_recv(cx) {
            return Poll::Ready(message.map(item));
        }
        if let Some(end) = &mut self.end {
            std::task::ready!(end.as_mut().poll(cx));
            self.end = None;
        }
        // The last messages may have been sent in the meantime.
        Poll::Ready(self.messages.try_recv().ok().map(item))
    }
}
