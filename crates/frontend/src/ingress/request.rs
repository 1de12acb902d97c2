//! Checks a request by the rules of its era, admits it and starts it.

use std::sync::{Arc, OnceLock};

use fanlight_canonical::{
    AuditFacts, Call, CallContext, Caller, Decidable, Detail, LONGEST_URI, ServerSessions,
    SessionRequest,
};
use fanlight_gateway::Operation;
use fanlight_protocol::json::Value;
use fanlight_protocol::member_name::is_confusable_method;
use fanlight_protocol::param_header::MAX_MIRRORED;
use fanlight_protocol::{
    Era, Json, LogLevel, Method, Request, Response, Revision, RpcError, can_be_asked, code, input,
};
use fanlight_telemetry::{Network, ServerSpan};
use tokio::sync::OwnedSemaphorePermit;

use super::{AboutTask, Ingress, Kept, Origin, Reason, Receiving, Refusal, RequestKind, Transport};
use crate::call::core_call::RequestValidity;
use crate::call::subscription::SubscriptionTerms;
use crate::call::{
    Answered, CoreCall, LegacyCall, Noted, RenderedCall, RequestEnds, ResponseStream, input_rounds,
};
use crate::eras::notifications::{LogGate, NotificationFilter};
use crate::eras::params::{Meta, Params};
use crate::eras::render::Rendering;
use crate::eras::{fault, legacy, modern};
use crate::gates::{self, Gates, LastingDecision, OwnRequest, Recording, Rights};
use crate::protection::Turn;
use crate::session::archive::{ArchivedSession, OnRecord};
use crate::session::{RunningRequests, Session, SessionRecord};
use crate::settings::UNCOUNTED;
use crate::streams::{ActiveSession, SessionStreams};
use crate::suspended::{Found, Resumption, Retry, SuspendableCall, WaitingCall, kept_elsewhere};
use crate::trace::client_name;

/// Bytes of a legacy client's capabilities, and of its `clientInfo`, that are kept.
const MAX_DESCRIPTION: usize = 128 << 10;

type Responses = Box<dyn ResponseStream<Response>>;

pub(super) type Started = (RenderedCall, RequestKind);

/// Copies a small part of a request for a call that may be suspended. A slice would keep a whole
/// buffer of the connection in memory. A larger part counts against the memory limit instead.
fn in_own_memory(value: Json) -> Json {
    if value.bytes().len() <= UNCOUNTED {
        value.detached()
    } else {
        value
    }
}

/// A request with its parsed params.
pub(super) struct ParsedRequest {
    pub(super) request: Request,
    pub(super) params: Params,
    /// The request's span, which later moves to the call.
    pub(super) span: ServerSpan,
}

impl<T: Transport> Receiving<'_, T> {
    /// Starts a request by the rules of its era.
    pub(super) async fn start(
        &self,
        parsed: &mut ParsedRequest,
        in_batch: bool,
    ) -> Result<Started, Box<Refusal>> {
        let (method, meta) = (&parsed.request.method, &parsed.params.meta);
        // A revision in the body takes precedence over the header.
        let is_decided = in_batch || meta.protocol_version().is_some();
        let header = if is_decided {
            None
        } else {
            self.transport.version_header()
        };
        let era = modern::request_era(method, meta, header);
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
            _ if !self.transport.serves(era) => Err(modern::not_served(method, meta).into()),
            Era::Modern => self.start_modern(parsed).await,
            Era::Legacy if *method == Method::Initialize => self.start_initialize(parsed).await,
            Era::Legacy => match self.transport.task_elsewhere(self.origin, &parsed.request) {
                None => self.start_legacy(parsed).await,
                Some(AboutTask::PassOn(run)) => {
                    // No client gets the error: either that run answers, or this one reports an
                    // unknown task.
                    let error =
                        RpcError::new(code::INVALID_PARAMS, "another replica keeps the task");
                    Err(Refusal::new(Reason::Params, error).with_keeper(Kept::Task, run))
                }
                // Boxed, since it is rare.
                Some(AboutTask::Here) => Box::pin(self.start_about_task(parsed)).await,
            },
        }
    }

    /// Starts a request about a task or a kept result without its session, which another replica
    /// keeps.
    async fn start_about_task(&self, parsed: &mut ParsedRequest) -> Result<Started, Box<Refusal>> {
        // Only clients of this revision have such tasks.
        let revision = Revision::NEWEST_LEGACY;
        let ParsedRequest {
            request,
            params,
            span,
        } = &mut *parsed;
        check_has_no_state(self.origin, params)?;
        span.set_revision(revision);
        span.set_client(|| client_name(None, &self.origin.identity));
        let client = CallContext {
            era: revision.era,
            tasks: revision.tasks,
            trace: span.parent(),
            noted: self.audit_facts(),
            ..client_of(self.origin, None)
        };
        let method = request.method.clone();
        let detail = self.detail(&method);
        let unresolved = Call::new(method, request.params.clone(), Arc::new(client));
        let operation = self.core.resolve(unresolved, detail).await;
        let may_run = !matches!(operation.method(), Method::ReadResource | Method::CallTool);
        if !may_run && !operation.reads_result() {
            return Err(result_elsewhere());
        }
        let (gates, permit) = self.admit_operation(&operation).await?;
        let ends = self.ends_of(parsed);
        let stream = self.suspendable_call(operation, gates, parsed, None, Resumption::New, ends);
        let call = parsed.call::<T>(stream, revision, permit);
        Ok((call, RequestKind::Call(None)))
    }

    /// Starts a request without a session.
    async fn start_modern(&self, parsed: &mut ParsedRequest) -> Result<Started, Box<Refusal>> {
        let ParsedRequest {
            request,
            params,
            span,
        } = &mut *parsed;
        let revision = self.transport.revision(&params.meta)?;
        span.set_revision(revision);
        let sender = modern::request_meta(revision, &params.meta)?;
        span.set_client(|| client_name(sender.client_info.as_ref(), &self.origin.identity));
        self.transport
            .check_headers(revision, &request.method, params)?;
        modern::check_method(&mut request.method, &sender)?;
        if request.method == Method::Listen {
            // Boxed, since it is rare.
            return Box::pin(self.start_subscription(parsed, sender)).await;
        }
        let is_of_server = params.has_request_state() && self.open_server_state(parsed)?;
        let found = if is_of_server {
            Ok(Found::Call(Resumption::New))
        } else {
            self.find(&parsed.request, &parsed.params)
        };
        let (stream, permit) = match found {
            Ok(Found::Suspended(waiting)) => {
                Box::pin(self.resume(parsed, &sender, *waiting)).await?
            }
            Ok(Found::Elsewhere(run)) => {
                return Err(Refusal::new(Reason::Params, kept_elsewhere())
                    .with_keeper(Kept::SuspendedCall, run));
            }
            Ok(Found::Call(resumption)) => self.begin(parsed, sender, Ok(resumption)).await?,
            // Boxed, since it is rare and would be stored twice in every call's future.
            Err(error) => Box::pin(self.begin(parsed, sender, Err(error))).await?,
        };
        let call = parsed.call::<T>(stream, revision, permit);
        Ok((call, RequestKind::Call(None)))
    }

    /// Refuses a request that reads a result which another run keeps, so that this run forwards it.
    fn check_keeper(&self, operation: &Operation) -> Result<(), Box<Refusal>> {
        let keeper = operation.result_keeper(&self.core);
        match keeper.filter(|_| self.transport.passes_results()) {
            Some(run) => Err(result_elsewhere().with_keeper(Kept::Result, run)),
            None => Ok(()),
        }
    }

    /// Begins a call that does not continue another; an unusable `requestState` ends it with an
    /// error.
    async fn begin(
        &self,
        parsed: &mut ParsedRequest,
        sender: modern::RequestMeta,
        resumption: Result<Resumption, RpcError>,
    ) -> Result<(Responses, Option<OwnedSemaphorePermit>), Box<Refusal>> {
        let (revision, level) = (sender.revision, sender.log_level);
        let operation = self.resolve_modern(parsed, sender).await;
        self.check_keeper(&operation)?;
        self.transport.check_mirrored(&operation, &parsed.params)?;
        let (gates, permit) = self.admit_operation(&operation).await?;
        let ends = self.ends_of(parsed);
        let filter = self.modern_filter(parsed, revision, level);
        let stream: Responses = match resumption {
            Ok(it) => self.suspendable_call(operation, gates, parsed, filter, it, ends),
            Err(error) => answered_without_running(gates, Response::from_error(&error)),
        };
        Ok((stream, permit))
    }

    /// Continues a suspended call. The policy decides again, since the client's rights may have
    /// changed. It decides about exactly the call that continues.
    async fn resume(
        &self,
        parsed: &ParsedRequest,
        sender: &modern::RequestMeta,
        waiting: WaitingCall,
    ) -> Result<(Responses, Option<OwnedSemaphorePermit>), Box<Refusal>> {
        self.transport
            .check_mirrored(&*waiting.decided, &parsed.params)?;
        let (turn, permit) = self.admit_request(&*waiting.decided).await?;
        // The call has already waited for the client, so it waits for no turn.
        turn.into_iter().for_each(Turn::pass);
        let ends = self.ends_of(parsed);
        let filter = self.modern_filter(parsed, sender.revision, sender.log_level);
        let client = CallContext {
            trace: parsed.span.parent(),
            ..client_of(self.origin, sender.client_info.as_ref())
        };
        let decided = self.core.may_go_on(&waiting.decided, &client);
        let waiting = if decided.is_ok() {
            waiting
        } else {
            waiting.without_answers()
        };
        let resumed = self.suspended_calls.resume(waiting).await;
        let stream: Responses = match resumed.and_then(|call| decided.map(|()| call)) {
            Ok(call) => call.resume(&sender.capabilities, filter, ends, parsed.span.parent()),
            Err(error) => Box::new(Answered::new(Response::from_error(&error))),
        };
        Ok((stream, permit))
    }

    /// Replaces a server's state, which Fanlight sealed for the client, by the server's original.
    /// Returns whether the request had one.
    fn open_server_state(&self, parsed: &mut ParsedRequest) -> Result<bool, Box<Refusal>> {
        let ParsedRequest {
            request, params, ..
        } = parsed;
        let opened = self
            .suspended_calls
            .open_server_state(params.request_state().as_ref(), &self.origin.holder);
        let opened = opened.map_err(|error| Refusal::new(Reason::Params, error))?;
        let Some((state, place)) = opened.zip(params.request_state_range()) else {
            return Ok(false);
        };
        let with_state = request
            .params
            .as_ref()
            .map(|params| params.with_indexed(place, &state));
        *params = Params::read(with_state.as_ref())?;
        request.params = with_state;
        Ok(true)
    }

    /// Starts a stream of server messages outside of calls.
    async fn start_subscription(
        &self,
        parsed: &mut ParsedRequest,
        sender: modern::RequestMeta,
    ) -> Result<Started, Box<Refusal>> {
        let ParsedRequest { request, span, .. } = &mut *parsed;
        let revision = sender.revision;
        let core = &self.core;
        // Copied, since the subscription lasts: a slice would keep the whole request in memory.
        let context = Arc::new(CallContext {
            era: revision.era,
            client_info: sender.client_info.as_ref().map(Json::detached),
            tasks: sender.tasks(),
            capabilities: sender.capabilities.detached(),
            trace: span.parent(),
            ..client_of(self.origin, None)
        });
        let resolved = self.subscriptions.resolve(core, request, &context);
        let own = OwnRequest(&request.method);
        let asked: &dyn Decidable = resolved.as_ref().map_or(&own, |operation| operation);
        let turn = self.admit_in_turn(asked).await?;
        let recording = Recording::for_listening(&self.settings, &context, request.params.as_ref());
        let cancellation = self
            .transport
            .running_requests()
            .map(|running| running.begin(&request.id));
        let opened = resolved.and_then(|operation| {
            let terms = SubscriptionTerms {
                turn,
                recording,
                cancellation,
                decision: operation
                    .interest()
                    .and_then(|it| LastingDecision::new(&self.settings, &context.caller, it)),
                closing: Box::pin(self.transport.closing().clone().cancelled_owned()),
            };
            self.subscriptions.open(core, operation, request, terms)
        });
        let stream: Responses = match opened {
            Ok(subscription) => Box::new(subscription),
            Err(error) => Box::new(Answered::new(Response::from_error(&error))),
        };
        let mut call = parsed.call::<T>(stream, revision, None);
        call.ends_span_at_message = true;
        Ok((call, RequestKind::Subscription))
    }

    /// The operation of a request without a session.
    async fn resolve_modern(
        &self,
        parsed: &mut ParsedRequest,
        sender: modern::RequestMeta,
    ) -> Operation {
        let ParsedRequest {
            request,
            params,
            span,
        } = parsed;
        let method = request.method.clone();
        let tasks = sender.tasks();
        let may_be_suspended = method.may_need_input() && can_be_asked(&sender.capabilities);
        let kept = |value: Json| {
            if may_be_suspended {
                in_own_memory(value)
            } else {
                value
            }
        };
        let context = CallContext {
            caller: caller_of(self.origin),
            peer: self.origin.peer(),
            address: self.origin.facts.client_address(),
            era: sender.revision.era,
            client_info: sender.client_info.map(kept),
            capabilities: kept(sender.capabilities),
            log_level: sender.log_level,
            wants_progress: self.transport.takes_messages()
                && params.meta.progress_token().is_some(),
            request: None,
            tasks,
            trace: span.parent(),
            noted: self.audit_facts(),
            once: OnceLock::new(),
            has_accepted_link: OnceLock::new(),
            gate: OnceLock::new(),
        };
        let detail = if T::HAS_HEADERS {
            Detail::Tool
        } else {
            self.detail(&method)
        };
        request.params = request.params.take().map(kept);
        let unresolved = Call::new(method, request.params.clone(), Arc::new(context));
        let operation = self.core.resolve(unresolved, detail).await;
        name_tool(span, &operation);
        operation
    }

    /// Finds the suspended call that the request has input for, if any.
    fn find(&self, request: &Request, params: &Params) -> Result<Found, RpcError> {
        // Fast path: few requests have a state.
        if !params.has_request_state() {
            return Ok(Found::Call(Resumption::New));
        }
        let (state, responses) = (params.request_state(), params.input_responses());
        let retry = Retry {
            holder: &self.origin.holder,
            method: &request.method,
            params: request.params.as_ref(),
            state: state.as_ref(),
            responses: responses.as_ref(),
        };
        self.suspended_calls.find(retry)
    }

    /// Starts a request within a session.
    async fn start_legacy(&self, parsed: &mut ParsedRequest) -> Result<Started, Box<Refusal>> {
        let session = self.transport.session(self.origin).await?;
        let ParsedRequest {
            request,
            params,
            span,
        } = &mut *parsed;
        check_has_no_state(self.origin, params)?;
        let revision = match &session {
            Some(session) => session.session.revision(),
            // On a connection, "ping" needs no session.
            None if request.method == Method::Ping => Revision::NEWEST_LEGACY,
            None => return Err(not_initialized(self.transport, &params.meta).into()),
        };
        span.set_revision(revision);
        if let Some(id) = self.transport.session_id() {
            span.set_session(id);
        }
        let info = session
            .as_ref()
            .and_then(|session| session.session.client_info());
        span.set_client(|| client_name(info, &self.origin.identity));
        let own_answer = legacy::own_answer(revision, &request.method, params);
        let (stream, permit): (Responses, _) = match (own_answer, &session) {
            (None, Some(session)) => {
                let named = Arc::new(SessionRequest::new(params.meta.progress_token()));
                let operation = self.resolve_legacy(session, parsed, &named).await;
                self.check_keeper(&operation)?;
                let (gates, permit) = self.admit_operation(&operation).await?;
                let noted = match parsed.request.method {
                    Method::SetLogLevel => Some(Noted::LogLevel(session.session.log_level())),
                    _ => note_subscription(&session.session, parsed, &operation)?
                        .map(Noted::Subscription),
                };
                let mut call = self.legacy_call(session, parsed, named, operation, gates);
                call.noted = noted;
                if matches!(
                    parsed.request.method,
                    Method::SetLogLevel | Method::Subscribe | Method::Unsubscribe
                ) {
                    Box::pin(session.session.write_record()).await;
                }
                (Box::new(call), permit)
            }
            (answer, _) => {
                let own = OwnRequest(&request.method);
                let permit = match &answer {
                    Some(_) => self.admit(&own).map(|()| None)?,
                    None => self.admit_request(&own).await?.1,
                };
                let answer =
                    answer.unwrap_or_else(|| Err(RpcError::new(code::INTERNAL, "no session")));
                (
                    Box::new(Answered::new(
                        answer.unwrap_or_else(|error| Response::from_error(&error)),
                    )),
                    permit,
                )
            }
        };
        let call = parsed.call::<T>(stream, revision, permit);
        Ok((call, RequestKind::Call(session)))
    }

    /// The operation of a request within a session.
    async fn resolve_legacy(
        &self,
        session: &ActiveSession,
        parsed: &mut ParsedRequest,
        named: &Arc<SessionRequest>,
    ) -> Operation {
        let ParsedRequest {
            request,
            params,
            span,
        } = parsed;
        let method = request.method.clone();
        let wants_progress =
            self.transport.takes_messages() && params.meta.progress_token().is_some();
        let mut context = session.session.context(wants_progress);
        let caller = context
            .caller
            .with_identity(Arc::clone(&self.origin.identity));
        context.caller = caller.with_headers(self.origin.headers.clone());
        context.address = self.origin.facts.client_address();
        if method == Method::SetLogLevel {
            context.log_level = legacy::log_level(params).ok();
        }
        let context = CallContext {
            trace: span.parent(),
            request: Some(Arc::clone(named)),
            noted: self.audit_facts(),
            ..context
        };
        let detail = self.detail(&method);
        let unresolved = Call::new(method, request.params.take(), Arc::new(context));
        let operation = self.core.resolve(unresolved, detail).await;
        name_tool(span, &operation);
        operation
    }

    fn legacy_call(
        &self,
        session: &ActiveSession,
        parsed: &mut ParsedRequest,
        named: Arc<SessionRequest>,
        operation: Operation,
        gates: Gates,
    ) -> LegacyCall {
        let ParsedRequest {
            request, params, ..
        } = parsed;
        let method = request.method.clone();
        let uri = || params.uri().and_then(Value::as_str);
        let listening = match method {
            Method::SetLogLevel => {
                session
                    .session
                    .set_log_level(legacy::log_level(params).ok());
                None
            }
            // Recorded before the server gets the request, since it may send messages at once.
            Method::Subscribe => self.transport.listen(session),
            Method::Unsubscribe => {
                uri()
                    .iter()
                    .for_each(|uri| session.session.forget_subscription(uri));
                None
            }
            _ => None,
        };
        let client = &session.session;
        // Also without a policy: a reload may add one.
        let may_be_asked =
            method.may_need_input() && can_be_asked(&operation.context().capabilities);
        let rights = may_be_asked.then(|| Rights::new(&self.core, &operation));
        let (takes_messages, progress_token) = (
            self.transport.takes_messages(),
            params.meta.progress_token(),
        );
        let revision = client.revision();
        let filter = NotificationFilter {
            progress_token,
            logs: LogGate::new(revision, client.log_level()),
            revision,
            judges_results: false,
        };
        let limits = || input_rounds::RoundLimits {
            rounds: self.settings.max_input_rounds,
            timeout: self.settings.input_timeout,
            give_up: self.settings.give_up.clone(),
        };
        let mut call = CoreCall::start_after(
            listening,
            &self.core,
            operation,
            gates,
            takes_messages.then_some(self.settings.notification_buffer),
            method.may_need_input().then(limits),
        );
        let cancellation = Some(client.running.begin_named(&request.id, named));
        call.set_ends(RequestEnds {
            cancellation,
            validity: RequestValidity::from_identity(&self.origin.identity),
        });
        call.session = Some(session.clone().into_guard());
        call.detached = self.transport.detached_calls().cloned();
        LegacyCall::new(call, filter, Arc::clone(client), rights)
    }

    /// Creates a session, which the transport opens, and lets the core describe the server.
    async fn start_initialize(&self, parsed: &mut ParsedRequest) -> Result<Started, Box<Refusal>> {
        let ParsedRequest { params, span, .. } = &mut *parsed;
        let initialize = legacy::initialize(params, MAX_DESCRIPTION)
            .map_err(|error| Refusal::new(Reason::Params, error))?;
        if let Some(run) = self.transport.opens_sessions() {
            let error = RpcError::new(code::INTERNAL, "the gateway is ending");
            return Err(Refusal::new(Reason::Busy, error).with_keeper(Kept::NewSession, run));
        }
        // `initialize` needs no scopes.
        let permit = gates::permit(&self.settings, self.transport.permits())?;
        let running = self
            .transport
            .running_requests()
            .cloned()
            .unwrap_or_default();
        let session = self.new_session(self.origin, initialize, running)?;
        session.count(
            &self.settings.telemetry,
            span.network().unwrap_or(Network::Stdio),
        );
        let streams = SessionStreams::new(session, &self.settings);
        let revision = streams.session.revision();
        span.set_revision(revision);
        span.set_client(|| client_name(streams.session.client_info(), &self.origin.identity));
        let context = CallContext {
            trace: span.parent(),
            ..streams.session.context(false)
        };
        let request = Call::new(Method::Discover, None, Arc::new(context));
        let operation = self.core.resolve(request, Detail::Known).await;
        let filter = NotificationFilter {
            progress_token: None,
            logs: LogGate::new(revision, None),
            revision,
            judges_results: false,
        };
        let call = LegacyCall::new(
            CoreCall::start(&self.core, operation, Gates::default(), None),
            filter,
            Arc::clone(&streams.session),
            None,
        );
        let call = parsed.call::<T>(Box::new(call), revision, permit);
        Ok((call, RequestKind::Initialize(streams)))
    }

    /// The notifications that a client without a session gets before the response.
    fn modern_filter(
        &self,
        parsed: &ParsedRequest,
        revision: Revision,
        level: Option<LogLevel>,
    ) -> Option<NotificationFilter> {
        self.transport.takes_messages().then(|| NotificationFilter {
            progress_token: parsed.params.meta.progress_token(),
            logs: LogGate::new(revision, level),
            revision,
            judges_results: self.settings.hooks.judge_results(),
        })
    }

    fn ends_of(&self, parsed: &ParsedRequest) -> RequestEnds {
        let cancellation = self
            .transport
            .running_requests()
            .map(|running| running.begin(&parsed.request.id));
        RequestEnds {
            cancellation,
            validity: RequestValidity::from_identity(&self.origin.identity),
        }
    }
}

impl Ingress {
    /// Where facts for the request's line in the audit log are noted, if it gets a line.
    fn audit_facts(&self) -> Option<AuditFacts> {
        self.settings
            .record
            .keeps_requests()
            .map(|_| AuditFacts::default())
    }

    fn suspendable_call(
        &self,
        mut operation: Operation,
        gates: Gates,
        parsed: &mut ParsedRequest,
        filter: Option<NotificationFilter>,
        resumption: Resumption,
        ends: RequestEnds,
    ) -> Responses {
        let request = &mut parsed.request;
        let params = match resumption {
            Resumption::New => request.params.take(),
            Resumption::Repeat => {
                let _ = operation.context().has_accepted_link.set(());
                operation.answer(&[], None);
                Some(input::next_params(request.params.as_ref(), &[], None))
            }
            Resumption::Answered(response) => {
                return answered_without_running(gates, response);
            }
        };
        let (all, core) = (&self.suspended_calls, &self.core);
        SuspendableCall::begin(all, core, operation, params, gates, filter, ends)
    }

    /// Creates the session of a client that sent `initialize`.
    fn new_session(
        &self,
        origin: &Origin<'_>,
        initialize: legacy::InitializeParams,
        running: Arc<RunningRequests>,
    ) -> Result<Session, Box<Refusal>> {
        let (bytes, peer) = (initialize.len(), origin.peer());
        let memory = self
            .settings
            .description_memory
            .reserve(&peer, bytes)
            .map_err(|_| {
                tracing::warn!(
                    bytes,
                    ?peer,
                    "session refused: no memory left for descriptions of clients"
                );
                Refusal::no_memory()
            })?;
        let record = SessionRecord {
            holder: origin.holder.clone(),
            identity: Arc::clone(&origin.identity),
            peer,
            initialize,
        };
        let may_move = self.settings.session_records.is_some()
            && self.core.sessions_may_move(record.holder.endpoint());
        let session = Session::new(
            record,
            memory,
            running,
            self.settings.max_server_requests,
            &self.core,
        );
        Ok(if may_move {
            session.with_server_sessions(ServerSessions::default())
        } else {
            session
        })
    }

    /// Restores a session of another replica with the client's current identity.
    pub(crate) fn continued_session(
        &self,
        origin: &Origin<'_>,
        archived: ArchivedSession,
        on_record: OnRecord,
    ) -> Result<Arc<SessionStreams>, Box<Refusal>> {
        let session = self
            .new_session(origin, archived.initialize.clone(), Arc::default())?
            .continuing(archived);
        session.count(&self.settings.telemetry, origin.facts.network);
        let streams = SessionStreams::new(session, &self.settings);
        streams.session.put_on_record(on_record);
        Ok(streams)
    }

    /// The context for work that Fanlight repeats for a session, with the client's current
    /// identity.
    pub(crate) fn context_again(
        &self,
        session: &ActiveSession,
        origin: &Origin<'_>,
    ) -> CallContext {
        let context = session.session.context(false);
        CallContext {
            caller: context.caller.with_identity(Arc::clone(&origin.identity)),
            address: origin.facts.client_address(),
            ..context
        }
    }
}

/// Gives the span the tool that a call is about, which `call_tool` may have called.
fn name_tool(span: &mut ServerSpan, operation: &Operation) {
    if let Some(name) = operation.lean_tool() {
        span.set_tool(&name);
    }
}

/// The context of a client without a session.
fn client_of(origin: &Origin<'_>, client_info: Option<&Json>) -> CallContext {
    CallContext {
        caller: caller_of(origin),
        peer: origin.peer(),
        address: origin.facts.client_address(),
        client_info: client_info.cloned(),
        ..(*CallContext::internal()).clone()
    }
}

/// The caller of a request without a session.
fn caller_of(origin: &Origin<'_>) -> Caller {
    Caller::request_of(origin.holder.clone())
        .with_identity(Arc::clone(&origin.identity))
        .with_client(origin.facts.client_of(origin.holder.principal()))
        .with_headers(origin.headers.clone())
}

impl ParsedRequest {
    /// The call that answers the request. It takes over the request's id and span.
    fn call<T: Transport>(
        &mut self,
        stream: Responses,
        revision: Revision,
        permit: Option<OwnedSemaphorePermit>,
    ) -> RenderedCall {
        let id = std::mem::replace(&mut self.request.id, Json::null());
        let mirrors_params = revision
            .mirrored
            .filter(|_| T::HAS_HEADERS)
            .map(|_| MAX_MIRRORED);
        let rendering = Rendering {
            id,
            method: self.request.method.clone(),
            revision,
            mirrors_params,
        };
        let span = std::mem::replace(&mut self.span, ServerSpan::off());
        RenderedCall::new(stream, rendering, span, permit)
    }
}

/// Refuses a `requestState`. No legacy revision has it, and a modern server could take it for its
/// own, perhaps for another client's.
fn check_has_no_state(origin: &Origin<'_>, params: &Params) -> Result<(), RpcError> {
    let is_refused = params.has_request_state() && !origin.holder.principal().is_anonymous();
    if is_refused {
        Err(fault::unknown_state())
    } else {
        Ok(())
    }
}

/// The answer of a request that does not run, which is also put on record.
fn answered_without_running(gates: Gates, response: Response) -> Responses {
    gates.end(&response);
    Box::new(Answered::new(response))
}

/// Counts the memory of the subscription that a request makes; returns its URI if it is new. It is
/// noted before the server gets the request, since the server may send messages at once.
fn note_subscription(
    session: &Session,
    parsed: &ParsedRequest,
    operation: &Operation,
) -> Result<Option<Box<str>>, Box<Refusal>> {
    let ParsedRequest {
        request, params, ..
    } = parsed;
    let uri = match request.method {
        Method::Subscribe => params.uri().and_then(Value::as_str),
        _ => None,
    };
    let Some(uri) = uri else { return Ok(None) };
    match session.note_subscription(operation.context(), &uri, operation.params()) {
        Ok(is_new) => Ok(is_new.then(|| uri.into())),
        Err(_) if uri.len() > LONGEST_URI => {
            let error = RpcError::new(code::INVALID_PARAMS, "the URI is too long");
            Err(error.into())
        }
        Err(_) => Err(Refusal::no_memory()),
    }
}

/// The error for a request with neither a session nor modern metadata. "A request missing any
/// required field is malformed" (2026-07-28 basic/index, Per-request protocol fields).
fn not_initialized<T: Transport>(transport: &T, meta: &Meta) -> RpcError {
    match modern::revision(meta) {
        Err(error) if transport.serves(Era::Modern) => error,
        _ => RpcError::new(
            code::INVALID_REQUEST,
            "open a session with \"initialize\" first",
        ),
    }
}

/// The refusal of a request that only another run may answer.
fn result_elsewhere() -> Box<Refusal> {
    let message = "Resource not found here: another process of the gateway keeps it, or the session of the request";
    Refusal::new(
        Reason::Params,
        RpcError::new(code::RESOURCE_NOT_FOUND, message),
    )
}

/// The method's name for the log, unless the client made it up.
fn known_name(method: &Method) -> &str {
    match method {
        Method::Other(_) => "other",
        known => known.as_str(),
    }
}
