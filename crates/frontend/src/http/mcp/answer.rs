//! An HTTP POST request, which is the [`Transport`] of its message, and the form of its answer: one
//! JSON text, or an event stream if messages precede the answer or it takes long.

use std::sync::Arc;

use fanlight_canonical::{Decidable, Keeper, ProcessRun, StreamSignal};
use fanlight_protocol::accept::Accepts;
use fanlight_protocol::{
    ArrayBuilder, Chunks, Json, MAX_NESTING, Method, Request, Revision, RpcError, code,
};
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::arrived::{Arrived, Passing, not_acceptable, stream_permit};
use super::{Endpoint, headers};
use crate::call::{Answer, DetachedCalls, RenderedCall, ResponseItem, Responses};
use crate::eras::fault;
use crate::eras::params::{Meta, Params};
use crate::http::events::stream::{EventStream, StreamTimes};
use crate::http::events::{self, Pieces};
use crate::http::reply::{self, Refusal, Reply, ReplyBody};
use crate::ingress::{self, AboutTask, Origin, RequestKind, Transport};
use crate::streams::{ActiveSession, SessionStreams, StreamReader};

type Item = ResponseItem<Chunks, Answer>;

impl Endpoint {
    pub(super) async fn answer_request(
        &self,
        mut call: Box<RenderedCall>,
        kind: RequestKind,
        arrived: &Arrived<'_>,
    ) -> Reply {
        let (origin, accepts) = (&arrived.origin, arrived.accepts);
        let (mut session, mut permit) = (None, None);
        match kind {
            RequestKind::Call(of_call) => session = of_call,
            RequestKind::Subscription => {
                let acquired = if accepts.events {
                    stream_permit(&self.limits.streams, &origin.peer())
                } else {
                    Err(not_acceptable("a subscription"))
                };
                match acquired {
                    Ok(acquired) => permit = Some(acquired),
                    Err(refusal) => return Err(refusal.with_call(*call)),
                }
            }
            RequestKind::Initialize(streams) => {
                let Some(ResponseItem::Response(answer)) = call.next().await else {
                    let error = RpcError::new(code::INTERNAL, "the request was cancelled");
                    return Err(Refusal::new(StatusCode::OK, error).with_call(*call));
                };
                return Box::pin(self.open_session(streams, answer, *call, accepts)).await;
            }
        }
        let first = self.first_item(&mut call, accepts).await;
        let mut response = self.response_to(*call, first, session, accepts);
        if let Some(permit) = permit {
            response.body_mut().listen(permit, &origin.identity);
        }
        Ok(response)
    }

    /// Answers `initialize`. Opens the session if the core could describe the server.
    async fn open_session(
        &self,
        streams: Arc<SessionStreams>,
        mut answer: Answer,
        call: RenderedCall,
        accepts: Accepts,
    ) -> Reply {
        if answer.error.is_some() {
            return Ok(single_response(answer, StatusCode::OK, accepts));
        }
        let session = Arc::clone(&streams.session);
        let id = self
            .sessions
            .open(streams)
            .map_err(|error| error.to_string());
        if let (Some(archive), Ok(id)) = (&self.archive, &id)
            && session.may_move()
        {
            session.put_on_record(archive.record(id));
            session.write_record().await;
        }
        let id = id.and_then(|id| HeaderValue::from_str(&id).map_err(|error| error.to_string()));
        let mut id = match id {
            Ok(id) => id,
            Err(message) => {
                let error = RpcError::new(code::INTERNAL, message);
                if let Some(ending) = &mut answer.ending {
                    ending.refuse(&error);
                }
                let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error).with_call(call);
                let mut response = refusal.into_response();
                response.body_mut().ends(answer.ending);
                return Ok(response);
            }
        };
        id.set_sensitive(true);
        let mut response = single_response(answer, StatusCode::OK, accepts);
        response.body_mut().opens = Some(session.key());
        response
            .headers_mut()
            .insert(headers::SESSION_ID.clone(), id);
        Ok(response)
    }

    /// The first item of a call. `None` if an event stream must begin first: the call takes long,
    /// or the server's answer can be resumed.
    async fn first_item(&self, call: &mut RenderedCall, accepts: Accepts) -> Option<Option<Item>> {
        let revision = call.rendering.revision;
        let may_pause = accepts.events && revision.pauses_streams;
        loop {
            let next = if accepts.events {
                // A client that waits longer needs signs of life, and a stream that it can resume.
                timeout(self.settings.stream_after, call.next()).await.ok()
            } else {
                Some(call.next().await)
            };
            match next {
                Some(Some(ResponseItem::Stream(StreamSignal::Paused { .. }))) if !may_pause => {}
                Some(Some(ResponseItem::Stream(StreamSignal::Begun))) => {
                    if accepts.events && revision.resumes_streams {
                        return None;
                    }
                }
                next => return next,
            }
        }
    }

    /// The response to a call, in the form that its first item needs.
    fn response_to(
        &self,
        call: RenderedCall,
        first: Option<Option<Item>>,
        session: Option<ActiveSession>,
        accepts: Accepts,
    ) -> Response<ReplyBody> {
        match first {
            Some(Some(ResponseItem::Response(answer))) => {
                let status = call.rendering.revision.status(answer.error);
                let status = StatusCode::from_u16(status).unwrap_or_default();
                if accepts.json || status != StatusCode::OK || session.is_none() {
                    single_response(answer, status, accepts)
                } else {
                    let mut responses = Responses::default();
                    responses.put_first(ResponseItem::Response(answer));
                    self.stream(responses, session, false)
                }
            }
            Some(Some(item)) => {
                let mut responses = Responses::from(call);
                responses.put_first(item);
                self.stream(responses, session, false)
            }
            // A cancelled request gets no response (2025-11-25 basic/utilities/cancellation), but a
            // POST with a request needs a JSON object or a stream (basic/transports). So it gets a
            // stream without events.
            Some(None) => reply::events(Pieces::new(), None),
            None => self.stream(Responses::from(call), session, true),
        }
    }

    /// An event stream. `quiet` says that the first event may take long.
    fn stream(
        &self,
        responses: Responses,
        session: Option<ActiveSession>,
        quiet: bool,
    ) -> Response<ReplyBody> {
        let (times, responses) = (StreamTimes::from(&*self.settings), Box::new(responses));
        let stream = match session.filter(|it| it.session.revision().resumes_streams) {
            Some(session) => {
                EventStream::read(StreamReader::calls(session, &self.policy, responses), times)
            }
            None => EventStream::from_responses(responses, times),
        };
        reply::events(stream.opening(quiet).into_iter().collect(), Some(stream))
    }

    /// Answers a batch with an event stream, or with one array of all answers (2025-03-26
    /// basic/transports, Sending Messages to the Server).
    pub(super) async fn answer_batch(
        &self,
        session: ActiveSession,
        requests: Vec<Result<Box<RenderedCall>, Box<ingress::Refusal>>>,
        accepts: Accepts,
    ) -> Reply {
        if requests.is_empty() {
            return Ok(reply::empty(StatusCode::ACCEPTED));
        }
        let mut responses = Responses::default();
        for request in requests {
            match request {
                Ok(call) => responses.add(*call),
                Err(refusal) => {
                    let ingress::Refusal {
                        error, id, ending, ..
                    } = *refusal;
                    responses.put_first(ResponseItem::Response(Answer {
                        text: fault::message(id.as_ref(), &error).into_bytes().into(),
                        error: Some(error.code),
                        ending,
                    }));
                }
            }
        }
        Ok(if accepts.events {
            self.stream(responses, Some(session), true)
        } else {
            all(responses).await
        })
    }
}

/// All answers in one array, once they are complete.
async fn all(mut responses: Responses) -> Response<ReplyBody> {
    let (mut answers, mut endings) = (ArrayBuilder::default(), Vec::new());
    while let Some(item) = responses.next().await {
        if let ResponseItem::Response(Answer { text, ending, .. }) = item
            && let Ok(text) = Json::parse(text.into_bytes(), MAX_NESTING)
        {
            answers.push(&text);
            endings.push(ending);
        }
    }
    // All requests were cancelled.
    if endings.is_empty() {
        return reply::empty(StatusCode::ACCEPTED);
    }
    let mut response = reply::json(StatusCode::OK, answers.finish().into_bytes().into());
    endings
        .into_iter()
        .for_each(|ending| response.body_mut().ends(ending));
    response
}

/// A response without preceding messages.
fn single_response(
    Answer { text, ending, .. }: Answer,
    status: StatusCode,
    accepts: Accepts,
) -> Response<ReplyBody> {
    let mut response = if accepts.json || status != StatusCode::OK {
        reply::json(status, text)
    } else {
        reply::events(events::event(&text), None)
    };
    response.body_mut().ends(ending);
    response
}

impl Transport for Arrived<'_> {
    const HAS_HEADERS: bool = true;

    fn version_header(&self) -> Option<&str> {
        headers::protocol_version(&self.fields)
    }

    fn takes_messages(&self) -> bool {
        self.accepts.events
    }

    fn revision(&self, meta: &Meta) -> Result<Revision, RpcError> {
        headers::check_version(&self.fields, meta)
    }

    fn check_headers(
        &self,
        revision: Revision,
        method: &Method,
        params: &Params,
    ) -> Result<(), RpcError> {
        headers::check_standard(&self.fields, revision, method, params)
    }

    fn check_mirrored(&self, operation: &dyn Decidable, params: &Params) -> Result<(), RpcError> {
        let called = operation.definition().zip(params.name());
        let Some((tool, name)) = called.filter(|_| !operation.is_indirect()) else {
            return Ok(());
        };
        let mirrored = self
            .endpoint
            .mirrored_params
            .find(&name.as_str().unwrap_or_default(), tool)?;
        headers::check_params(
            &self.fields,
            mirrored.as_deref().unwrap_or_default(),
            params,
        )
    }

    async fn session(
        &self,
        _origin: &Origin<'_>,
    ) -> Result<Option<ActiveSession>, Box<ingress::Refusal>> {
        super::require_session(self.session.clone()).map(Some)
    }

    /// The destination of a request about a task. The session comes first: only the replica that
    /// keeps it knows whether it lives.
    fn task_elsewhere(&self, origin: &Origin<'_>, request: &Request) -> Option<AboutTask> {
        let is_about_task = request.method.is_about_task();
        let may_read = matches!(request.method, Method::ReadResource | Method::CallTool);
        if may_read && self.session.is_none() && matches!(self.passing, Passing::Here) {
            return Some(AboutTask::Here);
        }
        if !is_about_task || matches!(self.passing, Passing::Nowhere) {
            return None;
        }
        let id = request.param("taskId");
        let id = id.as_ref().and_then(Json::as_str).unwrap_or_default();
        let keeper = self.endpoint.handles.keeper_of_task(&id, &origin.holder);
        if keeper == Keeper::Nobody {
            return None;
        }
        match &self.session {
            Some(Ok(session)) => match (self.passing, keeper) {
                (Passing::On(_) | Passing::Here | Passing::Task(Some(_)), Keeper::Another(run)) => {
                    let tasks = session.session.revision().tasks;
                    tasks.map(|_| AboutTask::PassOn(run))
                }
                _ => None,
            },
            Some(Err(_)) => match (self.passing, keeper) {
                (Passing::Task(Some(_)), Keeper::Another(run)) => Some(AboutTask::PassOn(run)),
                (Passing::Task(_), _) => Some(AboutTask::Here),
                _ => None,
            },
            // It was forwarded without its session, which the forwarding replica has found.
            None => match (self.passing, keeper) {
                (Passing::Here, Keeper::ThisRun) => Some(AboutTask::Here),
                _ => None,
            },
        }
    }

    fn passes_results(&self) -> bool {
        matches!(self.passing, Passing::On(_))
    }

    fn session_id(&self) -> Option<&str> {
        super::session_id(&self.fields)
    }

    /// A load balancer uses open connections until it notices that they end. So an ending process
    /// lets another replica open new sessions.
    fn opens_sessions(&self) -> Option<ProcessRun> {
        match self.passing {
            Passing::On(replicas) if self.endpoint.ending.is_cancelled() => replicas.find_other(),
            _ => None,
        }
    }

    fn closing(&self) -> &CancellationToken {
        self.active.shutdown()
    }

    /// The tracker of calls that outlive their connection, used only for the legacy era:
    /// "Disconnection SHOULD NOT be interpreted as the client cancelling its request". In the
    /// modern era a disconnection cancels the request (2026-07-28 streamable-http, Cancellation) by
    /// dropping the call.
    fn detached_calls(&self) -> Option<&Arc<DetachedCalls>> {
        Some(&self.endpoint.detached)
    }

    fn listen(&self, session: &ActiveSession) -> Option<BoxFuture<'static, ()>> {
        let opened = session.listen_in_background(&self.endpoint.policy)?;
        let limit = self.endpoint.settings.stream_after;
        // If the core takes longer, the request continues; until then, messages wait at the server.
        Some(Box::pin(async move {
            drop(timeout(limit, opened.cancelled()).await);
        }))
    }
}
