//! Forwards messages to the replica that keeps their subject: a session, a suspended call, a kept
//! result, or a task that Fanlight made. A replica that is ending also lets another one open
//! sessions.
//!
//! Forwarding happens once the subject is known, before any other decision. This replica checks the
//! client's credentials; the other one decides what the client may do.
//!
//! Forwarded requests arrive in envelopes at a separate listener, over TLS with a replica's
//! certificate. Anything else is refused.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{Identity, Keeper, ProcessRun};
use fanlight_credentials::ConnectionFacts;
use fanlight_protocol::accept::Accepts;
use fanlight_protocol::{Json, ObjectBuilder, RpcError, code, notification_text};
use fanlight_telemetry::{Moment, Propagation};
use futures_util::future::OptionFuture;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::arrived::{Arrived, Fields, Passing, stream_permit};
use super::take_over::NotKnown;
use super::{Endpoint, Source, headers};
use crate::call::core_call::{REQUEST_GRACE, end_of, request_ended};
use crate::forwarding::{
    ENVELOPE, ForwardError, ForwardedBody, ForwardedClient, ForwardedRequest, Opened, Replicas,
    TASK_ELSEWHERE,
};
use crate::http::activity::ActiveRequest;
use crate::http::connection::Serve;
use crate::http::recorded::RecordedRequest;
use crate::http::reply::{self, CutShort, PassedOn, Refusal, Reply, ReplyBody};
use crate::ingress::{self, Kept};
use crate::trace::{Ending, TransportFacts};

/// The maximum number of replicas that a request follows its session to. A constant: take-overs
/// during a request seldom happen twice.
const MOVES: u32 = 3;

/// The time limit for a cancellation at another replica. A constant: the replica answers at once or
/// counts as unreachable.
const CANCELLING: Duration = Duration::from_secs(5);

/// The retry time for a client whose session's replica could not be determined.
const AGAIN: Duration = Duration::from_secs(1);

impl Endpoint {
    /// The other replicas, if the request may be forwarded; a forwarded request may not.
    pub(super) fn other_replicas(&self, arrived: &Arrived<'_>) -> Option<&Arc<dyn Replicas>> {
        self.settings
            .replicas
            .as_ref()
            .filter(|_| arrived.forwarded.is_none())
    }

    /// Lets the replica that keeps a refused message's subject answer it. Without such a replica,
    /// the refusal stands.
    pub(super) async fn forward_refused<'a>(
        &'a self,
        arrived: &mut Arrived<'a>,
        body: Bytes,
        refusal: Box<ingress::Refusal>,
    ) -> Reply {
        let (replicas, kept, run) = match (self.other_replicas(arrived), refusal.kept_by) {
            (Some(replicas), Some((kept, run))) => (replicas, kept, run),
            (None, Some((Kept::Task, _))) => {
                pass_on(refusal.ending);
                return Ok(reply::empty(TASK_ELSEWHERE));
            }
            _ => return Err(refusal.into()),
        };
        let listens = arrived.head.method == Method::GET;
        let permit = listens
            .then(|| stream_permit(&self.limits.streams, &arrived.origin.peer()))
            .transpose()?;
        let trace = refusal
            .ending
            .as_ref()
            .map(|ending| ending.propagation())
            .unwrap_or_default();
        let request = request_of(arrived, kept, &trace);
        // Other forwarded requests end when their forwarding ends.
        let cancellation = refusal
            .id
            .as_ref()
            .filter(|_| kept == Kept::Session)
            .map(cancellation_of);
        let mut asked = run;
        let mut moves = 0;
        let answer = loop {
            let answer = async {
                // Another replica may have taken over the subject from this one.
                if ProcessRun::current() == Ok(asked) {
                    return Err(ForwardError::Gone);
                }
                replicas.forward(asked, &request, body.clone()).await
            };
            let is_unreachable = match while_valid(answer, &arrived.origin.identity).await {
                Ok(answer) => break answer,
                Err(Failure::Replica(ForwardError::Gone)) => false,
                Err(Failure::Replica(ForwardError::Unreachable)) => true,
                Err(Failure::Replica(ForwardError::TaskElsewhere)) => {
                    return self
                        .take_here(
                            arrived,
                            Source::Text(body, Passing::Task(Some(replicas))),
                            refusal,
                        )
                        .await;
                }
                Err(failure) => {
                    if let (Failure::Credentials(_), Some(cancellation)) = (&failure, cancellation)
                    {
                        cancel(Arc::clone(replicas), asked, request, cancellation);
                    }
                    return Err(forward_refusal(failure, asked, refusal));
                }
            };
            moves += 1;
            match self
                .keeper_after(asked, is_unreachable, kept, arrived)
                .await
            {
                Err(NotKnown) => return Err(forward_refusal(Failure::NotKnown, asked, refusal)),
                Ok(Keeper::ThisRun) => {
                    let passing = match kept {
                        Kept::Session => Passing::Task(Some(replicas)),
                        Kept::Task => Passing::Task(None),
                        Kept::SuspendedCall | Kept::Result | Kept::NewSession => Passing::Nowhere,
                    };
                    return self
                        .take_here(arrived, Source::Text(body, passing), refusal)
                        .await;
                }
                // Repeating the same replica once makes sense: its address may not have been known.
                Ok(Keeper::Another(next)) if moves < MOVES && (next != asked || moves == 1) => {
                    asked = next;
                }
                Ok(Keeper::Another(_) | Keeper::Nobody) => {
                    return Err(forward_refusal(
                        Failure::Replica(ForwardError::Gone),
                        asked,
                        refusal,
                    ));
                }
            }
        };
        let mut ending = refusal.ending;
        ending.iter_mut().for_each(|ending| ending.pass_on());
        let (head, body) = answer.into_parts();
        let closing = listens.then(|| arrived.active.shutdown().clone());
        let replicas = Arc::clone(replicas);
        let cancel =
            cancellation.map(|cancellation| move || cancel(replicas, asked, request, cancellation));
        let passed_on = PassedOn::new(
            body,
            ending,
            cut_short(&arrived.origin.identity, closing, cancel),
        );
        let mut response = reply::passed_on(head, passed_on);
        if let Some(permit) = permit.filter(|_| response.status() == StatusCode::OK) {
            response.body_mut().listen(permit, &arrived.origin.identity);
        }
        Ok(response)
    }

    /// The keeper of a message's subject after `run`, which has ended or is unreachable. Replicas
    /// take over only sessions of Streamable HTTP. A task or kept result is unknown from now on; this
    /// run reports that.
    async fn keeper_after(
        &self,
        run: ProcessRun,
        is_unreachable: bool,
        kept: Kept,
        arrived: &Arrived<'_>,
    ) -> Result<Keeper, NotKnown> {
        match (kept, super::session_id(&arrived.fields)) {
            (Kept::Session, Some(id)) => {
                Box::pin(self.take_over(id, &arrived.origin, run, is_unreachable)).await
            }
            (Kept::Session, None) | (Kept::SuspendedCall, _) => Ok(Keeper::Nobody),
            (Kept::Task | Kept::Result | Kept::NewSession, _) => Ok(Keeper::ThisRun),
        }
    }

    /// Handles a message here because no other replica takes it.
    async fn take_here<'a>(
        &'a self,
        arrived: &mut Arrived<'a>,
        source: Source<'a>,
        refusal: Box<ingress::Refusal>,
    ) -> Reply {
        // The message gets a span of its own.
        pass_on(refusal.ending);
        match arrived.head.method {
            Method::POST => Box::pin(self.post(arrived, source)).await,
            _ => Box::pin(self.other_method(arrived)).await,
        }
    }

    /// Answers a request that another replica forwarded, as if an identified client had sent it
    /// here.
    async fn answer_forwarded(
        &self,
        opened: &Opened,
        body: &mut Incoming,
        active: &ActiveRequest,
    ) -> Response<ReplyBody> {
        let (head, received, connection) =
            (head_of(&opened.request), Moment::now(), Default::default());
        let fields = Fields::find(&head.headers);
        let path = head.uri.path();
        let at = self.ingress.core.endpoint(path);
        let destination = self.destination(at.as_ref(), path);
        let recorded = RecordedRequest::new(&self.settings, destination.endpoint);
        if let Some(id) = super::session_id(&fields) {
            self.take_overs.settled(id).await;
        }
        let ForwardedClient {
            identity,
            address,
            user,
        } = &opened.request.client;
        let facts = TransportFacts {
            is_forwarded: true,
            is_proxied: true,
            ..fields.facts(&head, received, recorded.exchange, *address, *user)
        };
        let origin = if identity.principal.is_anonymous() {
            // This replica may authenticate clients although the other one does not.
            let here = self
                .ingress
                .identify(facts, &destination, &head, &connection);
            here.await
        } else {
            let identity = Arc::clone(identity);
            self.ingress
                .identified_origin(identity, facts, &destination, &head.headers)
        };
        let mut response = match origin {
            Ok(origin) => {
                let mut arrived = Arrived {
                    endpoint: self,
                    head: &head,
                    fields,
                    connection: &connection,
                    active,
                    recorded,
                    forwarded: Some(opened),
                    origin,
                    accepts: Accepts::ANY,
                    session: None,
                    passing: Passing::Nowhere,
                };
                let reply = match at {
                    None => self.answer_elsewhere(&mut arrived, body).await,
                    Some(_) if head.method == Method::POST => {
                        self.post(&mut arrived, Source::Body(body)).await
                    }
                    Some(_) => self.other_method(&mut arrived).await,
                };
                let mut response = self.response_of(reply, &arrived, &destination);
                arrived.record_reply(&mut response);
                response
            }
            Err(denial) => self.deny(&denial, &head, active, &destination, body).await,
        };
        reply::describe(&mut response, HeaderMap::new());
        response
    }
}

/// Ends the span of a request whose answer belongs to another span.
fn pass_on(ending: Option<Box<Ending>>) {
    if let Some(mut ending) = ending {
        ending.pass_on();
        ending.finish();
    }
}

/// The forwarded part of a request: no credentials, and the session id only for the replica that
/// keeps the session.
fn request_of(arrived: &Arrived<'_>, kept: Kept, trace: &Propagation) -> ForwardedRequest {
    let origin = &arrived.origin;
    let Parts {
        method,
        uri,
        headers,
        ..
    } = arrived.head;
    let is_for = |name: &HeaderName| kept == Kept::Session || *name != headers::SESSION_ID;
    let meant = headers
        .iter()
        .filter(|(name, _)| has_meaning(name) && is_for(name));
    let mut headers: HeaderMap = meant
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let own = origin.headers.as_deref().unwrap_or_default().iter();
    let own = own.map(|(name, value)| (&**name, &**value));
    let of_trace = trace
        .headers()
        .map(|(name, value): (&str, _)| (name, value));
    for (name, value) in of_trace.chain(own) {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    ForwardedRequest {
        method: method.clone(),
        target: uri
            .path_and_query()
            .cloned()
            .unwrap_or_else(|| PathAndQuery::from_static("/"))
            .into(),
        headers,
        client: ForwardedClient {
            identity: Arc::clone(&origin.identity),
            address: origin.facts.client_socket(),
            user: origin.facts.user,
        },
    }
}

/// Whether a header field can affect the meaning of a request. Browser headers have been checked
/// already, and proxy headers have been used.
fn has_meaning(name: &HeaderName) -> bool {
    [ACCEPT, CONTENT_TYPE, CONTENT_ENCODING].contains(name)
        || name.as_str() == "last-event-id"
        || name.as_str().starts_with("mcp-")
}

fn head_of(request: &ForwardedRequest) -> Parts {
    let mut whole = Request::new(());
    *whole.method_mut() = request.method.clone();
    *whole.uri_mut() = Uri::clone(&request.target);
    *whole.headers_mut() = request.headers.clone();
    *whole.version_mut() = http::Version::HTTP_2;
    whole.into_parts().0
}

/// The reason why another replica did not answer.
enum Failure {
    Replica(ForwardError),
    /// The client's credentials ended during the request.
    Credentials(RpcError),
    /// The session's keeper cannot be determined now.
    NotKnown,
}

/// The answer, or an error if the client's credentials end first.
async fn while_valid(
    answer: impl Future<Output = Result<Response<ForwardedBody>, ForwardError>>,
    identity: &Identity,
) -> Result<Response<ForwardedBody>, Failure> {
    let ended = OptionFuture::from(end_of(identity, REQUEST_GRACE));
    tokio::select! {
        biased;
        answer = answer => answer.map_err(Failure::Replica),
        Some(ended) = ended => Err(Failure::Credentials(request_ended(ended))),
    }
}

/// The refusal of a message that `run` did not answer.
fn forward_refusal(
    failure: Failure,
    run: ProcessRun,
    refusal: Box<ingress::Refusal>,
) -> Box<Refusal> {
    let mut status = StatusCode::BAD_GATEWAY;
    let error = match failure {
        Failure::Replica(
            ForwardError::Gone | ForwardError::Unreachable | ForwardError::TaskElsewhere,
        ) => {
            tracing::debug!(%run, "not passed on: the replica that kept the session or call has ended");
            return refusal.into();
        }
        Failure::Replica(ForwardError::TooLong) => {
            status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            let message = "the request's header fields and the client's identity are too long to be forwarded to the gateway's replica \
                           that has to answer";
            RpcError::new(code::INVALID_REQUEST, message)
        }
        Failure::Replica(ForwardError::Lost) => {
            tracing::warn!(%run, "the connection to a replica broke while it carried out a request");
            let message = "the connection to the gateway's replica that was to answer broke; the request may have been carried out";
            RpcError::new(code::INTERNAL, message).may_have_run(true)
        }
        Failure::Credentials(error) => error,
        Failure::NotKnown => {
            status = StatusCode::SERVICE_UNAVAILABLE;
            let message = "the gateway cannot determine now which of its replicas keeps the session; try again";
            RpcError::new(code::INTERNAL, message)
        }
    };
    let ingress::Refusal { id, mut ending, .. } = *refusal;
    ending.iter_mut().for_each(|ending| ending.refuse(&error));
    let mut refusal = Refusal::new(status, error);
    (refusal.id, refusal.ending) = (id, ending);
    refusal.retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(AGAIN);
    refusal
}

/// The notification that cancels the request with this id.
fn cancellation_of(id: &Json) -> Bytes {
    let params = ObjectBuilder::new()
        .member("requestId", id)
        .string("reason", "its credentials have ended")
        .finish();
    notification_text("notifications/cancelled", Some(&params)).into_bytes()
}

/// Tells `run` to cancel a session's request, because its client's credentials ended. Otherwise
/// `run` would see only a disconnected client, which cancels nothing. Tried once.
fn cancel(
    replicas: Arc<dyn Replicas>,
    run: ProcessRun,
    mut request: ForwardedRequest,
    cancellation: Bytes,
) {
    // The coding belongs to the original body.
    request.headers.remove(CONTENT_ENCODING);
    tokio::spawn(timeout(CANCELLING, async move {
        if let Err(error) = replicas.forward(run, &request, cancellation).await {
            tracing::warn!(%run, %error, "a call goes on at a replica although its client's credentials have ended");
        }
    }));
}

/// Resolves when an answer must be cut short. The client's credentials end it, after `cancel` is
/// called; `closing` ends a listen-only stream when this replica stops.
fn cut_short(
    identity: &Identity,
    closing: Option<CancellationToken>,
    cancel: Option<impl FnOnce() + Send + 'static>,
) -> CutShort {
    let grace = if closing.is_some() {
        Duration::ZERO
    } else {
        REQUEST_GRACE
    };
    let ended = OptionFuture::from(end_of(identity, grace));
    let closed = OptionFuture::from(closing.map(CancellationToken::cancelled_owned));
    Box::pin(async move {
        tokio::select! {
            Some(()) = closed => {}
            Some(_) = ended => cancel.into_iter().for_each(|cancel| cancel()),
            else => pending().await,
        }
    })
}

/// Answers forwarded requests as if they had arrived at `endpoint`.
pub(in crate::http) struct ForwardedRequests {
    pub(in crate::http) endpoint: Arc<Endpoint>,
    pub(in crate::http) replicas: Arc<dyn Replicas>,
}

impl Serve for ForwardedRequests {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<ConnectionFacts>,
        active: &ActiveRequest,
    ) -> impl Future<Output = Response<ReplyBody>> + Send {
        async move {
            let (head, mut body) = request.into_parts();
            // The listener already demands a certificate; this check does not rely on it.
            let envelope = connection
                .certificate
                .as_ref()
                .and_then(|_| envelope(&head));
            let reason = match envelope.map(|text| self.replicas.open(text)) {
                Some(Ok(opened)) => {
                    let answer = self.endpoint.answer_forwarded(&opened, &mut body, active);
                    return Box::pin(answer).await;
                }
                Some(Err(refused)) => refused.to_string(),
                None => "it has no envelope, or its sender no certificate".to_owned(),
            };
            // A stolen certificate alone keeps no connection.
            active.count_stranger();
            refuse(&reason)
        }
    }
}

fn envelope(head: &Parts) -> Option<&str> {
    let mut all = head.headers.get_all(ENVELOPE).iter();
    let first = all.next().filter(|_| all.next().is_none())?;
    first.to_str().ok()
}

/// Answers that the request was not processed: its sender may take this replica for its own earlier
/// run.
fn refuse(reason: &str) -> Response<ReplyBody> {
    tracing::warn!(reason, "request at the listener for replicas refused");
    reply::empty(StatusCode::MISDIRECTED_REQUEST)
}
