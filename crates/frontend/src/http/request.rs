//! One request of a POST: checked by the rules of its era, handed to the core, answered.
//!
//! Must not know: what the core does with a request.

use std::sync::Arc;

use fanlight_canonical::{CallContext, Principal};
use fanlight_protocol::json::Value;
use fanlight_protocol::{Era, Json, Method, Request, Response, Revision, RpcError, code};
use fanlight_telemetry::ServerSpan;
use http::{HeaderValue, StatusCode};

use super::fields::Fields;
use super::mcp::{Endpoint, bad_request, session_id};
use super::negotiate::{self, Accepts};
use super::reply::{Refusal, ReplyBody};
use super::slots::Slot;
use super::{answer, headers};
use crate::conversation::{self, Conversation, LegacyCall, ModernCall};
use crate::params::Params;
use crate::render::Rendering;
use crate::running::{self, Ask, Running};
use crate::session::{InUse, Session};
use crate::source::Call;
use crate::trace::Ending;
use crate::{era, legacy, modern};
use fanlight_canonical::Core;

/// A request as it came.
pub(super) struct Asked<'a> {
    /// Of the POST that brought it.
    pub(super) fields: &'a Fields<'a>,
    /// The forms of answer that its client accepts.
    pub(super) accepts: Accepts,
    pub(super) request: Request,
    /// What has been read of its params.
    pub(super) params: Params,
    /// Goes on with the answer once there is one.
    pub(super) span: ServerSpan,
}

/// What becomes of a request.
pub(super) enum Begun {
    /// A call, which is to be waited for. In a box, since it is handed on several times.
    Call(Box<Call>, Kept),
    /// It is answered already.
    Answered(Box<http::Response<ReplyBody>>),
}

/// What a call needs until its response has been sent.
#[derive(Default)]
pub(super) struct Kept {
    /// That of a legacy client.
    pub(super) session: Option<InUse>,
    /// A place among the streams, if it is one on which its client only listens.
    pub(super) slot: Option<Slot>,
}

impl<C: Core> Endpoint<C> {
    /// Begins a request by the rules of its era.
    pub(super) async fn request(&self, asked: &mut Asked<'_>) -> Result<Begun, Box<Refusal>> {
        let (method, meta) = (&asked.request.method, &asked.params.meta);
        // Where the body names a revision, the header decides nothing.
        let header = if meta.protocol_version().is_some() { None } else { headers::protocol_version(asked.fields) };
        let era = era::of_request(method, meta, header);
        tracing::debug!(%era, method = known_name(method), "request");
        match era {
            Era::Modern => self.modern(asked).await,
            Era::Legacy if *method == Method::Initialize => Box::pin(self.initialize(asked)).await,
            Era::Legacy => self.legacy(asked).await,
        }
    }

    /// A stateless request. The response stream is the request: when it closes, the request is
    /// cancelled (2026-07-28 streamable-http, Cancellation), here by being dropped.
    async fn modern(&self, asked: &mut Asked<'_>) -> Result<Begun, Box<Refusal>> {
        let (revision, client) = asked.check()?;
        if asked.request.method == Method::CallTool
            && let Some(name) = asked.params.name().and_then(Value::as_str)
        {
            let tool = self.core.tool(&name, asked.span.within()).await;
            let mirrored = tool.map(|tool| headers::mirrored(&tool)).unwrap_or_default();
            headers::check_params(asked.fields, &mirrored, &asked.params).map_err(bad_request)?;
        }
        let mut kept = Kept::default();
        let conversation = if asked.request.method == Method::Listen {
            if !asked.accepts.events {
                return Err(negotiate::not_acceptable("a subscription"));
            }
            kept.slot = Some(self.stream_slot()?);
            let subscribed = self.subscriptions.begin(&self.core, &asked.request, client, None, asked.span.parent());
            subscribed.map(|subscribed| Conversation::Listening(Box::new(subscribed)))
        } else {
            let Request { method, params, .. } = &asked.request;
            let resumed = conversation::resumed(&self.parking, method, params.as_ref(), &asked.params).await;
            resumed.map(|resumed| {
                let call = asked.modern(client);
                Conversation::modern(&self.core, &self.parking, &self.settings, call, resumed, None)
            })
        };
        let conversation = conversation.unwrap_or_else(|error| Conversation::answered(Response::from_error(&error)));
        Ok(Begun::Call(Box::new(asked.answered_by(conversation, revision)), kept))
    }

    /// A request within a session. It goes on when its response stream closes.
    async fn legacy(&self, asked: &mut Asked<'_>) -> Result<Begun, Box<Refusal>> {
        let session = self.session(asked.fields)?;
        asked.span.set_revision(session.revision());
        asked.span.set_session(session_id(asked.fields)?);
        let call = self.begin(session.clone(), asked).await;
        Ok(Begun::Call(Box::new(call), Kept { session: Some(session), slot: None }))
    }

    /// Begins a request within a session.
    pub(super) async fn begin(&self, session: InUse, asked: &mut Asked<'_>) -> Call {
        let revision = session.revision();
        if let Some(answer) = legacy::own_answer(&asked.request.method, &asked.params) {
            let response = answer.unwrap_or_else(|error| Response::from_error(&error));
            return asked.answered_by(Conversation::answered(response), revision);
        }
        match asked.request.method {
            Method::SetLogLevel => session.set_log_level(legacy::log_level(&asked.params).ok()),
            // What the server sends at once must find somebody who listens.
            Method::Subscribe => {
                let (shared, patience) = (session.shared(), self.settings.stream_after);
                Box::pin(shared.streams.listen(&self.core, &shared, &self.keeping, patience)).await;
            }
            _ => {}
        }
        let stop = session.in_flight.begin(&asked.request.id);
        let conversation =
            Conversation::legacy(&self.core, &self.settings, asked.legacy(session.shared()), |running| {
                running.stoppable(stop).within(session).outliving(&self.detached)
            });
        asked.answered_by(conversation, revision)
    }

    /// Opens a session, if the core can describe what it would be a session of.
    async fn initialize(&self, asked: &mut Asked<'_>) -> Result<Begun, Box<Refusal>> {
        let opening = legacy::opening(&asked.params, self.settings.max_description)
            .map_err(|error| Refusal::new(StatusCode::OK, error))?;
        let session =
            Session::new(Principal::anonymous(), opening, Arc::default(), self.settings.max_questions, &self.core);
        let rendering = asked.rendering(asked.request.id.clone(), session.revision());
        asked.span.set_revision(session.revision());
        let context = CallContext { trace: asked.span.parent(), ..session.context(false) };
        let ask = Ask { method: Method::Discover, params: None, context, messages: None, unroll: None };
        let running::Event::Response(described) = Running::start(&self.core, ask).next().await else {
            return Err(Refusal::new(StatusCode::OK, RpcError::new(code::INTERNAL, "the request was cancelled")));
        };
        let mut response = answer::only(rendering.message(&described), StatusCode::OK, asked.accepts);
        if !described.is_error() {
            let unavailable =
                |message: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::new(code::INTERNAL, message));
            let id = self
                .sessions
                .open(session.counted(&self.settings.telemetry))
                .map_err(|error| unavailable(error.to_string()))?;
            let mut id = HeaderValue::from_str(&id).map_err(|error| unavailable(error.to_string()))?;
            id.set_sensitive(true);
            response.headers_mut().insert(headers::SESSION_ID.clone(), id);
        }
        response.body_mut().ends(Some(Box::new(Ending::answered(asked.take_span(), &rendering.method, &described))));
        Ok(Begun::Answered(Box::new(response)))
    }
}

impl Kept {
    /// What the client of the call speaks.
    pub(super) fn revision(&self) -> Revision {
        self.session.as_ref().map_or(Revision::NEWEST_MODERN, |session| session.revision())
    }
}

impl Asked<'_> {
    /// Checks a modern request; returns its revision, and what it says of its sender.
    fn check(&mut self) -> Result<(Revision, modern::Client), Box<Refusal>> {
        let revision = headers::check_version(self.fields, &self.params.meta).map_err(bad_request)?;
        self.span.set_revision(revision);
        let client = modern::client(&self.params.meta).map_err(bad_request)?;
        headers::check_standard(self.fields, &self.request.method, &self.params).map_err(bad_request)?;
        modern::admit(&self.request.method, &client)
            .map_err(|error| Refusal::new(answer::modern_status(Some(error.code)), error))?;
        Ok((revision, client))
    }

    fn modern(&mut self, client: modern::Client) -> ModernCall<'_> {
        ModernCall {
            method: self.request.method.clone(),
            params: self.request.params.take(),
            read: &self.params,
            client,
            stream: self.accepts.events,
            trace: self.span.parent(),
        }
    }

    fn legacy(&mut self, session: Arc<Session>) -> LegacyCall {
        LegacyCall {
            method: self.request.method.clone(),
            params: self.request.params.take(),
            progress_token: self.params.meta.progress_token(),
            session,
            stream: self.accepts.events,
            trace: self.span.parent(),
        }
    }

    /// The request with what answers it, which takes the span over.
    fn answered_by(&mut self, conversation: Conversation, revision: Revision) -> Call {
        let id = std::mem::replace(&mut self.request.id, Json::null());
        Call::new(conversation, self.rendering(id, revision), self.take_span())
    }

    /// How the answer is written for a client on HTTP, where modern ones mirror parameters.
    fn rendering(&self, id: Json, revision: Revision) -> Rendering {
        Rendering { id, method: self.request.method.clone(), revision, mirrors_params: revision.era() == Era::Modern }
    }

    fn take_span(&mut self) -> ServerSpan {
        std::mem::replace(&mut self.span, ServerSpan::off())
    }
}

/// A method's name for the log: only names that no client makes up.
fn known_name(method: &Method) -> &str {
    match method {
        Method::Other(_) => "other",
        known => known.as_str(),
    }
}
