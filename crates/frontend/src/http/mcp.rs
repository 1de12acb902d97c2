//! The straight line of one HTTP request: admit, find what it is for, read it. What becomes of the
//! request in a POST is in `request`.
//!
//! Must not know: what the core does with a request.

use std::sync::Arc;

use bytes::Bytes;
use fanlight_protocol::{Era, Message, MessageError, Method, Notification, Revision, RpcError, code};
use fanlight_telemetry::clients::{Clients, ClientsView, Counts};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::{Moment, Network};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::connection::{self, Addresses};
use super::fields::Fields;
use super::guard::Guard;
use super::listener::Serve;
use super::negotiate::{self, Accepts};
use super::old::OldSessions;
use super::reply::{self, Refusal, ReplyBody};
use super::request::{Asked, Begun};
use super::slots::{Slot, Slots};
use super::{body, cors, headers};
use crate::error::FrontendError;
use crate::params::Params;
use crate::park::Parking;
use crate::running::Detached;
use crate::session::{InUse, Sessions};
use crate::settings::FrontendSettings;
use crate::streams::Keeping;
use crate::subscription::Subscriptions;
use crate::trace::{self, Came};
use crate::{era, fault, modern};
use fanlight_canonical::Core;

/// What the endpoint serves. GET and DELETE belong to the sessions of legacy clients.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";

pub(super) type Reply = Result<Response<ReplyBody>, Box<Refusal>>;

/// The MCP endpoint.
pub(crate) struct Endpoint<C> {
    pub(super) core: Arc<C>,
    pub(super) settings: Arc<FrontendSettings>,
    guard: Guard,
    pub(super) sessions: Sessions,
    pub(super) detached: Arc<Detached>,
    pub(super) parking: Arc<Parking>,
    pub(super) keeping: Arc<Keeping>,
    pub(super) subscriptions: Subscriptions,
    streams: Slots,
    pub(super) old: OldSessions<C>,
    pub(super) shutdown: CancellationToken,
}

/// A request, but for its body.
pub(super) struct Arrived<'a> {
    pub(super) head: &'a Parts,
    pub(super) fields: Fields<'a>,
    pub(super) addresses: Addresses,
    received: &'a Moment,
}

/// What a POST brings.
#[expect(clippy::large_enum_variant, reason = "nearly always the large one, which is used at once")]
enum Posted<'a> {
    Request(Asked<'a>),
    /// Several messages.
    Batch(Bytes),
    /// What needs no answer but this.
    Other(Box<Response<ReplyBody>>),
}

impl<C: Core> Serve for Endpoint<C> {
    fn answer(
        self: Arc<Self>,
        request: http::Request<Incoming>,
        addresses: Addresses,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        let received = Moment::now();
        // Before the future, which would else have room for the whole beside its parts.
        let (head, mut body) = request.into_parts();
        async move {
            let arrived = Arrived { head: &head, fields: Fields::of(&head.headers), addresses, received: &received };
            let admitted = self.guard.admit(&head.uri, &arrived.fields, addresses.local);
            let origin = admitted.as_ref().ok().copied().flatten();
            let mut response = match admitted {
                Ok(_) => {
                    // Here, since each future within another is copied on its way into that.
                    let reply = if !self.is_at_endpoint(&head) {
                        Box::pin(self.elsewhere(&arrived, &mut body)).await
                    } else if head.method == http::Method::POST {
                        self.post(&arrived, &mut body).await
                    } else {
                        self.unposted(&arrived)
                    };
                    let mut response = reply.unwrap_or_else(|refusal| refusal.into_response());
                    response.body_mut().count(self.settings.telemetry.metrics());
                    response
                }
                Err(refusal) => refusal.into_response(),
            };
            let origin = origin.cloned();
            if response.body().only_listens() && connection::can_bypass_hyper(&head, &body) {
                response.body_mut().bypass_hyper();
            }
            body::drain(body, &head);
            reply::describe(&mut response, head.headers);
            if let Some(origin) = origin {
                cors::expose(&mut response, origin);
            }
            response
        }
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
    fn view(&self) -> ClientsView {
        let mut sessions = self.sessions.shown();
        sessions.extend(self.old.shown());
        let streams = sessions.iter().map(|session| session.streams).sum::<usize>() + self.subscriptions.open();
        ClientsView { sessions, suspended: self.parking.shown(), streams }
    }

    fn counts(&self) -> Counts {
        let ((sessions, streams), old) = (self.sessions.counts(), self.old.count());
        // A session of the old transport is its stream.
        let streams = streams + old + self.subscriptions.open();
        Counts { sessions: sessions + old, suspended: self.parking.count(), streams }
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

    fn is_at_endpoint(&self, head: &Parts) -> bool {
        head.uri.path().trim_end_matches('/') == self.settings.path.trim_end_matches('/')
    }

    /// Answers a request to any other place.
    async fn elsewhere(&self, arrived: &Arrived<'_>, body: &mut Incoming) -> Reply {
        if let Some(reply) = self.route_old(arrived, body).await {
            return reply;
        }
        let message = format!("nothing is served here; the MCP endpoint is {}", self.settings.path);
        Err(Refusal::invalid(StatusCode::NOT_FOUND, message))
    }

    /// Answers a request that is no POST.
    fn unposted(&self, Arrived { head, fields, .. }: &Arrived<'_>) -> Reply {
        match head.method {
            http::Method::GET => self.get(fields),
            http::Method::DELETE => self.delete(fields),
            http::Method::OPTIONS => Ok(cors::preflight(&head.headers, METHODS)),
            _ => Err(Refusal::method(METHODS)),
        }
    }

    async fn post(&self, arrived: &Arrived<'_>, body: &mut Incoming) -> Reply {
        let accepts = negotiate::check(&arrived.fields)?;
        let text = body::read(body, self.settings.max_body, self.settings.body_timeout).await?;
        let batch = 'one: {
            // What is needed of a request until its call has begun is gone while that is waited for.
            let (mut call, kept) = {
                let mut asked = match self.read(text, arrived, accepts) {
                    Ok(Posted::Request(asked)) => asked,
                    // Not from in here, where there would be room for a request beside it.
                    Ok(Posted::Batch(batch)) => break 'one batch,
                    Ok(Posted::Other(response)) => return Ok(*response),
                    Err(refusal) => return Err(refusal),
                };
                match self.request(&mut asked).await {
                    Ok(Begun::Call(call, kept)) => (call, kept),
                    Ok(Begun::Answered(response)) => return Ok(*response),
                    Err(refusal) => return Err(refusal.of(&asked.request.id).ending(asked.span)),
                }
            };
            let first = self.first(&mut call, &kept, accepts).await;
            return Ok(self.response_to(call, first, kept, accepts));
        };
        Box::pin(self.batch(arrived, accepts, batch)).await
    }

    /// Reads what a POST brings, and settles what is no request.
    fn read<'a>(&self, text: Bytes, arrived: &'a Arrived<'_>, accepts: Accepts) -> Result<Posted<'a>, Box<Refusal>> {
        let fields = &arrived.fields;
        trace::bytes(&self.settings.telemetry, Direction::Receive, text.len());
        let settled = |reply: Reply| reply.map(|response| Posted::Other(Box::new(response)));
        match Message::parse(text, self.settings.nesting) {
            Ok(Message::Request(request)) => match Params::read(request.params.as_ref()) {
                Ok(params) => {
                    let span = trace::begin_read(&self.settings, &request, &params, &arrived.came());
                    Ok(Posted::Request(Asked { fields, accepts, request, params, span }))
                }
                Err(error) => {
                    let span = trace::begin(&self.settings, &request, &arrived.came());
                    Err(bad_request(error).of(&request.id).ending(span))
                }
            },
            Ok(Message::Notification(notification)) => settled(self.notification(fields, &notification)),
            Ok(Message::Response(response)) => settled(self.response(fields, response)),
            Err(MessageError::Batch(text)) if self.speaks_batches(fields) => Ok(Posted::Batch(text)),
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

    pub(super) fn notification(&self, fields: &Fields<'_>, notification: &Notification) -> Reply {
        let params = Params::read(notification.params().as_ref()).map_err(bad_request)?;
        let version = headers::protocol_version(fields);
        if let Some(unknown) = version.filter(|version| Revision::from_name(version).is_none()) {
            return Err(bad_request(modern::unsupported(unknown)));
        }
        // 2026-07-28 has no notification from client to server on HTTP: a modern one, cancellation
        // included, is accepted and means nothing (streamable-http, Sending Messages).
        if era::of_message(&params.meta, version) == Era::Legacy {
            let session = self.session(fields)?;
            if let (Method::Cancelled, Some(id)) = (&notification.method, params.request_id()) {
                session.in_flight.cancel(&id);
            }
        }
        Ok(reply::empty(StatusCode::ACCEPTED))
    }

    /// A client's answer to a question of a server, which is one of its own session's or none.
    /// Modern clients "MUST NOT send JSON-RPC responses".
    pub(super) fn response(&self, fields: &Fields<'_>, response: fanlight_protocol::Response) -> Reply {
        let version = headers::protocol_version(fields);
        if era::of_message(&crate::params::Meta::default(), version) == Era::Modern {
            let message = "responses are not sent to a server of this protocol version";
            return Err(Refusal::invalid(StatusCode::BAD_REQUEST, message));
        }
        self.session(fields)?.questions.answer(response);
        Ok(reply::empty(StatusCode::ACCEPTED))
    }

    fn delete(&self, fields: &Fields<'_>) -> Reply {
        let ended = self.sessions.end(session_id(fields)?);
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

    pub(super) fn session(&self, fields: &Fields<'_>) -> Result<InUse, Box<Refusal>> {
        self.sessions.enter(session_id(fields)?).ok_or_else(unknown_session)
    }
}

impl<'a> Arrived<'a> {
    pub(super) fn came(&self) -> Came<'a> {
        let version = if self.head.version == http::Version::HTTP_2 { "2" } else { "1.1" };
        let network = Network::Http { version, client: self.addresses.peer };
        Came { received: *self.received, network, headers: headers::trace_context(&self.fields) }
    }
}

pub(super) fn bad_request(error: RpcError) -> Box<Refusal> {
    Refusal::new(StatusCode::BAD_REQUEST, error)
}

pub(super) fn session_id<'a>(fields: &Fields<'a>) -> Result<&'a str, Box<Refusal>> {
    let named = fields.session_id.first().and_then(|id| id.to_str().ok());
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
