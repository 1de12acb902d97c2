//! The straight line of one HTTP request: admit, read, decide the era, check by its rules, hand to
//! the core, answer.
//!
//! Must not know: what the core does with a request.

use std::net::IpAddr;
use std::sync::Arc;

use fanlight_gateway::CallContext;
use fanlight_protocol::{
    Era, Json, Message, MessageError, Method, Notification, Request, Revision, RpcError, code, header,
};
use fanlight_telemetry::clients::{Clients, Counts, Seen};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::{Moment, Network, ServerSpan};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::guard::Guard;
use super::listener::{Peer, Serve};
use super::negotiate::{self, Accepts};
use super::old::OldSessions;
use super::reply::{self, Refusal, ReplyBody};
use super::slots::{Slot, Slots};
use super::{answer, body, cors, headers};
use crate::conversation::{Conversation, LegacyCall, ModernCall};
use crate::error::FrontendError;
use crate::params::Params;
use crate::park::Parking;
use crate::port::Core;
use crate::render::Rendering;
use crate::running::{self, Ask, Detached, Running};
use crate::session::{InUse, Session, Sessions};
use crate::settings::FrontendSettings;
use crate::source::Source;
use crate::streams::Keeping;
use crate::subscription::Subscriptions;
use crate::trace::{self, Came, Ending};
use crate::{era, fault, legacy, modern};

/// What the endpoint serves. GET and DELETE belong to the sessions of legacy clients.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";

pub(super) type Reply = Result<Response<ReplyBody>, Box<Refusal>>;

/// The MCP endpoint.
pub(crate) struct Endpoint<C> {
    pub(super) core: Arc<C>,
    pub(super) settings: Arc<FrontendSettings>,
    guard: Guard,
    sessions: Sessions,
    detached: Arc<Detached>,
    parking: Arc<Parking>,
    pub(super) keeping: Arc<Keeping>,
    subscriptions: Subscriptions,
    streams: Slots,
    pub(super) old: OldSessions<C>,
    pub(super) shutdown: CancellationToken,
}

impl<C: Core> Serve for Endpoint<C> {
    async fn answer(self: Arc<Self>, request: http::Request<Incoming>, local: Option<IpAddr>) -> Response<ReplyBody> {
        let received = Moment::now();
        let (head, mut body) = request.into_parts();
        let origin = match self.guard.admit(&head, local) {
            Ok(origin) => origin,
            Err(refusal) => {
                body::leave(body, &head);
                return refusal.into_response();
            }
        };
        let came = came(&head, received);
        let mut response = self.route(&head, &mut body, came).await.unwrap_or_else(|refusal| refusal.into_response());
        body::leave(body, &head);
        response.body_mut().count(self.settings.telemetry.metrics());
        if let Some(origin) = origin {
            cors::expose(&mut response, origin);
        }
        response
    }

    fn upkeep(&self) {
        self.sessions.sweep(self.settings.resume);
    }

    fn drain(&self) {
        self.sessions.hang_up();
    }

    async fn finished(&self) {
        // Nobody can come back for what is parked.
        self.parking.end().await;
        self.detached.finished().await;
        self.old.finished().await;
        self.sessions.end_all();
    }
}

impl<C: Core> Clients for Endpoint<C> {
    fn seen(&self) -> Seen {
        let mut sessions = self.sessions.shown();
        sessions.extend(self.old.shown());
        let streams = sessions.iter().map(|session| session.streams).sum::<usize>() + self.subscriptions.open();
        Seen { sessions, parked: self.parking.shown(), streams }
    }

    fn counts(&self) -> Counts {
        let ((sessions, streams), old) = (self.sessions.counts(), self.old.count());
        // A session of the old transport is its stream.
        let streams = streams + old + self.subscriptions.open();
        Counts { sessions: sessions + old, parked: self.parking.count(), streams }
    }
}

impl<C: Core> Endpoint<C> {
    /// An endpoint before `core`. What only listens ends when `shutdown` is cancelled, and what
    /// outlives its connection when `cut` is.
    pub(crate) fn new(
        core: Arc<C>,
        settings: &Arc<FrontendSettings>,
        shutdown: CancellationToken,
        cut: CancellationToken,
    ) -> Result<Self, FrontendError> {
        let detached = Detached::new(settings.max_connections, cut.clone());
        let (most, buffer) = (settings.max_subscriptions, settings.notification_buffer);
        Ok(Self {
            core,
            parking: Parking::new(settings, &cut)?,
            guard: Guard::new(settings),
            sessions: Sessions::new(settings.max_sessions, settings.session_idle),
            keeping: Keeping::new(settings, Arc::clone(&detached)),
            detached,
            subscriptions: Subscriptions::new(most, buffer, shutdown.clone()),
            streams: Slots::for_streams(settings),
            old: OldSessions::new(settings.max_sessions, cut),
            shutdown,
            settings: Arc::clone(settings),
        })
    }

    async fn route(&self, head: &Parts, body: &mut Incoming, came: Came<'_>) -> Reply {
        let path = head.uri.path().trim_end_matches('/');
        if path != self.settings.path.trim_end_matches('/') {
            if let Some(reply) = self.route_old(path, head, body, came).await {
                return reply;
            }
            let message = format!("nothing is served here; the MCP endpoint is {}", self.settings.path);
            return Err(Refusal::invalid(StatusCode::NOT_FOUND, message));
        }
        match head.method {
            http::Method::POST => self.post(&head.headers, body, came).await,
            http::Method::GET => self.get(&head.headers),
            http::Method::DELETE => self.delete(&head.headers),
            http::Method::OPTIONS => Ok(cors::preflight(&head.headers, METHODS)),
            _ => Err(Refusal::method(METHODS)),
        }
    }

    async fn post(&self, headers: &HeaderMap, body: &mut Incoming, came: Came<'_>) -> Reply {
        let accepts = negotiate::check(headers)?;
        let text = body::read(body, self.settings.max_body, self.settings.body_timeout).await?;
        trace::bytes(&self.settings.telemetry, Direction::Receive, text.len());
        match Message::parse(text.clone(), self.settings.nesting) {
            Ok(Message::Request(request)) => {
                let id = request.id.clone();
                let params = Params::read(request.params.as_ref());
                let mut span = match &params {
                    Ok(params) => trace::begin_read(&self.settings, &request, params, came),
                    Err(_) => trace::begin(&self.settings, &request, came),
                };
                let reply = match params.map_err(bad_request) {
                    Ok(params) => self.request(headers, accepts, request, params, &mut span).await,
                    Err(refusal) => Err(refusal),
                };
                reply.map_err(|refusal| refusal.of(&id).ending(span))
            }
            Ok(Message::Notification(notification)) => self.notification(headers, &notification),
            Ok(Message::Response(response)) => self.response(headers, response),
            Err(MessageError::Batch) if self.speaks_batches(headers) => self.batch(headers, accepts, text, came).await,
            Err(error) => {
                let (error, id) = fault::of_message(error, self.settings.nesting);
                let refusal = bad_request(error);
                Err(match id {
                    Some(id) => refusal.of(&id),
                    None => refusal,
                })
            }
        }
    }

    async fn request(
        &self,
        headers: &HeaderMap,
        accepts: Accepts,
        request: Request,
        params: Params,
        span: &mut ServerSpan,
    ) -> Reply {
        let era = era::of_request(&request.method, &params.meta, headers::protocol_version(headers));
        tracing::debug!(%era, method = known_name(&request.method), "request");
        match era {
            Era::Modern => self.modern(headers, accepts, request, params, span).await,
            Era::Legacy if request.method == Method::Initialize => {
                self.initialize(accepts, request, &params, span).await
            }
            Era::Legacy => self.legacy(headers, accepts, request, params, span).await,
        }
    }

    /// A stateless request. The response stream is the request: when it closes, the request is
    /// cancelled (2026-07-28 streamable-http, Cancellation), here by being dropped.
    async fn modern(
        &self,
        headers: &HeaderMap,
        accepts: Accepts,
        request: Request,
        params: Params,
        span: &mut ServerSpan,
    ) -> Reply {
        headers::check_version(headers, &params.meta).map_err(bad_request)?;
        let revision = modern::revision(&params.meta).map_err(bad_request)?;
        span.set_revision(revision);
        let client = modern::client(&params.meta).map_err(bad_request)?;
        headers::check_standard(headers, &request.method, &params).map_err(bad_request)?;
        modern::admit(&request.method, &client)
            .map_err(|error| Refusal::new(answer::modern_status(Some(error.code)), error))?;
        if let (Method::CallTool, Some(name)) = (&request.method, params.name.as_ref().and_then(Json::as_str)) {
            let mirrored = self.core.param_headers(&name, &span.parent()).await;
            headers::check_params(headers, &mirrored, params.arguments.as_ref()).map_err(bad_request)?;
        }
        let rendering = rendering(request.id.clone(), request.method.clone(), revision);
        let mut slot = None;
        let conversation = match request.method {
            Method::Listen if !accepts.events => return Err(negotiate::not_acceptable("a subscription")),
            Method::Listen => {
                slot = Some(self.stream_slot()?);
                let subscribed = self.subscriptions.begin(&self.core, &request, client, None, span.parent());
                subscribed.map(|subscribed| Conversation::Listening(Box::new(subscribed)))
            }
            _ => {
                let call = ModernCall { request, params, client, stream: accepts.events, trace: span.parent() };
                Conversation::modern(&self.core, &self.parking, &self.settings, call, None).await
            }
        };
        let conversation = conversation
            .unwrap_or_else(|error| Conversation::answered(fanlight_protocol::Response::from_error(&error)));
        let mut response = self.answer(Source::one(conversation, rendering, taken(span)), accepts, None).await;
        if let Some(slot) = slot {
            response.body_mut().occupy(slot);
        }
        Ok(response)
    }

    /// A request within a session. It goes on when its response stream closes.
    async fn legacy(
        &self,
        headers: &HeaderMap,
        accepts: Accepts,
        request: Request,
        params: Params,
        span: &mut ServerSpan,
    ) -> Reply {
        let session = self.session(headers)?;
        span.set_revision(session.revision());
        span.set_session(session_id(headers)?);
        let (conversation, rendering) = self.begin(session.clone(), request, params, accepts.events, span).await;
        Ok(self.answer(Source::one(conversation, rendering, taken(span)), accepts, Some(session)).await)
    }

    /// Begins a request within a session.
    pub(super) async fn begin(
        &self,
        session: InUse,
        request: Request,
        params: Params,
        stream: bool,
        span: &ServerSpan,
    ) -> (Conversation, Rendering) {
        let rendering = rendering(request.id.clone(), request.method.clone(), session.revision());
        match legacy::own_answer(&request.method, &params) {
            Some(Ok(response)) => return (Conversation::answered(response), rendering),
            Some(Err(error)) => {
                return (Conversation::answered(fanlight_protocol::Response::from_error(&error)), rendering);
            }
            None => {}
        }
        match request.method {
            Method::SetLogLevel => session.set_log_level(legacy::log_level(&params).ok()),
            // What the server sends at once must find somebody who listens.
            Method::Subscribe => {
                let (shared, patience) = (session.shared(), self.settings.stream_after);
                shared.streams.listen(&self.core, &shared, &self.keeping, patience).await;
            }
            _ => {}
        }
        let stop = session.in_flight.begin(&request.id);
        let call = LegacyCall { request, params, session: session.shared(), stream, trace: span.parent() };
        let conversation = Conversation::legacy(&self.core, &self.settings, call, |running| {
            running.stoppable(stop).within(session).outliving(&self.detached)
        });
        (conversation, rendering)
    }

    /// Opens a session, if the core can describe what it would be a session of.
    async fn initialize(&self, accepts: Accepts, request: Request, params: &Params, span: &mut ServerSpan) -> Reply {
        let opening = legacy::opening(params, self.settings.max_description)
            .map_err(|error| Refusal::new(StatusCode::OK, error))?;
        let session = Session::new(opening, Arc::default(), self.settings.max_questions, &self.core);
        let rendering = rendering(request.id, request.method, session.revision());
        span.set_revision(session.revision());
        let context = CallContext { trace: span.parent(), ..session.context(false) };
        let ask = Ask { method: Method::Discover, params: None, context, messages: None, unroll: None };
        let running::Event::Response(described) = Running::start(&self.core, ask).next().await else {
            return Err(Refusal::new(StatusCode::OK, RpcError::new(code::INTERNAL, "the request was cancelled")));
        };
        let mut response = answer::only(rendering.message(&described), StatusCode::OK, accepts);
        if !described.is_error() {
            let unavailable =
                |message: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::new(code::INTERNAL, message));
            let id = self
                .sessions
                .open(session.counted(&self.settings.telemetry))
                .map_err(|error| unavailable(error.to_string()))?;
            let mut id = HeaderValue::from_str(&id).map_err(|error| unavailable(error.to_string()))?;
            id.set_sensitive(true);
            response.headers_mut().insert(header::SESSION_ID, id);
        }
        response.body_mut().ends(Some(Box::new(Ending::answered(taken(span), &rendering.method, &described))));
        Ok(response)
    }

    pub(super) fn notification(&self, headers: &HeaderMap, notification: &Notification) -> Reply {
        let params = Params::read(notification.params().as_ref()).map_err(bad_request)?;
        let version = headers::protocol_version(headers);
        if let Some(unknown) = version.filter(|version| Revision::from_name(version).is_none()) {
            return Err(bad_request(modern::unsupported(unknown)));
        }
        // 2026-07-28 has no notification from client to server on HTTP: a modern one, cancellation
        // included, is accepted and means nothing (streamable-http, Sending Messages).
        if era::of_message(&params.meta, version) == Era::Legacy {
            let session = self.session(headers)?;
            if let (Method::Cancelled, Some(id)) = (&notification.method, &params.request_id) {
                session.in_flight.cancel(id);
            }
        }
        Ok(reply::empty(StatusCode::ACCEPTED))
    }

    /// A client's answer to a question of a server, which is one of its own session's or none.
    /// Modern clients "MUST NOT send JSON-RPC responses".
    pub(super) fn response(&self, headers: &HeaderMap, response: fanlight_protocol::Response) -> Reply {
        let version = headers::protocol_version(headers);
        if era::of_message(&crate::params::Meta::default(), version) == Era::Modern {
            let message = "responses are not sent to a server of this protocol version";
            return Err(Refusal::invalid(StatusCode::BAD_REQUEST, message));
        }
        self.session(headers)?.questions.answer(response);
        Ok(reply::empty(StatusCode::ACCEPTED))
    }

    fn delete(&self, headers: &HeaderMap) -> Reply {
        let ended = self.sessions.end(session_id(headers)?);
        if ended { Ok(reply::empty(StatusCode::NO_CONTENT)) } else { Err(unknown_session()) }
    }

    /// A place for a stream on which a client only listens.
    pub(super) fn stream_slot(&self) -> Result<Slot, Box<Refusal>> {
        self.streams.try_enter().ok_or_else(|| {
            let limit = self.streams.limit();
            if self.streams.is_to_warn() {
                tracing::warn!(limit, "limits.streams event streams are open on which clients listen; refusing more");
            }
            let message = format!("busy: {limit} event streams are open, the limit here; close one, or try later");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::new(code::INTERNAL, message))
        })
    }

    pub(super) fn session(&self, headers: &HeaderMap) -> Result<InUse, Box<Refusal>> {
        self.sessions.enter(session_id(headers)?).ok_or_else(unknown_session)
    }
}

/// The span, which goes on with the answer.
fn taken(span: &mut ServerSpan) -> ServerSpan {
    std::mem::replace(span, ServerSpan::off())
}

fn came(head: &Parts, received: Moment) -> Came<'_> {
    let version = if head.version == http::Version::HTTP_2 { "2" } else { "1.1" };
    let client = head.extensions.get::<Peer>().map(|peer| peer.0);
    let network = Network::Http { version, client };
    Came { received, network, headers: headers::trace_context(&head.headers) }
}

/// How a request's answer is written for a client on HTTP, where modern ones mirror parameters.
fn rendering(id: Json, method: Method, revision: Revision) -> Rendering {
    Rendering { id, method, revision, mirrors_params: revision.era() == Era::Modern }
}

pub(super) fn bad_request(error: RpcError) -> Box<Refusal> {
    Refusal::new(StatusCode::BAD_REQUEST, error)
}

fn session_id(headers: &HeaderMap) -> Result<&str, Box<Refusal>> {
    let named = headers.get(header::SESSION_ID).and_then(|id| id.to_str().ok());
    named.ok_or_else(|| {
        let message = "Mcp-Session-Id is missing: open a session with \"initialize\", or send the per-request metadata \
                       of protocol version 2026-07-28";
        Refusal::invalid(StatusCode::BAD_REQUEST, message)
    })
}

fn unknown_session() -> Box<Refusal> {
    let message = "no such session: it has ended or expired; open a new one with \"initialize\"";
    Refusal::invalid(StatusCode::NOT_FOUND, message)
}

/// A method's name for the log: only names that no client makes up.
fn known_name(method: &Method) -> &str {
    match method {
        Method::Other(_) => "other",
        known => known.as_str(),
    }
}
