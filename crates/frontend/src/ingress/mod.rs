//! Where each message from a client enters, whatever transport carries it: the sender is identified, the
//! era decided, the session found or opened, and the message admitted and started.
//!
//! A transport frames messages, implements [`Transport`] for what differs between transports, and sends
//! what [`Ingress::receive`] returns.

mod authorization;
mod notification;
mod request;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{Core, Endpoint, Holder, Keeper, Peer, ProcessRun};
use fanlight_credentials::{ConnectionFacts, Credentials, Denial};
use fanlight_identity::Identity;
use fanlight_protocol::message::Sender;
use fanlight_protocol::{Era, Json, Message, MessageError, Request, Response, Revision};
use fanlight_protocol::{RpcError, code};
use fanlight_telemetry::{ServerSpan, TrustInbound, without_trace_context};
use http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

pub(crate) use self::transport::{AboutTask, Transport};
use crate::call::RenderedCall;
use crate::call::subscription::Subscriptions;
use crate::eras::params::{Meta, Params};
use crate::eras::{era, fault};
use crate::error::FrontendError;
use crate::facts::TransportFacts;
use crate::settings::FrontendSettings;
use crate::streams::{ActiveSession, SessionStreams};
use crate::suspended::SuspendedCalls;
use crate::trace::{self, Ending};

/// The state that all messages of a listener or connection share.
pub(crate) struct Ingress<C> {
    pub(crate) core: Arc<C>,
    pub(crate) settings: Arc<FrontendSettings>,
    pub(crate) suspended_calls: Arc<SuspendedCalls>,
    pub(crate) subscriptions: Subscriptions,
    /// The identity of clients that are not authenticated.
    nobody: Arc<Identity>,
}

/// The sender of a message.
#[derive(Clone, Debug)]
pub(crate) struct Origin<'a> {
    /// Every handle in the message must belong to this principal at this endpoint.
    pub(crate) holder: Holder,
    /// The identity that has shown the principal.
    pub(crate) identity: Arc<Identity>,
    pub(crate) facts: TransportFacts<'a>,
}

impl Origin<'_> {
    /// Whose share of a limit the message takes.
    pub(crate) fn peer(&self) -> Peer {
        Peer::of(self.holder.principal(), self.facts.peer_address()).or_user(self.facts.user)
    }
}

/// What an HTTP request came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The path of the endpoint; of a request that came to none, its own.
    pub(crate) path: &'a str,
    /// The path of the resource that tokens have to be issued for.
    pub(crate) resource: &'a str,
}

/// What becomes of the text that a transport has received.
pub(crate) enum Received {
    /// A request, which is to be answered by its call.
    Request(Box<StartedRequest>),
    /// A notification or response, which has no answer.
    Accepted,
    /// A notification or response that is refused. Only a transport that answers every message, such as
    /// HTTP, reports that.
    Ignored(Box<Refusal>),
    /// The requests of a batch, and refusals of what is not a message.
    Batch(
        ActiveSession,
        Vec<Result<Box<StartedRequest>, Box<Refusal>>>,
    ),
}

/// A request that has been admitted. Its call does nothing until it is polled.
pub(crate) struct StartedRequest {
    pub(crate) call: RenderedCall,
    pub(crate) kind: RequestKind,
    pub(crate) revision: Revision,
    /// The session of a legacy request.
    pub(crate) session: Option<ActiveSession>,
    /// To be kept until the call has been answered.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// What a transport has to know of a request.
pub(crate) enum RequestKind {
    Call,
    /// A stream of messages that lasts as long as its client likes.
    Subscription,
    /// `initialize`: the transport makes this the client's session, if the response is not an error.
    Initialize(Arc<SessionStreams>),
}

/// A message that is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) error: RpcError,
    /// The id of the request, if it could be read.
    pub(crate) id: Option<Json>,
    /// The end of the request's span.
    pub(crate) ending: Option<Box<Ending>>,
    /// All scopes that it needs, if its client lacks any.
    pub(crate) required_scopes: Option<Box<[Arc<str>]>>,
    /// When its client may ask again, if it has asked too often.
    pub(crate) retry_after: Option<Duration>,
    /// What the message is about, and the run that keeps it, if that is not this one: it may answer.
    pub(crate) kept_by: Option<(Kept, ProcessRun)>,
}

/// What another run keeps that a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The session of the message.
    Session,
    /// A suspended call, which the message brings input for.
    SuspendedCall,
    /// A task that Fanlight has made. The session of the message is another matter.
    Task,
    /// A session that the message opens: this run ends.
    NewSession,
}

/// Why a message is refused, as far as transports report that differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It breaks a rule of the protocol.
    Malformed,
    /// The params of a well-formed request cannot be used.
    Params,
    /// It names no session of its principal at its endpoint.
    UnknownSession,
    /// Others use what it needs at the moment.
    Busy,
    /// Its client lacks scopes that it needs.
    Scopes,
    /// A limit on how often clients may ask is used up.
    TooMany,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, error: RpcError) -> Box<Self> {
        Box::new(Self {
            reason,
            error,
            id: None,
            ending: None,
            required_scopes: None,
            retry_after: None,
            kept_by: None,
        })
    }

    /// This refusal of a message about what `run` keeps.
    pub(crate) fn kept_by(mut self: Box<Self>, kept: Kept, run: ProcessRun) -> Box<Self> {
        self.kept_by = Some((kept, run));
        self
    }

    /// The refusal of a message for a session that `keeper` has, which is not this run.
    pub(crate) fn unknown_session(keeper: Keeper, message: &'static str) -> Box<Self> {
        let refusal = Self::new(
            Reason::UnknownSession,
            RpcError::new(code::INVALID_REQUEST, message),
        );
        match keeper {
            Keeper::Another(run) => refusal.kept_by(Kept::Session, run),
            Keeper::ThisRun | Keeper::Nobody => refusal,
        }
    }

    pub(crate) fn malformed(error: RpcError) -> Box<Self> {
        Self::new(Reason::Malformed, error)
    }

    fn of_request(mut self: Box<Self>, id: &Json, span: ServerSpan) -> Box<Self> {
        self.id = Some(id.clone());
        self.ending = Some(Box::new(Ending::refused(span, &self.error)));
        self
    }
}

impl From<RpcError> for Box<Refusal> {
    fn from(error: RpcError) -> Self {
        Refusal::malformed(error)
    }
}

impl<C: Core> Ingress<C> {
    /// An ingress to `core`. Suspended calls end when `cut` is cancelled.
    pub(crate) fn new(
        core: Arc<C>,
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

    /// Identifies the sender of the messages of an HTTP request. Every [`Origin`] is made here, by [`Self::identified`] or by
    /// [`Self::local`], once for each request.
    pub(crate) async fn identify<'a>(
        &self,
        facts: TransportFacts<'a>,
        destination: &Destination<'_>,
        head: &Parts,
        connection: &ConnectionFacts,
    ) -> Result<Origin<'a>, Denial> {
        let (client, endpoint) = (facts.peer_address(), destination.resource);
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
            client,
            endpoint,
        };
        let identity = self
            .settings
            .authenticate
            .authenticate(&credentials)
            .outcome()
            .await?;
        self.identified(identity, facts, destination)
    }

    /// The sender of the messages of an HTTP request who has been identified, here or by the replica that passes it on.
    pub(crate) fn identified<'a>(
        &self,
        identity: Arc<Identity>,
        facts: TransportFacts<'a>,
        destination: &Destination<'_>,
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
        })
    }

    /// The sender of a message on standard input: the process that has started this one, which is not authenticated
    /// (2026-07-28 basic/authorization, Protocol Requirements).
    pub(crate) fn local<'a>(&self, facts: TransportFacts<'a>) -> Origin<'a> {
        let identity = Arc::clone(&self.nobody);
        Origin {
            holder: Holder::new(identity.principal.clone(), self.settings.endpoint.clone()),
            identity,
            facts,
        }
    }

    /// Takes what a transport has received: a message, or a batch where the session's revision has them.
    pub(crate) async fn receive<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        text: Bytes,
    ) -> Result<Received, Box<Refusal>> {
        match Message::parse_from_client(text, self.settings.nesting) {
            Ok(Message::Request(request)) => self
                .request(transport, origin, request, false)
                .await
                .map(Received::Request),
            Ok(Message::Notification(notification)) => Ok(without_answer(
                self.notification(transport, origin, &notification).await,
            )),
            Ok(Message::Response(response)) => Ok(without_answer(
                self.response(transport, origin, response).await,
            )),
            Err(MessageError::Batch(text)) => Box::pin(self.batch(transport, origin, text)).await,
            Err(error) => Err(self.not_a_message(error)),
        }
    }

    /// Handles each message of a batch as if it were alone (2025-03-26 basic/index, Batching). Only that
    /// revision has batches.
    async fn batch<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        text: Bytes,
    ) -> Result<Received, Box<Refusal>> {
        let session = match transport.session(origin).await {
            Err(refusal) if refusal.kept_by.is_some() => return Err(refusal),
            session => session.ok().flatten(),
        };
        let Some(session) =
            session.filter(|session| session.session.revision() == Revision::V2025_03_26)
        else {
            return Err(self.not_a_message(MessageError::Batch(text)));
        };
        let messages = Message::parse_batch(
            text,
            self.settings.nesting,
            self.settings.max_batch,
            Sender::Client,
        )
        .map_err(|error| fault::of_batch(&error))?;
        if messages.is_empty() {
            return Err(RpcError::new(code::INVALID_REQUEST, "a batch without messages").into());
        }
        let mut requests = Vec::new();
        for message in messages {
            match message {
                Ok(Message::Request(request)) => {
                    requests.push(self.request(transport, origin, request, true).await);
                }
                // These have no answer, not even a refusal.
                Ok(Message::Notification(notification)) => {
                    drop(self.notification(transport, origin, &notification).await);
                }
                Ok(Message::Response(response)) => {
                    drop(self.response(transport, origin, response).await)
                }
                Err(error) => requests.push(Err(self.not_a_message(error))),
            }
        }
        Ok(Received::Batch(session, requests))
    }

    /// A client's answer to a server request, which is one of its own session. Modern clients "MUST NOT
    /// send JSON-RPC responses".
    async fn response<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        response: Response,
    ) -> Result<(), Box<Refusal>> {
        if era::of_message(&Meta::default(), transport.version_header()) == Era::Modern {
            let message = "responses are not sent to a server of this protocol version";
            return Err(Refusal::malformed(RpcError::new(
                code::INVALID_REQUEST,
                message,
            )));
        }
        self.admit(origin, None)?;
        match transport.session(origin).await? {
            Some(session) => session.session.server_requests.answer(response),
            None => tracing::debug!("response of a client ignored: it has no session"),
        }
        Ok(())
    }

    fn not_a_message(&self, error: MessageError) -> Box<Refusal> {
        let (error, id) = fault::of_message(error, self.settings.nesting);
        let mut refusal = Refusal::malformed(error);
        refusal.id = id;
        refusal
    }

    async fn request<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        mut request: Request,
        in_batch: bool,
    ) -> Result<Box<StartedRequest>, Box<Refusal>> {
        let mut params = match Params::read(request.params.as_ref()) {
            Ok(params) => params,
            Err(error) => {
                let span = trace::begin(
                    &self.settings,
                    &request,
                    origin.holder.endpoint(),
                    &origin.facts,
                );
                return Err(Refusal::malformed(error).of_request(&request.id, span));
            }
        };
        let span = trace::begin_read(
            &self.settings,
            &request,
            &params,
            origin.holder.endpoint(),
            &origin.facts,
        );
        if self.settings.trust_inbound != TrustInbound::Trust
            && let Some(stripped) = request.params.as_ref().and_then(without_trace_context)
        {
            // It has been read once without an error.
            params = Params::read(Some(&stripped)).unwrap_or_default();
            request.params = Some(stripped);
        }
        let mut parsed = request::ParsedRequest {
            request,
            params,
            span,
        };
        match self.start(transport, origin, &mut parsed, in_batch).await {
            Ok(started) => Ok(Box::new(started)),
            Err(refusal) => Err(refusal.of_request(&parsed.request.id, parsed.span)),
        }
    }
}

fn without_answer(taken: Result<(), Box<Refusal>>) -> Received {
    taken.map_or_else(Received::Ignored, |()| Received::Accepted)
}
