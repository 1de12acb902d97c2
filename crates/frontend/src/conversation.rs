//! A client's call with everything said during it: what differs between the eras of clients, for
//! every transport.
//!
//! Must not know: transports.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::{CallContext, Caller, Principal};
use fanlight_protocol::{Era, Json, Method, Response, RpcError};

use fanlight_telemetry::Parent;

use crate::cancel::Stop;
use crate::event::Event;
use crate::notify::Subscription;
use crate::params::Params;
use crate::park::{Parkable, Parking, Resumed, Retry};
use crate::relay::Relay;
use crate::running::{Ask, Running};
use crate::session::Session;
use crate::settings::FrontendSettings;
use crate::subscription::Subscribed;
use crate::{input, legacy, modern, unroll};
use fanlight_canonical::Core;

/// A call on its way to its answer. Whoever holds it drives it; dropping it gives up the call,
/// unless it is a legacy one that has to go on.
#[derive(Debug)]
pub(crate) enum Conversation {
    /// With a client that can be asked during a call.
    Legacy(Box<Relay>),
    /// With a client that is asked by the call's answer.
    Modern(Parkable),
    /// With a client that listens.
    Listening(Box<Subscribed>),
    /// With nobody but this side, whose answer is there.
    Answered(Option<Response>),
}

/// A request within a session.
#[derive(Debug)]
pub(crate) struct LegacyCall {
    pub(crate) method: Method,
    pub(crate) params: Option<Json>,
    /// The client's own, if it gave one.
    pub(crate) progress_token: Option<Json>,
    pub(crate) session: Arc<Session>,
    /// Whether anything can be sent to the client before the answer.
    pub(crate) stream: bool,
    /// The request's span.
    pub(crate) trace: Parent,
}

/// A request that stands alone.
#[derive(Debug)]
pub(crate) struct ModernCall<'a> {
    pub(crate) method: Method,
    pub(crate) params: Option<Json>,
    /// What has been read of them.
    pub(crate) read: &'a Params,
    pub(crate) client: modern::Client,
    /// Whether anything can be sent to the client before the answer.
    pub(crate) stream: bool,
    /// The request's span.
    pub(crate) trace: Parent,
}

impl Conversation {
    /// Begins a call within a session; `rig` says what keeps it going and what ends it.
    pub(crate) fn legacy<C: Core>(
        core: &Arc<C>,
        settings: &FrontendSettings,
        call: LegacyCall,
        rig: impl FnOnce(Running) -> Running,
    ) -> Self {
        let LegacyCall { method, params, progress_token, session, stream, trace } = call;
        let logs = legacy::log_gate(session.log_level());
        let subscription = Subscription { progress_token, logs, era: Era::Legacy };
        let wants_progress = stream && subscription.progress_token.is_some();
        let context = CallContext { trace, ..session.context(wants_progress) };
        let limits = unroll::Limits { rounds: settings.max_input_rounds, timeout: settings.input_timeout };
        let unroll = method.may_need_input().then_some(limits);
        let messages = stream.then_some(settings.notification_buffer);
        let running = rig(Running::start(core, Ask { method, params, context, messages, unroll }));
        Self::Legacy(Box::new(Relay::new(running, subscription, session)))
    }

    /// Begins a call that stands alone, or goes on with what it has `resumed`. `stop` can cancel it.
    pub(crate) fn modern<C: Core>(
        core: &Arc<C>,
        parking: &Arc<Parking>,
        settings: &FrontendSettings,
        call: ModernCall<'_>,
        resumed: Resumed,
        stop: Option<Stop>,
    ) -> Self {
        let ModernCall { method, params, read, client, stream, trace } = call;
        let progress_token = if stream { read.meta.progress_token() } else { None };
        let wants_progress = progress_token.is_some();
        let logs = client.log_gate();
        let subscription = stream.then_some(Subscription { progress_token, logs, era: Era::Modern });
        let params = match resumed {
            Resumed::Nothing => params,
            Resumed::Anew => Some(input::next_params(params.as_ref(), &[], None)),
            Resumed::Answered(response) => return Self::answered(response),
            Resumed::Held(held) => {
                let parking = Arc::clone(parking);
                let mut resumed = Parkable::resumed(held, client.capabilities, subscription, stop, parking);
                resumed.set_trace(trace);
                return Self::Modern(resumed);
            }
        };
        let tasks = client.tasks();
        let context = CallContext {
            caller: Caller::request_of(Principal::anonymous()),
            client_info: client.info,
            capabilities: client.capabilities,
            log_level: client.log_level,
            wants_progress,
            tasks,
            trace,
        };
        // What a server asks is told to the client by the answer, so that takes no stream.
        let parking = method.may_need_input().then(|| Arc::clone(parking));
        let messages = (stream || parking.is_some()).then_some(settings.notification_buffer);
        let ask = Ask { method: method.clone(), params: params.clone(), context, messages, unroll: None };
        let mut running = Running::start(core, ask);
        running.set_stop(stop);
        Self::Modern(Parkable::new(running, method, params, subscription, parking))
    }

    /// A call that this side answers.
    pub(crate) fn answered(response: Response) -> Self {
        Self::Answered(Some(response))
    }

    /// Whether it is a subscription, whose span ends with its acknowledgement.
    pub(crate) fn is_listening(&self) -> bool {
        matches!(self, Self::Listening(_))
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// What comes next. After an answer or a cancellation, only [`Event::Cancelled`] does.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match self {
            Self::Legacy(relay) => relay.poll_next(cx),
            Self::Modern(parkable) => parkable.poll_next(cx),
            Self::Listening(subscribed) => subscribed.poll_next(cx),
            Self::Answered(response) => Poll::Ready(response.take().map_or(Event::Cancelled, Event::Response)),
        }
    }
}

/// What a request that stands alone goes on with: a call that was parked, if it brings what that one
/// waits for. `read` has been read of its `params`.
pub(crate) async fn resumed(
    parking: &Parking,
    method: &Method,
    params: Option<&Json>,
    read: &Params,
) -> Result<Resumed, RpcError> {
    // Few requests bring a state, and nearly all of them something that is held here.
    if !read.has_request_state() {
        return Ok(Resumed::Nothing);
    }
    let resume = async {
        let (state, responses) = (read.request_state(), read.input_responses());
        parking.resume(Retry { method, params, state: state.as_ref(), responses: responses.as_ref() }).await
    };
    Box::pin(resume).await
}
