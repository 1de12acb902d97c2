//! Messages about what another replica keeps, which that answers: a session, a suspended call, or a task that Fanlight has made. A
//! replica that ends also has another open sessions.
//!
//! They are passed on when they have been found to be about it, and before anything else is decided. What the client has shown
//! has been checked here; what it may do is decided there.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{Core, Keeper, ProcessRun};
use fanlight_forwarding::{
    ForwardError, ForwardedBody, ForwardedClient, ForwardedRequest, Opened, Replicas,
    TASK_ELSEWHERE,
};
use fanlight_identity::Identity;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::message::notification_text;
use fanlight_protocol::{Json, RpcError, code};
use fanlight_telemetry::{Moment, Propagation};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::activity::ActiveRequest;
use super::super::arrived::{Arrived, stream_permit};
use super::super::fields::Fields;
use super::super::passed_on::{CutShort, PassedOn};
use super::super::reply::{self, Refusal, Reply, ReplyBody};
use super::exchange::Passing;
use super::take_over::NotKnown;
use super::{Endpoint, Source, headers};
use crate::ingress::{self, Kept, Origin};
use crate::trace::Ending;
use crate::validity::{REQUEST_GRACE, ValidityEnd, request_ended};

/// How often a request follows a session from one replica to the next. No option: others take it over meanwhile, seldom twice.
const MOVES: u32 = 3;

/// How long another replica may take to cancel a request. No option: it answers at once, or is found not to within this.
const CANCELLING: Duration = Duration::from_secs(5);

/// When a client is to ask again whose session could not be found.
const AGAIN: Duration = Duration::from_secs(1);

impl<C: Core> Endpoint<C> {
    /// The other replicas, if a request may be passed on to them: not one that has been.
    pub(super) fn other_replicas(&self, arrived: &Arrived<'_>) -> Option<&Arc<dyn Replicas>> {
        self.settings
            .replicas
            .as_ref()
            .filter(|_| arrived.forwarded.is_none())
    }

    /// Has the replica that keeps what a refused message is about answer it; if there is none, it stays refused.
    pub(super) async fn forward_refused(
        &self,
        arrived: &Arrived<'_>,
        origin: &Origin<'_>,
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
            .then(|| stream_permit(self.limits.streams(), &origin.peer()))
            .transpose()?;
        let trace = refusal
            .ending
            .as_ref()
            .map(|ending| ending.propagation())
            .unwrap_or_default();
        let request = request_of(arrived, origin, kept, &trace);
        // What else is passed on ends when it is passed on no more.
        let cancellation = refusal
            .id
            .as_ref()
            .filter(|_| kept == Kept::Session)
            .map(cancellation_of);
        let mut asked = run;
        let mut moves = 0;
        let answer = loop {
            let answer = async {
                // Another may have taken it over from this one.
                if ProcessRun::current() == Ok(asked) {
                    return Err(ForwardError::Gone);
                }
                replicas.forward(asked, &request, body.clone()).await
            };
            let is_unreachable = match while_valid(answer, &origin.identity).await {
                Ok(answer) => break answer,
                Err(Failure::Replica(ForwardError::Gone)) => false,
                Err(Failure::Replica(ForwardError::Unreachable)) => true,
                Err(Failure::Replica(ForwardError::TaskElsewhere)) => {
                    return self
                        .take_here(
                            arrived,
                            origin,
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
                    return Err(failed(failure, asked, refusal));
                }
            };
            moves += 1;
            match self
                .keeper_after(asked, is_unreachable, kept, arrived, origin)
                .await
            {
                Err(NotKnown) => return Err(failed(Failure::NotKnown, asked, refusal)),
                Ok(Keeper::ThisRun) => {
                    let passing = match kept {
                        Kept::Session => Passing::Task(Some(replicas)),
                        Kept::Task => Passing::Task(None),
                        Kept::SuspendedCall | Kept::NewSession => Passing::Nowhere,
                    };
                    return self
                        .take_here(arrived, origin, Source::Text(body, passing), refusal)
                        .await;
                }
                // The same one if it was not known yet where that is reached.
                Ok(Keeper::Another(next)) if moves < MOVES && (next != asked || moves == 1) => {
                    asked = next
                }
                Ok(Keeper::Another(_) | Keeper::Nobody) => {
                    return Err(failed(Failure::Replica(ForwardError::Gone), asked, refusal));
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
        let passed_on = PassedOn::new(body, ending, cut_short(&origin.identity, closing, cancel));
        let mut response = reply::passed_on(head, passed_on);
        if let Some(permit) = permit.filter(|_| response.status() == StatusCode::OK) {
            response.body_mut().listen(permit, &origin.identity);
        }
        Ok(response)
    }

    /// Who keeps what a message is about after `run`, which has ended or is unreachable. Only sessions of Streamable HTTP are taken
    /// over. A task is unknown from now on, which is for this run to say.
    async fn keeper_after(
        &self,
        run: ProcessRun,
        is_unreachable: bool,
        kept: Kept,
        arrived: &Arrived<'_>,
        origin: &Origin<'_>,
    ) -> Result<Keeper, NotKnown> {
        match (kept, super::session_id(&arrived.fields)) {
            (Kept::Session, Some(id)) => {
                Box::pin(self.take_over(id, origin, run, is_unreachable)).await
            }
            (Kept::Session, None) | (Kept::SuspendedCall, _) => Ok(Keeper::Nobody),
            (Kept::Task | Kept::NewSession, _) => Ok(Keeper::ThisRun),
        }
    }

    /// Takes a message that no other replica takes.
    async fn take_here(
        &self,
        arrived: &Arrived<'_>,
        origin: &Origin<'_>,
        source: Source<'_>,
        refusal: Box<ingress::Refusal>,
    ) -> Reply {
        // The message gets a span of its own.
        pass_on(refusal.ending);
        match arrived.head.method {
            Method::POST => Box::pin(self.post(arrived, origin, source)).await,
            _ => Box::pin(self.other_method(arrived, origin)).await,
        }
    }

    /// Answers a request that another replica has passed on, as if it had arrived here with the client already identified.
    pub(in crate::http) async fn answer_forwarded(
        &self,
        opened: &Opened,
        body: &mut Incoming,
        active: &ActiveRequest,
    ) -> Response<ReplyBody> {
        let (head, received, connection) =
            (head_of(&opened.request), Moment::now(), Default::default());
        let (fields, client) = (Fields::of(&head.headers), opened.request.client.address);
        let arrived = Arrived {
            head: &head,
            fields,
            connection: &connection,
            client,
            received,
            active,
            forwarded: Some(opened),
        };
        if let Some(id) = super::session_id(&arrived.fields) {
            self.take_overs.settled(id).await;
        }
        let path = head.uri.path();
        let at = self.ingress.core.endpoint(path);
        let destination = self.destination(at.as_ref(), path);
        let identity = Arc::clone(&opened.request.client.identity);
        let mut response = match self
            .ingress
            .identified(identity, arrived.facts(), &destination)
        {
            Ok(origin) => {
                let reply = match at {
                    None => self.elsewhere(&arrived, &origin, body).await,
                    Some(_) if head.method == Method::POST => {
                        self.post(&arrived, &origin, Source::Body(body)).await
                    }
                    Some(_) => self.other_method(&arrived, &origin).await,
                };
                self.response_of(reply, &origin, &destination)
            }
            Err(denial) => self.deny(&denial, &arrived, &destination, body).await,
        };
        reply::describe(&mut response, HeaderMap::new());
        response
    }
}

/// Ends the span of a request that is answered under another.
fn pass_on(ending: Option<Box<Ending>>) {
    if let Some(mut ending) = ending {
        ending.pass_on();
        ending.delivered();
    }
}

/// What is passed on of a request: never what has shown who its client is, and its session only to the replica that keeps that.
fn request_of(
    arrived: &Arrived<'_>,
    origin: &Origin<'_>,
    kept: Kept,
    trace: &Propagation,
) -> ForwardedRequest {
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
    for (name, value) in trace.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let target = uri
        .path_and_query()
        .cloned()
        .unwrap_or_else(|| PathAndQuery::from_static("/"))
        .into();
    let client = ForwardedClient {
        identity: Arc::clone(&origin.identity),
        address: arrived.client,
        user: origin.facts.user,
    };
    ForwardedRequest {
        method: method.clone(),
        target,
        headers,
        client,
    }
}

/// Whether the meaning of a request can depend on a header field. What a browser sends has been checked, and what proxies send
/// has been used.
fn has_meaning(name: &HeaderName) -> bool {
    [ACCEPT, CONTENT_TYPE, CONTENT_ENCODING].contains(name)
        || name.as_str() == "last-event-id"
        || name.as_str().starts_with("mcp-")
}

fn head_of(request: &ForwardedRequest) -> Parts {
    let mut whole = http::Request::new(());
    *whole.method_mut() = request.method.clone();
    *whole.uri_mut() = Uri::clone(&request.target);
    *whole.headers_mut() = request.headers.clone();
    *whole.version_mut() = http::Version::HTTP_2;
    whole.into_parts().0
}

/// Why there is no answer of another replica.
enum Failure {
    Replica(ForwardError),
    /// The client's credentials have come to their end meanwhile.
    Credentials(RpcError),
    /// Who keeps the session now cannot be found out at the moment.
    NotKnown,
}

/// The answer, unless the credentials of the client come to their end before.
async fn while_valid(
    answer: impl Future<Output = Result<Response<ForwardedBody>, ForwardError>>,
    identity: &Identity,
) -> Result<Response<ForwardedBody>, Failure> {
    let mut validity = ValidityEnd::of(identity, REQUEST_GRACE);
    tokio::select! {
        biased;
        answer = answer => answer.map_err(Failure::Replica),
        ended = async { match &mut validity {
            Some(end) => poll_fn(|cx| end.poll(cx)).await,
            None => pending().await,
        } } => Err(Failure::Credentials(request_ended(ended))),
    }
}

/// The refusal of a message that `run` has not answered.
fn failed(failure: Failure, run: ProcessRun, refusal: Box<ingress::Refusal>) -> Box<Refusal> {
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
            let message = "the header fields of the request and what the gateway knows of its client are too long to be passed on to \
                           the gateway's replica that is to answer";
            RpcError::new(code::INVALID_REQUEST, message)
        }
        Failure::Replica(ForwardError::Lost) => {
            tracing::warn!(%run, "the connection to a replica broke while it carried out a request");
            let mut data = ObjectBuilder::new();
            data.member("mayHaveRun", &Json::literal("true"));
            let message = "the connection to the gateway's replica that was to answer broke; the request may have been carried out";
            RpcError::new(code::INTERNAL, message).with_data(data.finish())
        }
        Failure::Credentials(error) => error,
        Failure::NotKnown => {
            status = StatusCode::SERVICE_UNAVAILABLE;
            let message = "which replica of the gateway keeps the session cannot be found out at the moment; try again";
            RpcError::new(code::INTERNAL, message)
        }
    };
    let ingress::Refusal { id, mut ending, .. } = *refusal;
    ending.iter_mut().for_each(|ending| ending.refuse(&error));
    let again = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(AGAIN);
    Refusal::new(status, error)
        .of_request(id)
        .ending(ending)
        .retrying_after(again)
}

/// The notification that cancels a request of this id.
fn cancellation_of(id: &Json) -> Bytes {
    let mut params = ObjectBuilder::new();
    params
        .member("requestId", id)
        .string("reason", "its credentials have come to their end");
    notification_text("notifications/cancelled", Some(&params.finish())).into_bytes()
}

/// Has `run` cancel a request of a session, since its client's credentials have come to their end: by itself it would take this for a
/// client that disconnects, which cancels nothing. It is tried once.
fn cancel(
    replicas: Arc<dyn Replicas>,
    run: ProcessRun,
    mut request: ForwardedRequest,
    cancellation: Bytes,
) {
    // That of the other body.
    request.headers.remove(CONTENT_ENCODING);
    tokio::spawn(timeout(CANCELLING, async move {
        if let Err(error) = replicas.forward(run, &request, cancellation).await {
            tracing::warn!(%run, %error, "a call goes on at a replica although the credentials of its client have come to their end");
        }
    }));
}

/// When an answer is cut short: with its client's credentials, after `cancel`, and one that is listened to when this replica stops.
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
    let mut validity = ValidityEnd::of(identity, grace);
    Box::pin(async move {
        let closed = async {
            match &closing {
                Some(closing) => closing.cancelled().await,
                None => pending().await,
            }
        };
        let invalid = async {
            match &mut validity {
                Some(end) => drop(poll_fn(|cx| end.poll(cx)).await),
                None => pending().await,
            }
            cancel.into_iter().for_each(|cancel| cancel());
        };
        tokio::select! { () = closed => {}, () = invalid => {} }
    })
}
