//! One request: checked by the rules of its era, admitted, and started.

use std::sync::Arc;

use fanlight_canonical::{CallContext, Caller, Core, Peer, SessionRequest};
use fanlight_protocol::capability::can_be_asked;
use fanlight_protocol::input;
use fanlight_protocol::member_name::is_confusable_method;
use fanlight_protocol::{Era, Json, Method, Request, Response, Revision, RpcError, code};
use fanlight_telemetry::ServerSpan;

use super::{Ingress, Origin, Reason, Refusal, RequestKind, StartedRequest, Transport};
use crate::call::{Answered, CoreCall, CoreRequest, LegacyCall, RenderedCall, ResponseStream, input_rounds};
use crate::eras::notifications::NotificationFilter;
use crate::eras::params::{Meta, Params};
use crate::eras::render::Rendering;
use crate::eras::{era, fault, legacy, modern};
use crate::memory::UNCOUNTED;
use crate::session::{Cancellation, Client, Session};
use crate::streams::{ActiveSession, SessionStreams};
use crate::suspended::{Resumption, Retry, SuspendableCall};
use crate::trace::client_name;
use crate::validity::RequestValidity;

type Responses = Box<dyn ResponseStream<Response>>;

/// A part of a request for a call that may be suspended: a small one in memory of its own, since it would keep a whole
/// buffer of its connection in memory. A larger one is counted as long as it is kept.
fn in_own_memory(value: Json) -> Json {
    if value.bytes().len() <= UNCOUNTED { value.detached() } else { value }
}

/// A request whose params have been read.
pub(super) struct ParsedRequest {
    pub(super) request: Request,
    pub(super) params: Params,
    /// Moves on to the call.
    pub(super) span: ServerSpan,
}

impl<C: Core> Ingress<C> {
    /// Starts a request by the rules of its era.
    pub(super) async fn start<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        parsed: &mut ParsedRequest,
        in_batch: bool,
    ) -> Result<StartedRequest, Box<Refusal>> {
        let (method, meta) = (&parsed.request.method, &parsed.params.meta);
        // Where the body names a revision, the header decides nothing.
        let is_decided = in_batch || meta.protocol_version().is_some();
        let header = if is_decided { None } else { transport.version_header() };
        let era = era::of_request(method, meta, header);
        tracing::debug!(%era, method = known_name(method), "request");
        if in_batch {
            fault::check_in_batch(method, era)?;
        }
        if let Method::Other(name) = method
            && is_confusable_method(name)
        {
            return Err(fault::method_not_found(name).into());
        }
        match era {
            Era::Modern if !transport.serves_modern() => Err(modern::not_served(method, meta).into()),
            Era::Modern => self.start_modern(transport, origin, parsed).await,
            Era::Legacy if *method == Method::Initialize => self.start_initialize(transport, origin, parsed),
            Era::Legacy => self.start_legacy(transport, origin, parsed).await,
        }
    }

    /// A request without a session.
    async fn start_modern<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        parsed: &mut ParsedRequest,
    ) -> Result<StartedRequest, Box<Refusal>> {
        let ParsedRequest { request, params, span } = &mut *parsed;
        let revision = transport.revision(&params.meta)?;
        span.set_revision(revision);
        let sender = modern::request_meta(&params.meta)?;
        span.set_client(|| client_name(sender.client_info.as_ref(), &origin.identity));
        transport.check_headers(&self.core, request, params, origin.holder.endpoint(), span.within()).await?;
        modern::check_method(&request.method, &sender)?;
        let is_subscription = request.method == Method::Listen;
        let asked = Some((&request.method, &*params, span.within()));
        let permit = self.admit(transport, origin, asked, !is_subscription).await?;
        let cancellation = transport.running().map(|running| running.begin(&request.id));
        let caller = Caller::request_of(origin.holder.clone());
        let kind = if is_subscription { RequestKind::Subscription } else { RequestKind::Call };
        let stream: Result<Responses, RpcError> = if is_subscription {
            let opened = self.subscriptions.open(
                &self.core,
                (caller, origin.peer()),
                request,
                sender,
                (cancellation, transport.closing()),
                span.parent(),
            );
            opened.map(|subscription| Box::new(subscription) as Responses)
        } else {
            self.resumption(origin, request, params).await.map(|resumption| {
                self.suspendable_call(
                    (caller, origin.peer()),
                    parsed,
                    sender,
                    transport.takes_messages(),
                    resumption,
                    (cancellation, RequestValidity::of(&origin.identity)),
                )
            })
        };
        let stream = stream.unwrap_or_else(|error| Box::new(Answered::new(Response::from_error(&error))));
        let call = parsed.answered_by::<T>(stream, revision, self.settings.max_mirrored_params);
        let call = if is_subscription { call.ending_span_at_message() } else { call };
        Ok(StartedRequest { call, kind, revision, session: None, permit })
    }

    /// How a request continues: with a suspended call, if it brings the input that the call waits for.
    async fn resumption(
        &self,
        origin: &Origin<'_>,
        request: &Request,
        params: &Params,
    ) -> Result<Resumption, RpcError> {
        // Few requests have a state.
        if !params.has_request_state() {
            return Ok(Resumption::New);
        }
        let (state, responses) = (params.request_state(), params.input_responses());
        let retry = Retry {
            holder: &origin.holder,
            method: &request.method,
            params: request.params.as_ref(),
            state: state.as_ref(),
            responses: responses.as_ref(),
        };
        Box::pin(self.suspended_calls.resume(retry)).await
    }

    fn suspendable_call(
        &self,
        (caller, peer): (Caller, Peer),
        parsed: &mut ParsedRequest,
        sender: modern::RequestMeta,
        takes_messages: bool,
        resumption: Resumption,
        (cancellation, validity): (Option<Cancellation>, Option<Box<RequestValidity>>),
    ) -> Responses {
        let ParsedRequest { request, params, span } = parsed;
        let (method, trace) = (request.method.clone(), span.parent());
        let progress_token = if takes_messages { params.meta.progress_token() } else { None };
        let wants_progress = progress_token.is_some();
        let logs = sender.log_gate();
        let filter = takes_messages.then_some(NotificationFilter { progress_token, logs, era: Era::Modern });
        let params = match resumption {
            Resumption::New => request.params.take(),
            Resumption::Repeat => Some(input::next_params(request.params.as_ref(), &[], None)),
            Resumption::Answered(response) => return Box::new(Answered::new(response)),
            Resumption::Suspended(call) => {
                let calls = Arc::clone(&self.suspended_calls);
                return Box::new(SuspendableCall::resumed(
                    call,
                    sender.capabilities,
                    filter,
                    (cancellation, validity),
                    trace,
                    calls,
                ));
            }
        };
        let tasks = sender.tasks();
        let may_be_suspended = method.may_need_input() && can_be_asked(&sender.capabilities);
        let kept = |value: Json| if may_be_suspended { in_own_memory(value) } else { value };
        let params = params.map(kept);
        let context = CallContext {
            caller,
            peer,
            client_info: sender.client_info.map(kept),
            capabilities: kept(sender.capabilities),
            log_level: sender.log_level,
            wants_progress,
            request: None,
            tasks,
            trace,
        };
        // A server request reaches the client by the answer, which needs no event stream.
        let suspended_calls = method.may_need_input().then(|| Arc::clone(&self.suspended_calls));
        let messages = (takes_messages || suspended_calls.is_some()).then_some(self.settings.notification_buffer);
        let core_request =
            CoreRequest { method: method.clone(), params: params.clone(), context, messages, input_rounds: None };
        let mut call = CoreCall::start(&self.core, core_request);
        call.set_cancellation(cancellation);
        call.set_validity(validity);
        Box::new(SuspendableCall::new(call, (method, params), filter, suspended_calls))
    }

    /// A request within a session.
    async fn start_legacy<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        parsed: &mut ParsedRequest,
    ) -> Result<StartedRequest, Box<Refusal>> {
        let session = transport.session(origin).await?;
        let ParsedRequest { request, params, span } = &mut *parsed;
        let revision = match &session {
            Some(session) => session.session.revision(),
            // "ping" needs no session on a connection.
            None if request.method == Method::Ping => Revision::NEWEST_LEGACY,
            None => return Err(not_initialized(transport, &params.meta).into()),
        };
        span.set_revision(revision);
        if let Some(id) = transport.session_id() {
            span.set_session(id);
        }
        let info = session.as_ref().and_then(|session| session.session.client_info());
        span.set_client(|| client_name(info, &origin.identity));
        let own_answer = legacy::own_answer(&request.method, params);
        let asked = Some((&request.method, &*params, span.within()));
        let permit = self.admit(transport, origin, asked, own_answer.is_none()).await?;
        let stream: Responses = match (own_answer, &session) {
            (None, Some(session)) => Box::new(self.legacy_call(transport, origin, session, parsed)),
            (answer, _) => {
                let answer = answer.unwrap_or_else(|| Err(RpcError::new(code::INTERNAL, "no session")));
                Box::new(Answered::new(answer.unwrap_or_else(|error| Response::from_error(&error))))
            }
        };
        let call = parsed.answered_by::<T>(stream, revision, self.settings.max_mirrored_params);
        Ok(StartedRequest { call, kind: RequestKind::Call, revision, session, permit })
    }

    fn legacy_call<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        session: &ActiveSession,
        parsed: &mut ParsedRequest,
    ) -> LegacyCall {
        let ParsedRequest { request, params, span } = parsed;
        let method = request.method.clone();
        let listening = match method {
            Method::SetLogLevel => {
                session.session.set_log_level(legacy::log_level(params).ok());
                None
            }
            // Before the server is asked, which may send messages at once.
            Method::Subscribe => transport.listen(&self.core, session),
            _ => None,
        };
        let client = &session.session;
        let (takes_messages, progress_token) = (transport.takes_messages(), params.meta.progress_token());
        let named = Arc::new(SessionRequest::new(progress_token.clone()));
        let context = CallContext {
            trace: span.parent(),
            request: Some(Arc::clone(&named)),
            ..client.context(takes_messages && progress_token.is_some())
        };
        let logs = legacy::log_gate(client.log_level());
        let filter = NotificationFilter { progress_token, logs, era: Era::Legacy };
        let limits = || input_rounds::Limits {
            rounds: self.settings.max_input_rounds,
            timeout: self.settings.input_timeout,
            give_up: self.settings.give_up.clone(),
        };
        let core_request = CoreRequest {
            input_rounds: method.may_need_input().then(limits),
            method,
            params: request.params.take(),
            context,
            messages: takes_messages.then_some(self.settings.notification_buffer),
        };
        let mut call = CoreCall::start_after(listening, &self.core, core_request);
        call.set_cancellation(Some(client.running.begin_named(&request.id, named)));
        call.set_validity(RequestValidity::of(&origin.identity));
        call.keep_session(session.clone().into_guard());
        if let Some(detached) = transport.detached() {
            call.outlive_in(detached);
        }
        LegacyCall::new(call, filter, Arc::clone(client))
    }

    /// Makes a session, which the transport opens, and has the core describe the server.
    fn start_initialize<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        parsed: &mut ParsedRequest,
    ) -> Result<StartedRequest, Box<Refusal>> {
        let ParsedRequest { params, span, .. } = &mut *parsed;
        let initialize = legacy::initialize(params, self.settings.max_description)
            .map_err(|error| Refusal::new(Reason::Params, error))?;
        // It needs no scopes.
        let permit = self.permit(transport, true)?;
        let running = transport.running().cloned().unwrap_or_default();
        let limit = self.settings.max_server_requests;
        let bytes = initialize.len();
        let peer = origin.peer();
        let memory = self.settings.description_memory.reserve(&peer, bytes);
        let memory = memory.map_err(|spent| {
            tracing::warn!(
                bytes,
                ?peer,
                "session refused: too many descriptions of clients (limits.clientDescriptions)"
            );
            Refusal::new(Reason::Busy, RpcError::new(code::INTERNAL, spent.to_string()))
        })?;
        let client = Client {
            holder: origin.holder.clone(),
            identity: Arc::clone(&origin.identity),
            peer,
            initialize,
            _memory: memory,
        };
        let session = Session::new(client, running, limit, &self.core);
        session.count(&self.settings.telemetry);
        let streams = SessionStreams::new(session, &self.settings);
        let revision = streams.session.revision();
        span.set_revision(revision);
        span.set_client(|| client_name(streams.session.client_info(), &origin.identity));
        let context = CallContext { trace: span.parent(), ..streams.session.context(false) };
        let core_request =
            CoreRequest { method: Method::Discover, params: None, context, messages: None, input_rounds: None };
        let logs = legacy::log_gate(None);
        let filter = NotificationFilter { progress_token: None, logs, era: Era::Legacy };
        let call = LegacyCall::new(CoreCall::start(&self.core, core_request), filter, Arc::clone(&streams.session));
        let call = parsed.answered_by::<T>(Box::new(call), revision, self.settings.max_mirrored_params);
        Ok(StartedRequest { call, kind: RequestKind::Initialize(streams), revision, session: None, permit })
    }
}

impl ParsedRequest {
    /// The call that answers the request, which takes over its id and span.
    fn answered_by<T: Transport>(&mut self, stream: Responses, revision: Revision, mirrored: usize) -> RenderedCall {
        let id = std::mem::replace(&mut self.request.id, Json::null());
        let mirrors_params = (T::HAS_HEADERS && revision.era() == Era::Modern).then_some(mirrored);
        let rendering = Rendering { id, method: self.request.method.clone(), revision, mirrors_params };
        RenderedCall::new(stream, rendering, std::mem::replace(&mut self.span, ServerSpan::off()))
    }
}

/// The error for a request that neither belongs to a session nor has the metadata of a modern one.
/// "A request missing any required field is malformed" (2026-07-28 basic/index, Per-request protocol
/// fields).
fn not_initialized<T: Transport>(transport: &T, meta: &Meta) -> RpcError {
    match modern::revision(meta) {
        Err(error) if transport.serves_modern() => error,
        _ => RpcError::new(code::INVALID_REQUEST, "open a session with \"initialize\" first"),
    }
}

/// A method's name for the log: only names that no client makes up.
fn known_name(method: &Method) -> &str {
    match method {
        Method::Other(_) => "other",
        known => known.as_str(),
    }
}
