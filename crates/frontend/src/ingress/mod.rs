//! The entry point of every client message, on any transport. It identifies the sender, decides the
//! era, finds or opens the session, admits the message and starts it.
//!
//! A transport frames messages, implements [`Transport`] for its own rules, and sends the results
//! of [`Ingress::receive`].

mod notification;
mod request;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{
    ClientHeaders, Decidable, Detail, Endpoint, Holder, Identity, Keeper, Peer, ProcessRun,
};
use fanlight_credentials::{Authentication, ConnectionFacts, Credentials, Denial};
use fanlight_gateway::{Gateway, Operation};
use fanlight_protocol::header::MAX_FORWARDED;
use fanlight_protocol::message::Sender;
use fanlight_protocol::{
    DEFAULT_NESTING, Era, Json, Message, MessageError, Method, Request, Response, Revision,
    RpcError, code,
};
use fanlight_record::AuditEvent;
use fanlight_telemetry::{ServerSpan, TrustInbound, without_trace_context};
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::call::subscription::Subscriptions;
use crate::call::{DetachedCalls, RenderedCall};
use crate::eras::params::{Meta, Params};
use crate::eras::{fault, modern};
use crate::error::FrontendError;
use crate::gates::{self, BUSY, Client, Gates, RATE, Refused, SCOPES};
use crate::protection::Turn;
use crate::session::{RunningRequests, ServerRequests};
use crate::settings::{FrontendSettings, NO_MEMORY};
use crate::streams::{ActiveSession, SessionStreams};
use crate::suspended::SuspendedCalls;
use crate::trace::{self, Ending, TransportFacts};

/// The shared state for all messages of a listener or connection.
pub(crate) struct Ingress {
    pub(crate) core: Arc<Gateway>,
    pub(crate) settings: Arc<FrontendSettings>,
    pub(crate) suspended_calls: Arc<SuspendedCalls>,
    pub(crate) subscriptions: Subscriptions,
    /// The identity of unauthenticated clients.
    nobody: Arc<Identity>,
}

/// The sender of a message.
#[derive(Clone, Debug)]
pub(crate) struct Origin<'a> {
    /// The required owner of every handle in the message: this principal at this endpoint.
    pub(crate) holder: Holder,
    /// The identity that proved the principal.
    pub(crate) identity: Arc<Identity>,
    pub(crate) facts: TransportFacts<'a>,
    /// The message's headers that servers may get.
    pub(crate) headers: ClientHeaders,
}

impl Origin<'_> {
    /// The sender, as gates see it.
    fn client(&self) -> Client<'_> {
        Client {
            endpoint: self.holder.endpoint(),
            identity: &self.identity,
        }
    }

    /// The peer whose share of a limit the message uses.
    pub(crate) fn peer(&self) -> Peer {
        Peer::new(self.holder.principal(), self.facts.peer_address()).or_user(self.facts.user)
    }
}

/// The destination of an HTTP request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The endpoint's path, or the request's own path if no endpoint is there.
    pub(crate) path: &'a str,
    /// The path of the resource that tokens must be issued for.
    pub(crate) resource: &'a str,
}

/// The outcome of a received text.
pub(crate) enum Received {
    /// A request; its call produces the answer.
    Request(Box<RenderedCall>, RequestKind),
    /// A notification or response, which has no answer.
    Accepted,
    /// A refused notification or response. Only transports that answer every message, such as HTTP,
    /// report that.
    Ignored(Box<Refusal>),
    /// A batch: its requests, and refusals of invalid messages.
    Batch(ActiveSession, Vec<Result<Box<RenderedCall>, Box<Refusal>>>),
}

/// The kind of a request, as far as transports treat it differently.
pub(crate) enum RequestKind {
    /// A call, and its session if it is a legacy one.
    Call(Option<ActiveSession>),
    /// A stream of messages that lasts as long as its client likes.
    Subscription,
    /// `initialize`: the transport makes this the client's session unless the response is an error.
    Initialize(Arc<SessionStreams>),
}

/// A refused message.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) error: RpcError,
    /// The id of the request, if it was readable.
    pub(crate) id: Option<Json>,
    /// The end of the request's span.
    pub(crate) ending: Option<Box<Ending>>,
    /// The gate that refused the message, if one did.
    pub(crate) gate: Option<&'static str>,
    /// All required scopes, if the client lacks any of them.
    pub(crate) required_scopes: Option<Box<[Arc<str>]>>,
    /// The time after which the client may retry, if it sent too many requests.
    pub(crate) retry_after: Option<Duration>,
    /// The message's subject and its keeper, if that is another run. That run may answer.
    pub(crate) kept_by: Option<(Kept, ProcessRun)>,
}

/// The subject of a message that another run keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The message's session.
    Session,
    /// A suspended call that the message has input for.
    SuspendedCall,
    /// A task that Fanlight made. The message's session may be elsewhere.
    Task,
    /// A result that is kept whole. The message's session may be elsewhere.
    Result,
    /// A new session, since this run is ending.
    NewSession,
}

/// The reason for a refusal, as far as transports treat it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The message breaks a rule of the protocol.
    Malformed,
    /// The params of a well-formed request are unusable.
    Params,
    /// The message names no session of its principal at its endpoint.
    UnknownSession,
    /// A needed resource is in use.
    Busy,
    /// The client lacks required scopes.
    Scopes,
    /// A rate limit is used up.
    TooMany,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, error: RpcError) -> Box<Self> {
        Box::new(Self {
            reason,
            error,
            id: None,
            ending: None,
            gate: None,
            required_scopes: None,
            retry_after: None,
            kept_by: None,
        })
    }

    /// Adds the subject that `run` keeps.
    fn with_keeper(mut self: Box<Self>, kept: Kept, run: ProcessRun) -> Box<Self> {
        self.kept_by = Some((kept, run));
        self
    }

    /// The refusal of a message whose session is at `keeper`, not at this run.
    pub(crate) fn unknown_session(keeper: Keeper, message: &'static str) -> Box<Self> {
        let refusal = Self::new(
            Reason::UnknownSession,
            RpcError::new(code::INVALID_REQUEST, message),
        );
        match keeper {
            Keeper::Another(run) => refusal.with_keeper(Kept::Session, run),
            Keeper::ThisRun | Keeper::Nobody => refusal,
        }
    }

    pub(crate) fn malformed(error: RpcError) -> Box<Self> {
        Self::new(Reason::Malformed, error)
    }

    /// The refusal of a message for which no memory is left.
    pub(crate) fn no_memory() -> Box<Self> {
        Self::new(Reason::Busy, RpcError::new(code::INTERNAL, NO_MEMORY))
    }

    fn with_request(mut self: Box<Self>, id: &Json, span: ServerSpan) -> Box<Self> {
        self.id = Some(id.clone());
        if let Some(gate) = self.gate {
            span.within().refused_by(gate);
        }
        self.ending = Some(Box::new(Ending::for_refusal(span, &self.error)));
        self
    }
}

impl From<RpcError> for Box<Refusal> {
    fn from(error: RpcError) -> Self {
        Refusal::malformed(error)
    }
}

impl From<Box<Refused>> for Box<Refusal> {
    fn from(refused: Box<Refused>) -> Self {
        let Refused {
            gate,
            error,
            scopes,
            retry_after,
        } = *refused;
        let reason = match gate {
            SCOPES => Reason::Scopes,
            RATE => Reason::TooMany,
            BUSY => Reason::Malformed,
            _ => Reason::Busy,
        };
        Box::new(Refusal {
            gate: Some(gate),
            required_scopes: scopes,
            retry_after,
            ..*Refusal::new(reason, error)
        })
    }
}

impl Ingress {
    /// An ingress to `core`. Suspended calls end when `cut` is cancelled.
    pub(crate) fn new(
        core: Arc<Gateway>,
        settings: &Arc<FrontendSettings>,
        cut: &CancellationToken,
    ) -> Result<Self, FrontendError> {
        Ok(Self {
            core,
            suspended_calls: SuspendedCalls::new(settings, cut)?,
            subscriptions: Subscriptions::new(
                settings.max_subscriptions,
                settings.notification_buffer,
                &settings.hooks,
            ),
            settings: Arc::clone(settings),
            nobody: Arc::new(Identity::anonymous()),
        })
    }

    /// Identifies the sender of an HTTP request's messages. Only this, [`Self::identified_origin`] and
    /// [`Self::local`] create an [`Origin`], once per request.
    pub(crate) async fn identify<'a>(
        &self,
        facts: TransportFacts<'a>,
        destination: &Destination<'_>,
        head: &Parts,
        connection: &ConnectionFacts,
    ) -> Result<Origin<'a>, Denial> {
        let Parts {
            method,
            uri,
            headers,
            ..
        } = head;
        let credentials = Credentials {
            method,
            path: uri.path(),
            headers,
            connection,
            client: facts.peer_address(),
            endpoint: destination.resource,
        };
        // Most identities are known at once.
        let outcome = match self.settings.authenticate.authenticate(&credentials) {
            Authentication::Ready(outcome) => outcome,
            Authentication::Pending(pending) => pending.await,
        };
        let identity = outcome.inspect_err(|denial| {
            // A failure to record changes nothing, because the request is refused anyway.
            let _ = self.settings.record.record(&AuditEvent::ClientDenied {
                denial,
                credentials: &credentials,
            });
        })?;
        self.identified_origin(identity, facts, destination, headers)
    }

    /// The sender of an HTTP request's messages, identified here or by the replica that forwarded
    /// the request.
    pub(crate) fn identified_origin<'a>(
        &self,
        identity: Arc<Identity>,
        facts: TransportFacts<'a>,
        destination: &Destination<'_>,
        headers: &HeaderMap,
    ) -> Result<Origin<'a>, Denial> {
        if !identity.may_use(destination.path) {
            return Err(Denial::Forbidden(
                "this client may not use this endpoint".into(),
            ));
        }
        let holder = Holder::new(identity.principal.clone(), destination.endpoint.clone());
        Ok(Origin {
            holder,
            identity,
            facts,
            headers: self.headers_for_servers(headers)?,
        })
    }

    /// The headers of a request that servers may get. A repeated one is refused, since a program
    /// on the way may have checked another of its values.
    fn headers_for_servers(&self, headers: &HeaderMap) -> Result<ClientHeaders, Denial> {
        let mut found: Vec<(Box<str>, Box<str>)> = Vec::new();
        let mut size = 0;
        for name in &self.settings.protection.load().forwarded {
            let mut values = headers.get_all(name).iter().map(HeaderValue::to_str);
            match (values.next(), values.next()) {
                (None, _) => continue,
                (Some(Ok(value)), None) => found.push((name.as_str().into(), value.into())),
                _ => {
                    return Err(Denial::Malformed(
                        format!("{name} is repeated or no text").into(),
                    ));
                }
            }
            size += found
                .last()
                .map_or(0, |(name, value)| name.len() + value.len());
        }
        if size > MAX_FORWARDED {
            let message = format!("the headers for servers are longer than {MAX_FORWARDED} bytes");
            return Err(Denial::Malformed(message.into()));
        }
        Ok((!found.is_empty()).then(|| found.into()))
    }

    /// The sender of messages on standard input: the parent process, which is not authenticated
    /// (2026-07-28 basic/authorization, Protocol Requirements).
    pub(crate) fn local<'a>(&self, facts: TransportFacts<'a>) -> Origin<'a> {
        let identity = Arc::clone(&self.nobody);
        Origin {
            holder: Holder::new(identity.principal.clone(), self.settings.endpoint.clone()),
            identity,
            facts,
            headers: None,
        }
    }

    /// Handles a received text: a message, or a batch if the session's revision allows it.
    pub(crate) async fn receive<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        text: Bytes,
    ) -> Result<Received, Box<Refusal>> {
        let receiving = Receiving {
            ingress: self,
            transport,
            origin,
        };
        receiving.receive(text).await
    }

    fn not_a_message(&self, error: MessageError) -> Box<Refusal> {
        let (error, id) = fault::message_error(error);
        let mut refusal = Refusal::malformed(error);
        refusal.id = id;
        refusal
    }
}

/// One message of a client, with everything that its receipt depends on.
struct Receiving<'a, T> {
    ingress: &'a Ingress,
    transport: &'a T,
    origin: &'a Origin<'a>,
}

impl<T> Deref for Receiving<'_, T> {
    type Target = Ingress;

    fn deref(&self) -> &Ingress {
        self.ingress
    }
}

impl<T: Transport> Receiving<'_, T> {
    /// How far a request must be resolved for [`Self::admit`].
    fn detail(&self, method: &Method) -> Detail {
        gates::detail(&self.settings, self.origin.client(), method)
    }

    /// Admits one message. This, [`Self::admit_operation`], [`Self::admit_request`] or
    /// [`Self::admit_in_turn`] is called once per valid message, with exactly what runs. Answers, and
    /// notifications that no server gets, need only an identity.
    fn admit(&self, subject: &dyn Decidable) -> Result<(), Box<Refusal>> {
        Ok(gates::decide(
            &self.settings,
            self.origin.client(),
            subject,
        )?)
    }

    /// Admits an operation; returns the gates that it still has to pass, and a permit.
    async fn admit_operation(
        &self,
        operation: &Operation,
    ) -> Result<(Gates, Option<OwnedSemaphorePermit>), Box<Refusal>> {
        let (turn, permit) = self.admit_request(operation).await?;
        let gates = Gates::new(&self.settings, &self.core, operation, turn);
        Ok((gates, permit))
    }

    /// Admits a request that reaches the core. It counts against the rate limits, and its permit
    /// against the client's concurrent requests.
    async fn admit_request(
        &self,
        subject: &dyn Decidable,
    ) -> Result<(Option<Turn>, Option<OwnedSemaphorePermit>), Box<Refusal>> {
        let turn = self.admit_in_turn(subject).await?;
        let permit = gates::permit(&self.settings, self.transport.permits()).or_else(|busy| {
            let client = self.origin.client();
            gates::record_decision(&self.settings, client, subject, Err(busy))
        })?;
        Ok((turn, permit))
    }

    /// Admits a long-lasting request, which does not count as a concurrent request. It counts
    /// against the rate limits; returns its turn if it has to wait.
    async fn admit_in_turn(&self, subject: &dyn Decidable) -> Result<Option<Turn>, Box<Refusal>> {
        let client = self.origin.client();
        Ok(gates::arrive(&self.settings, client, || self.origin.peer(), subject).await?)
    }

    /// Handles a received text: a message, or a batch if the session's revision allows it.
    pub(crate) async fn receive(self, text: Bytes) -> Result<Received, Box<Refusal>> {
        match Message::parse_from_client(text, DEFAULT_NESTING) {
            Ok(Message::Request(request)) => {
                let (call, kind) = self.request(request, false).await?;
                Ok(Received::Request(call, kind))
            }
            Ok(Message::Notification(notification)) => {
                Ok(without_answer(self.notification(&notification).await))
            }
            Ok(Message::Response(response)) => Ok(without_answer(self.response(response).await)),
            Err(MessageError::Batch(text)) => Box::pin(self.batch(text)).await,
            Err(error) => {
                let refusal = self.not_a_message(error);
                if refusal.id.as_ref().is_some_and(ServerRequests::is_id)
                    && let Ok(Some(session)) = self.transport.session(self.origin).await
                {
                    end_server_request(&session, &refusal);
                }
                Err(refusal)
            }
        }
    }

    /// Handles each message of a batch as if it were alone (2025-03-26 basic/index, Batching). Only
    /// that revision has batches.
    async fn batch(&self, text: Bytes) -> Result<Received, Box<Refusal>> {
        let session = match self.transport.session(self.origin).await {
            Err(refusal) if refusal.kept_by.is_some() => return Err(refusal),
            session => session.ok().flatten(),
        };
        let Some(session) = session.filter(|session| session.session.revision().batches) else {
            return Err(self.not_a_message(MessageError::Batch(text)));
        };
        let messages = Message::parse_batch(
            text,
            DEFAULT_NESTING,
            self.settings.max_batch,
            Sender::Client,
        )
        .map_err(|error| fault::batch_error(&error))?;
        if messages.is_empty() {
            return Err(RpcError::new(code::INVALID_REQUEST, "a batch without messages").into());
        }
        let mut requests = Vec::new();
        for message in messages {
            match message {
                Ok(Message::Request(request)) => {
                    requests.push(self.request(request, true).await.map(|(call, _)| call));
                }
                // Notifications and responses get no answer, not even a refusal.
                Ok(Message::Notification(notification)) => {
                    drop(self.notification(&notification).await);
                }
                Ok(Message::Response(response)) => {
                    drop(self.response(response).await);
                }
                Err(error) => {
                    let refusal = self.not_a_message(error);
                    end_server_request(&session, &refusal);
                    requests.push(Err(refusal));
                }
            }
        }
        Ok(Received::Batch(session, requests))
    }

    /// Params or a result without the client's trace context; `None` if servers may get them as they
    /// are.
    fn untraced(&self, object: Option<&Json>) -> Option<Json> {
        let is_trusted = self.settings.trust_inbound == TrustInbound::Trust;
        object
            .filter(|_| !is_trusted)
            .and_then(without_trace_context)
    }

    /// Handles a client's answer to a request of a server in the client's own session. Modern
    /// clients "MUST NOT send JSON-RPC responses".
    async fn response(&self, response: Response) -> Result<(), Box<Refusal>> {
        if modern::is_modern(&Meta::default(), self.transport.version_header()) {
            let message = "responses are not sent to a server of this protocol version";
            return Err(Refusal::malformed(RpcError::new(
                code::INVALID_REQUEST,
                message,
            )));
        }
        match self.transport.session(self.origin).await? {
            Some(session) => {
                let untraced = self.untraced(Some(&response.body()));
                let untraced = untraced.map(|body| response.with_body(&body));
                let response = untraced.unwrap_or(response);
                session
                    .session
                    .server_requests
                    .answer(&response.id(), response);
            }
            None => tracing::debug!("response of a client ignored: it has no session"),
        }
        Ok(())
    }

    async fn request(
        &self,
        mut request: Request,
        in_batch: bool,
    ) -> Result<(Box<RenderedCall>, RequestKind), Box<Refusal>> {
        let mut params = match Params::read(request.params.as_ref()) {
            Ok(params) => params,
            Err(error) => {
                let span = trace::begin(
                    &self.settings,
                    &request,
                    self.origin.holder.endpoint(),
                    &self.origin.facts,
                );
                return Err(Refusal::malformed(error).with_request(&request.id, span));
            }
        };
        let span = trace::begin_read(
            &self.settings,
            &request,
            &params,
            self.origin.holder.endpoint(),
            &self.origin.facts,
        );
        if let Some(stripped) = self.untraced(request.params.as_ref()) {
            // The same params were read before without an error.
            params = Params::read(Some(&stripped)).unwrap_or_default();
            request.params = Some(stripped);
        }
        let mut parsed = request::ParsedRequest {
            request,
            params,
            span,
        };
        match self.start(&mut parsed, in_batch).await {
            Ok((call, kind)) => Ok((Box::new(call), kind)),
            Err(refusal) => Err(refusal.with_request(&parsed.request.id, parsed.span)),
        }
    }
}

/// Ends the server's request that a malformed message of a client answers, so that the server does
/// not wait any longer.
fn end_server_request(session: &ActiveSession, refusal: &Refusal) {
    if let Some(id) = &refusal.id {
        let error = RpcError::new(code::INTERNAL, "the client's answer is malformed");
        session
            .session
            .server_requests
            .answer(id, Response::from_error(&error));
    }
}

fn without_answer(taken: Result<(), Box<Refusal>>) -> Received {
    taken.map_or_else(Received::Ignored, |()| Received::Accepted)
}

/// How a request about a task or a kept result continues without its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AboutTask {
    /// The request is forwarded to this run, which keeps the task.
    PassOn(ProcessRun),
    /// This process answers: it has the task, or reports the task as unknown.
    Here,
}

/// The transport of a message. The defaults suit a connection with all messages of one client, such
/// as stdio.
pub(crate) trait Transport: Send + Sync {
    /// Whether modern clients repeat parts of their requests in header fields.
    const HAS_HEADERS: bool = false;

    /// The value of `MCP-Protocol-Version`.
    fn version_header(&self) -> Option<&str> {
        None
    }

    /// Whether requests of this era are served.
    fn serves(&self, _era: Era) -> bool {
        true
    }

    /// Whether the client can get messages before a response.
    fn takes_messages(&self) -> bool {
        true
    }

    /// Checks the revision of a modern request.
    fn revision(&self, meta: &Meta) -> Result<Revision, RpcError> {
        modern::revision(meta)
    }

    /// Checks the header fields that repeat parts of the body in every modern request of this
    /// method.
    fn check_headers(
        &self,
        _revision: Revision,
        _method: &Method,
        _params: &Params,
    ) -> Result<(), RpcError> {
        Ok(())
    }

    /// Checks the header fields that repeat arguments of the called tool.
    fn check_mirrored(&self, _operation: &dyn Decidable, _params: &Params) -> Result<(), RpcError> {
        Ok(())
    }

    /// The legacy session of a message; `None` if its connection has none. Fails if the message
    /// must name a session, and its principal has no such session at its endpoint.
    fn session(
        &self,
        origin: &Origin<'_>,
    ) -> impl Future<Output = Result<Option<ActiveSession>, Box<Refusal>>> + Send;

    /// The destination of a legacy request about a task that Fanlight made for this client, or of
    /// one that was forwarded without its session and may read a kept result. `None` for all other
    /// requests, and if this run keeps both the task and the session.
    fn task_elsewhere(&self, _origin: &Origin<'_>, _request: &Request) -> Option<AboutTask> {
        None
    }

    /// Whether a request that reads a kept result may be forwarded to the run that keeps it.
    fn passes_results(&self) -> bool {
        false
    }

    /// The session's id, if the message has one.
    fn session_id(&self) -> Option<&str> {
        None
    }

    /// The replica that should open a session, because this one is ending.
    fn opens_sessions(&self) -> Option<ProcessRun> {
        None
    }

    /// Cancelled when streams without an end of their own must end.
    fn closing(&self) -> &CancellationToken;

    /// All running requests of the client, if notifications cancel them in both eras.
    fn running_requests(&self) -> Option<&Arc<RunningRequests>> {
        None
    }

    /// Limits the client's concurrent requests.
    fn permits(&self) -> Option<&Arc<Semaphore>> {
        None
    }

    /// Keeps legacy calls running after their connection is lost; `None` if they end with it.
    fn detached_calls(&self) -> Option<&Arc<DetachedCalls>> {
        None
    }

    /// Reports that a session's client is ready for messages outside of calls.
    fn initialized(&self) {}

    /// Starts to listen to messages outside of calls, if not done yet. The result resolves once the
    /// core has answered, or after a while.
    fn listen(&self, session: &ActiveSession) -> Option<BoxFuture<'static, ()>>;
}
