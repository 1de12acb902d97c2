//! The deprecated HTTP+SSE transport: a GET opens a stream on which a client is told where to POST
//! its messages, and hears everything that is said to it.
//!
//! Source: 2024-11-05 basic/transports, HTTP with SSE; 2025-11-25 basic/transports, Backwards
//! Compatibility. Must not know: what messages say.

mod sessions;
mod stream;

use std::sync::Arc;

use fanlight_telemetry::metrics::Direction;
use http::StatusCode;
use hyper::body::Incoming;
use smallvec::smallvec;
use tokio::sync::mpsc;

pub(super) use self::sessions::OldSessions;
pub(super) use self::stream::OldStream;
use super::fields::Fields;
use super::mcp::{Arrived, Endpoint, Reply, bad_request};
use super::reply::{self, Refusal};
use super::stream::EventStream;
use super::{body, cors, negotiate};
use crate::channel::{Connection, QUEUE, Terms};
use crate::trace;
use fanlight_canonical::Core;

/// What is served where a stream is opened. A client that tries Streamable HTTP here first learns
/// by 405 that it is not (Backwards Compatibility).
const STREAM_METHODS: &str = "GET, OPTIONS";
/// What is served where messages are sent to.
const MESSAGE_METHODS: &str = "POST, OPTIONS";
/// Where messages are sent to, below where the stream is.
const MESSAGE: &str = "message";
const SESSION_ID: &str = "sessionId";

impl<C: Core> Endpoint<C> {
    /// Answers a request, if it is one of this transport.
    pub(super) async fn route_old(&self, arrived: &Arrived<'_>, body: &mut Incoming) -> Option<Reply> {
        let Arrived { head, fields, .. } = arrived;
        let path = head.uri.path().trim_end_matches('/');
        let base = self.settings.sse_path.as_deref()?.trim_end_matches('/');
        let below = path.strip_prefix(base)?;
        Some(match (below, &head.method) {
            ("", &http::Method::GET) => self.open_old(base, fields),
            ("", &http::Method::OPTIONS) => Ok(cors::preflight(&head.headers, STREAM_METHODS)),
            ("", _) => Err(Refusal::method(STREAM_METHODS)),
            (below, method) if below.strip_prefix('/') == Some(MESSAGE) => match *method {
                http::Method::POST => self.take_old(arrived, body).await,
                http::Method::OPTIONS => Ok(cors::preflight(&head.headers, MESSAGE_METHODS)),
                _ => Err(Refusal::method(MESSAGE_METHODS)),
            },
            _ => return None,
        })
    }

    /// Opens a session, which lives as long as its stream.
    fn open_old(&self, base: &str, fields: &Fields<'_>) -> Reply {
        negotiate::check_old_get(fields)?;
        if self.shutdown.is_cancelled() {
            return Err(unavailable("shutting down; try again later"));
        }
        let slot = self.stream_slot()?;
        let (out, messages) = mpsc::channel(QUEUE);
        let patience = Some(self.settings.idle_connection);
        let terms = Terms { legacy_only: true, patience, cut: self.old.cut.child_token() };
        let connection = Connection::new(Arc::clone(&self.core), Arc::clone(&self.settings), out, terms)
            .map_err(|error| unavailable(&error.to_string()))?;
        let place = self.old.enter(&connection).map_err(|error| unavailable(&error.to_string()))?;
        tracing::debug!("a client opens a session of the deprecated HTTP+SSE transport");
        // Relative, so that it leads back here whatever name the client knows this place by.
        let endpoint = format!("event: endpoint\ndata: {base}/{MESSAGE}?{SESSION_ID}={}\n\n", place.id());
        let stream = OldStream::new(messages, connection, place, self.shutdown.clone());
        let stream = EventStream::old(stream, self.settings.keep_alive);
        let mut response = reply::events(smallvec![endpoint.into()], Some(stream));
        response.body_mut().occupy(slot);
        Ok(response)
    }

    /// Takes one message. What comes of it goes on the session's stream.
    async fn take_old(&self, arrived: &Arrived<'_>, body: &mut Incoming) -> Reply {
        negotiate::content_type(&arrived.fields)?;
        let id = session_id(arrived.head.uri.query().unwrap_or_default()).ok_or_else(|| {
            let message = "\"sessionId\" is missing: POST to the URI that the \"endpoint\" event names";
            Refusal::invalid(StatusCode::BAD_REQUEST, message)
        })?;
        let connection = self.old.find(id).ok_or_else(|| {
            let message = "no such session: its event stream has ended; open a new one with GET";
            Refusal::invalid(StatusCode::NOT_FOUND, message)
        })?;
        let text = body::read(body, self.settings.max_body, self.settings.body_timeout).await?;
        trace::bytes(&self.settings.telemetry, Direction::Receive, text.len());
        match connection.take(text, &arrived.came()).await {
            Ok(()) => Ok(reply::empty(StatusCode::ACCEPTED)),
            Err((error, Some(id))) => Err(bad_request(error).of(&id)),
            Err((error, None)) => Err(bad_request(error)),
        }
    }
}

fn session_id(query: &str) -> Option<&str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == SESSION_ID).map(|(_, id)| id)
}

fn unavailable(message: &str) -> Box<Refusal> {
    Refusal::invalid(StatusCode::SERVICE_UNAVAILABLE, message)
}
