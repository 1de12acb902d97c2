//! The MCP endpoint, which handles one HTTP request at a time. The ingress handles the messages in
//! POST requests.
//!
//! GET: a legacy client listens to messages outside of calls, or resumes a broken stream.
//!
//! Source: 2025-11-25 basic/transports, Listening for Messages from the Server, Resumability and
//! Redelivery.

mod answer;
mod arrived;
mod denial;
pub(super) mod forward;
mod headers;
mod pages;
mod recorded;
mod sse_transport;
mod take_over;

use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::{
    DEFAULT_PATH, Endpoint as McpEndpoint, HandleSeal, Keeper, Peer, ProcessRun,
};
use fanlight_credentials::ConnectionFacts;
use fanlight_gateway::Gateway;
use fanlight_protocol::accept::Accepts;
use fanlight_protocol::param_header::MAX_MIRRORED;
use fanlight_protocol::{RpcError, code};
use fanlight_telemetry::Moment;
use fanlight_telemetry::clients::{Clients, ClientsView, Counts};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::activity::ActiveRequest;
use super::connection::{self, Serve};
use super::events::stream::EventStream;
use super::limits::LiveLimits;
use super::recorded::RecordedRequest;
use super::reply::{self, Refusal, Reply, ReplyBody};
use super::{body, cors};
use crate::call::DetachedCalls;
use crate::eras::{self, modern};
use crate::ingress::{self, Destination, Ingress, Received};
use crate::session::archive::SessionArchive;
use crate::streams::{ActiveSession, EventId, Sessions, StreamPolicy, StreamReader};
use crate::trace::TransportFacts;
use crate::{FrontendError, FrontendSettings};
use arrived::{Arrived, Fields, Passing, stream_permit};
use headers::MirroredParams;
use sse_transport::SseTransport;
use take_over::TakeOvers;

/// The endpoint's HTTP methods. GET and DELETE serve the sessions of legacy clients.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";

/// The MCP endpoint.
pub(crate) struct Endpoint {
    ingress: Ingress,
    settings: Arc<FrontendSettings>,
    sessions: Sessions,
    /// Opens task ids.
    handles: Arc<HandleSeal>,
    detached: Arc<DetachedCalls>,
    policy: Arc<StreamPolicy>,
    limits: Arc<LiveLimits>,
    sse_transport: SseTransport,
    mirrored_params: MirroredParams,
    /// The records of sessions; `None` if no replica can take sessions over.
    archive: Option<Arc<SessionArchive>>,
    take_overs: TakeOvers,
    /// Cancelled when this process ends; not when a connection ends because its socket is replaced.
    ending: CancellationToken,
}

impl Serve for Endpoint {
    fn answer(
        self: Arc<Self>,
        request: http::Request<Incoming>,
        connection: Arc<ConnectionFacts>,
        active: &ActiveRequest,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        let received = Moment::now();
        // Split the request before the future, which would otherwise hold it twice.
        let (head, mut body) = request.into_parts();
        async move {
            let path = head.uri.path();
            // A configured endpoint at this path is not public.
            let is_endpoint = || self.ingress.core.endpoint(path).is_some();
            let pages = self
                .settings
                .pages
                .as_ref()
                .filter(|pages| pages.serves(path) && !is_endpoint());
            let is_public = path.starts_with(pages::PREFIX) && !is_endpoint();
            let guard = self.settings.guard.load();
            let admitted = guard.check_host(&head.uri, &head.headers, connection.local);
            let admitted = admitted.and_then(|()| {
                if is_public || (pages.is_some() && pages::only_shows(&head)) {
                    Ok(None)
                } else {
                    guard.check_origin(&head.uri, &head.headers)
                }
            });
            let web_origin = admitted.as_ref().ok().copied().flatten().cloned();
            let mut response = match (admitted, pages) {
                (Err(rejection), _) => Box::<Refusal>::from(rejection).into_response(),
                (Ok(_), Some(pages)) => {
                    Box::pin(self.page(&**pages, &head, &mut body, &connection, active)).await
                }
                (Ok(_), None) if is_public => self.well_known(&head),
                (Ok(_), None) => {
                    let mut fields = Fields::find(&head.headers);
                    fields.is_proxied |= !guard.is_for_this_machine();
                    let at = self.ingress.core.endpoint(path);
                    let destination = self.destination(at.as_ref(), path);
                    let recorded = RecordedRequest::new(&self.settings, destination.endpoint);
                    let client = connection
                        .peer
                        .map(|peer| guard.trusted_proxies().client(peer, &head.headers));
                    let user = connection.socket.map(|socket| socket.user);
                    let facts = fields.facts(&head, received, recorded.exchange, client, user);
                    let identified = match fields.ambiguous_field() {
                        None if head.method == http::Method::OPTIONS => Err(Box::pin(
                            self.preflight(&head, facts, &connection, &destination, at.is_some()),
                        )
                        .await),
                        None => match self
                            .ingress
                            .identify(facts, &destination, &head, &connection)
                            .await
                        {
                            Ok(origin) => Ok(origin),
                            Err(denial) => Err(Box::pin(self.deny(
                                &denial,
                                &head,
                                active,
                                &destination,
                                &mut body,
                            ))
                            .await),
                        },
                        Some(name) => Err(Box::pin(self.refuse_ambiguous(
                            name,
                            &head,
                            active,
                            &destination,
                            &mut body,
                        ))
                        .await),
                    };
                    match identified {
                        Err(response) => response,
                        Ok(origin) => {
                            let mut arrived = Arrived {
                                endpoint: &self,
                                head: &head,
                                fields,
                                connection: &connection,
                                active,
                                recorded,
                                forwarded: None,
                                origin,
                                accepts: Accepts::ANY,
                                session: None,
                                passing: Passing::Nowhere,
                            };
                            // The futures are boxed here, since moving one future into another
                            // copies it.
                            let reply = if at.is_none() {
                                Box::pin(self.answer_elsewhere(&mut arrived, &mut body)).await
                            } else if head.method == http::Method::POST {
                                self.post(&mut arrived, Source::Body(&mut body)).await
                            } else {
                                Box::pin(self.other_method(&mut arrived)).await
                            };
                            let mut response = self.response_of(reply, &arrived, &destination);
                            if arrived.recorded.exchange > 0 || response.body().is_event_stream() {
                                arrived.record_reply(&mut response);
                            }
                            response
                        }
                    }
                }
            };
            if response.body().only_listens() && connection::can_bypass_hyper(&head, &body) {
                response.body_mut().bypasses_hyper = true;
            }
            body::drain(body, &head, self.settings.refused_body);
            reply::describe(&mut response, head.headers);
            if let Some(web_origin) = web_origin {
                cors::expose(&mut response, web_origin);
            }
            response
        }
    }

    fn has_balancer(&self) -> bool {
        self.settings.has_balancer
    }

    fn clean_up(&self) {
        self.sessions.sweep(self.settings.resume);
    }

    fn drain(&self) {
        self.sessions.hang_up();
    }

    async fn finished(&self) {
        if self.settings.replicas.is_some() {
            // Clients bring input through other replicas, which forward it.
            self.ingress.suspended_calls.all_resumed().await;
        }
        // From here on, no request can resume a suspended call.
        self.ingress.suspended_calls.end().await;
        self.detached.finished().await;
        self.sse_transport.finished().await;
    }
}

impl Clients for Endpoint {
    fn view(&self) -> ClientsView {
        let mut sessions = self.sessions.views();
        sessions.extend(self.sse_transport.views());
        let streams = sessions
            .iter()
            .map(|session| session.streams)
            .sum::<usize>()
            + self.ingress.subscriptions.count();
        ClientsView {
            sessions,
            suspended: self.ingress.suspended_calls.views(),
            streams,
        }
    }

    fn counts(&self) -> Counts {
        let ((sessions, streams), sse) = (self.sessions.counts(), self.sse_transport.count());
        // Each session of the HTTP+SSE transport is one stream.
        let streams = streams + sse + self.ingress.subscriptions.count();
        Counts {
            sessions: sessions + sse,
            suspended: self.ingress.suspended_calls.count(),
            streams,
        }
    }

    fn end_session(&self, digest: &str) -> bool {
        self.sessions.end_shown(digest) || self.sse_transport.end_shown(digest)
    }
}

impl Endpoint {
    /// An endpoint in front of `core`. Once `ending` is cancelled it opens no sessions if other
    /// replicas can. Calls that outlive their connection end when `cut` is cancelled.
    pub(crate) fn new(
        core: Arc<Gateway>,
        settings: &Arc<FrontendSettings>,
        limits: Arc<LiveLimits>,
        ending: CancellationToken,
        cut: CancellationToken,
    ) -> Result<Self, FrontendError> {
        let detached = DetachedCalls::new(settings.max_connections, cut.clone());
        let handles = Arc::new(HandleSeal::new(&settings.keys)?);
        let (limit, per_peer, idle) = (
            settings.max_sessions,
            settings.max_peer_sessions,
            settings.session_idle,
        );
        Ok(Self {
            ingress: Ingress::new(Arc::clone(&core), settings, &cut)?,
            sessions: Sessions::new(limit, per_peer, idle, Arc::clone(&handles)),
            policy: StreamPolicy::new(settings, Arc::clone(&detached)),
            detached,
            sse_transport: SseTransport::new(
                core,
                Arc::clone(settings),
                Arc::clone(&limits),
                cut,
                Arc::clone(&handles),
            ),
            handles,
            mirrored_params: MirroredParams::new(MAX_MIRRORED),
            archive: settings
                .session_records
                .as_ref()
                .map(|records| SessionArchive::new(&settings.keys, Arc::clone(records)))
                .transpose()?,
            take_overs: TakeOvers::new(settings.max_sessions),
            ending,
            limits,
            settings: Arc::clone(settings),
        })
    }

    /// The endpoint for a request at `path`; `at` is the core's endpoint there. The HTTP+SSE
    /// transport serves the default one.
    fn destination<'a>(&'a self, at: Option<&'a McpEndpoint>, path: &'a str) -> Destination<'a> {
        match at {
            Some(endpoint) => {
                let path = endpoint.full_path();
                Destination {
                    endpoint,
                    path,
                    resource: path,
                }
            }
            None => {
                let of_sse = self.sse_transport.resource_of(path);
                Destination {
                    endpoint: &McpEndpoint::Default,
                    path: of_sse.map_or(path, |_| DEFAULT_PATH),
                    resource: of_sse.unwrap_or(DEFAULT_PATH),
                }
            }
        }
    }

    /// Answers a preflight request, which browsers send without credentials.
    async fn preflight(
        &self,
        head: &Parts,
        facts: TransportFacts<'_>,
        connection: &ConnectionFacts,
        destination: &Destination<'_>,
        is_endpoint: bool,
    ) -> Response<ReplyBody> {
        let protection = self.settings.protection.load();
        let forwarded = &protection.forwarded;
        let preflight = || cors::preflight(&head.headers, forwarded, METHODS);
        if is_endpoint {
            return preflight();
        }
        // Other paths answer like an endpoint, unless the client may know that there is none.
        match self
            .ingress
            .identify(facts, destination, head, connection)
            .await
        {
            Err(_) => preflight(),
            Ok(_) => {
                let preflight = self.sse_transport.preflight(head, forwarded);
                preflight.unwrap_or_else(|| self.nothing_served().into_response())
            }
        }
    }

    /// Answers a request at a path without an endpoint.
    async fn answer_elsewhere<'a>(
        &'a self,
        arrived: &mut Arrived<'a>,
        body: &mut Incoming,
    ) -> Reply {
        if self.other_replicas(arrived).is_some()
            && let Some(refusal) = self
                .sse_transport
                .kept_elsewhere(arrived.head, &arrived.origin.holder)
        {
            let text = arrived.read(body).await?;
            return self.forward_refused(arrived, text, refusal).await;
        }
        if let Some(reply) = self.sse_transport.route(arrived, body).await {
            return reply;
        }
        Err(self.nothing_served())
    }

    fn nothing_served(&self) -> Box<Refusal> {
        let message = match self.ingress.core.endpoint(DEFAULT_PATH) {
            Some(_) => format!("nothing is served here; the MCP endpoint is {DEFAULT_PATH}"),
            None => "nothing is served here".to_owned(),
        };
        Refusal::invalid(StatusCode::NOT_FOUND, message)
    }

    /// Turns a reply into a response, and counts its memory and bytes.
    fn response_of(
        &self,
        reply: Reply,
        arrived: &Arrived<'_>,
        destination: &Destination<'_>,
    ) -> Response<ReplyBody> {
        let mut response =
            reply.unwrap_or_else(|refusal| self.refusal_response(*refusal, destination));
        if response
            .body_mut()
            .count_memory(&self.settings.answer_memory, &arrived.origin)
            .is_err()
        {
            response =
                answer_without_memory(response.body(), &arrived.origin.peer()).into_response();
        }
        response.body_mut().count(self.settings.telemetry.metrics());
        response
    }

    /// Answers a request that is not a POST.
    async fn other_method<'a>(&'a self, arrived: &mut Arrived<'a>) -> Reply {
        check_revision(&arrived.fields)?;
        let session = self.named_session(arrived).await;
        if let Some(reply) = misdirected(arrived, &session) {
            return reply;
        }
        if self.other_replicas(arrived).is_some()
            && let Some(Err(keeper @ Keeper::Another(_))) = session
        {
            return self
                .forward_refused(arrived, Bytes::new(), unknown_session(keeper))
                .await;
        }
        match arrived.head.method {
            http::Method::GET => self.get(arrived, session).await,
            http::Method::DELETE => self.delete(arrived),
            _ => Err(Refusal::method(METHODS)),
        }
    }

    async fn post<'a>(&'a self, arrived: &mut Arrived<'a>, source: Source<'a>) -> Reply {
        arrived.accepts = arrived.fields.check_post()?;
        let replicas = self.other_replicas(arrived);
        arrived.passing = match (&source, replicas) {
            (Source::Text(_, passing), _) => *passing,
            (Source::Body(_), Some(replicas)) => Passing::On(replicas),
            (Source::Body(_), None) if arrived.forwarded.is_some() => Passing::Here,
            (Source::Body(_), None) => Passing::Nowhere,
        };
        let text = match source {
            Source::Body(body) => arrived.read(body).await?,
            Source::Text(text, _) => text,
        };
        let kept = replicas.map(|_| text.clone());
        // The session is looked up after the body has been read, which takes as long as the client
        // likes. It is looked up before the message is handled, so a message for another replica's
        // session has no effect here.
        arrived.session = self.named_session(arrived).await;
        if arrived.recorded.exchange > 0 {
            arrived.record(&text);
        }
        if let Some(reply) = misdirected(arrived, &arrived.session) {
            return reply;
        }
        let received = self.ingress.receive(&*arrived, &arrived.origin, text).await;
        match received {
            Err(refusal) | Ok(Received::Ignored(refusal)) if refusal.kept_by.is_some() => {
                Box::pin(self.forward_refused(arrived, kept.unwrap_or_default(), refusal)).await
            }
            Err(refusal) | Ok(Received::Ignored(refusal)) => Err(refusal.into()),
            Ok(Received::Request(call, kind)) => self.answer_request(call, kind, arrived).await,
            Ok(Received::Accepted) => Ok(reply::empty(StatusCode::ACCEPTED)),
            Ok(Received::Batch(session, requests)) => {
                Box::pin(self.answer_batch(session, requests, arrived.accepts)).await
            }
        }
    }

    fn delete(&self, arrived: &Arrived<'_>) -> Reply {
        let id = session_id(&arrived.fields).ok_or_else(no_session_named)?;
        let ended = self.sessions.end(id, &arrived.origin.holder);
        ended
            .map(|()| reply::empty(StatusCode::NO_CONTENT))
            .map_err(|keeper| unknown_session(keeper).into())
    }

    /// The sender's session that the request names.
    async fn named_session(&self, arrived: &Arrived<'_>) -> NamedSession {
        let id = session_id(&arrived.fields)?;
        let entered = self.sessions.enter(id, &arrived.origin.holder);
        if let Ok(entered) = &entered {
            let connection = arrived.connection.number;
            arrived.recorded.note_session(connection, &entered.session);
        }
        if let (Some(_), Ok(session)) = (&self.archive, &entered)
            && !Box::pin(self.still_keeps(id, session)).await
        {
            return Some(Err(self.after_this_run()));
        }
        match entered {
            Err(Keeper::ThisRun) => Some(Err(self.after_this_run())),
            entered => Some(entered.map_err(|keeper| self.take_overs.latest_keeper(id, keeper))),
        }
    }

    /// The keeper of a session that this run has lost. If other replicas can take sessions over, it
    /// still has to be determined.
    fn after_this_run(&self) -> Keeper {
        let own = self
            .archive
            .as_ref()
            .and_then(|_| ProcessRun::current().ok());
        own.map_or(Keeper::ThisRun, Keeper::Another)
    }
}

/// The source of a POST's message.
enum Source<'a> {
    /// The unread body.
    Body(&'a mut Incoming),
    /// The text of a body that was read before; the message is handled again.
    Text(Bytes, Passing<'a>),
}

/// Refuses to buffer an answer. The memory for requests does not limit the memory for answers.
fn answer_without_memory(answer: &ReplyBody, peer: &Peer) -> Box<Refusal> {
    tracing::warn!(
        ?peer,
        "answer dropped: too many bytes wait for clients that read slowly (half of limits.memory)"
    );
    let message = "busy: the memory for answers is in use; the request has been carried out, and its answer is lost";
    Refusal::busy(message).with_request_id(answer.id())
}

/// The session that a request names, or its keeper if that is not this process; `None` if it names
/// none.
type NamedSession = Option<Result<ActiveSession, Keeper>>;

/// The answer to a forwarded request whose session is not kept here. The forwarding replica may
/// then look for the new keeper.
fn misdirected(arrived: &Arrived<'_>, named: &NamedSession) -> Option<Reply> {
    let is_misdirected = arrived.forwarded.is_some() && matches!(named, Some(Err(_)));
    is_misdirected.then(|| Ok(reply::empty(StatusCode::MISDIRECTED_REQUEST)))
}

/// The session of a request that needs one.
fn require_session(named: NamedSession) -> Result<ActiveSession, Box<ingress::Refusal>> {
    named.ok_or_else(no_session_named)?.map_err(unknown_session)
}

fn session_id<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    fields
        .session_id
        .first_value()
        .and_then(|id| id.to_str().ok())
}

fn no_session_named() -> Box<ingress::Refusal> {
    let message = "Mcp-Session-Id is missing: open a session with \"initialize\", or send the per-request metadata of \
                   protocol version 2026-07-28";
    ingress::Refusal::malformed(RpcError::new(code::INVALID_REQUEST, message))
}

/// The refusal of an unknown session. Its text does not depend on the keeper.
fn unknown_session(keeper: Keeper) -> Box<ingress::Refusal> {
    let message = "no such session: it has ended or expired; open a new one with \"initialize\"";
    ingress::Refusal::unknown_session(keeper, message)
}

/// The HTTP methods for modern clients: "HTTP GET or DELETE to the MCP endpoint: respond with 405
/// Method Not Allowed" (2026-07-28 streamable-http, Backward Compatibility).
const MODERN_METHODS: &str = "POST, OPTIONS";

impl Endpoint {
    /// Opens or resumes a stream.
    async fn get(&self, arrived: &Arrived<'_>, named: NamedSession) -> Reply {
        let (fields, shutdown) = (&arrived.fields, arrived.active.shutdown());
        fields.check_get()?;
        let session = require_session(named)?;
        // Earlier revisions do not have this header, and an empty one names no event.
        let last = fields
            .last_event_id
            .first_value()
            .filter(|last| !last.is_empty() && session.session.revision().resumes_streams);
        let last = last
            .map(|id| event_id(id.to_str().unwrap_or_default()))
            .transpose()?;
        // The rest of a call's stream does not count as listen-only.
        let permit = match last {
            Some(id) if !id.is_get => None,
            _ => Some(stream_permit(&self.limits.streams, &arrived.origin.peer())?),
        };
        let reader = match last {
            Some(id) => self.resume(session, id, shutdown)?,
            None => self.listen(session, shutdown)?,
        };
        let stream = EventStream::read(reader, (&*self.settings).into());
        let mut response = reply::events(stream.opening(true).into_iter().collect(), Some(stream));
        if let Some(permit) = permit {
            response.body_mut().listen(permit, &arrived.origin.identity);
        }
        Ok(response)
    }

    /// Resumes a stream. A GET stream that cannot be resumed starts over with new messages. For a
    /// call's stream the client gets an error; not 404, which would end its session.
    fn resume(
        &self,
        session: ActiveSession,
        id: EventId,
        shutdown: &CancellationToken,
    ) -> Result<StreamReader, Box<Refusal>> {
        if id.is_get {
            check_open(shutdown)?;
        }
        match StreamReader::resume(session.clone(), &self.policy, id) {
            Some(reader) if id.is_get => Ok(reader.end_on(shutdown)),
            Some(reader) => Ok(reader),
            None if id.is_get => self.listen(session, shutdown),
            None => {
                let message = "what followed this event is no longer kept: send the request again if that is safe";
                Err(Refusal::invalid(StatusCode::BAD_REQUEST, message))
            }
        }
    }

    fn listen(
        &self,
        session: ActiveSession,
        shutdown: &CancellationToken,
    ) -> Result<StreamReader, Box<Refusal>> {
        check_open(shutdown)?;
        let reader = StreamReader::notifications(session.clone(), &self.policy).end_on(shutdown);
        drop(session.begin_listening());
        Ok(reader)
    }
}

/// Checks that a request other than a POST is of a revision with sessions.
fn check_revision(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    let Some(version) = headers::protocol_version(fields) else {
        return Ok(());
    };
    match eras::revision(version) {
        Some(revision) if revision.has_sessions => Ok(()),
        Some(_) => Err(Refusal::method(MODERN_METHODS)),
        None => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            modern::unsupported_revision(version),
        )),
    }
}

fn check_open(shutdown: &CancellationToken) -> Result<(), Box<Refusal>> {
    if shutdown.is_cancelled() {
        return Err(Refusal::invalid(
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting down; try again later",
        ));
    }
    Ok(())
}

fn event_id(id: &str) -> Result<EventId, Box<Refusal>> {
    EventId::parse(id).ok_or_else(|| {
        let message =
            "\"Last-Event-ID\" names no event of this session; leave it out to open a new stream";
        Refusal::invalid(StatusCode::BAD_REQUEST, message)
    })
}
