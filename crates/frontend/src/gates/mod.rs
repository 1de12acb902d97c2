//! The gates that a client's request passes. They judge the value that the gateway has resolved, so
//! they decide about exactly what runs.
//!
//! When the request arrives, [`arrive`] asks rights and then limits: whoever may not do something
//! uses up no limit. [`Gates`] are those that the request passes before it runs, in a fixed order.
//! Guardrails come first: a denied call needs no turn and no approval. After these waits, the
//! rights are asked again. The record comes last: a recorded request runs. In the same order, the
//! gates see the response; after them, a large result is shortened for its client. Pins have no
//! gate here: a held definition exists for nobody, so the resolved value is an error.

mod approval;
mod hooks;
mod limits;
mod record;
mod rights;

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    CallContext, Caller, Decidable, Detail, Endpoint, Identity, Peer, ServerMessages,
};
use fanlight_gateway::{Gateway, Operation, Shortening};
use fanlight_protocol::{Method, Response, RpcError};
use fanlight_record::{AuditEvent, NotRecorded, RefusedRequest};
use futures_util::future::BoxFuture;

use crate::protection::Turn;
use crate::settings::FrontendSettings;
use approval::ApprovalGate;
use hooks::HookedCall;
pub(crate) use limits::{BUSY, RATE, permit};
pub(crate) use record::{RECORD, Recording, not_recorded};
pub(crate) use rights::{LastingDecision, Rights, SCOPES, may};

/// A gate that a request has to pass before it runs.
#[derive(Debug)]
enum Gate {
    /// The operator's guardrails.
    Hooks(Box<HookedCall>),
    /// The request's turn under the rate limits.
    Limits(Option<Turn>),
    /// A person's approval.
    Approval(Box<ApprovalGate>),
    /// The policy, which may have changed during a wait.
    Rights(Box<Rights>),
    /// The audit log.
    Record(Box<Recording>),
    /// Large results, which are shortened after all others have seen them.
    Results(Box<Shortening>),
}

impl Gate {
    /// Judges the request.
    ///
    /// # Errors
    ///
    /// If the request must not run.
    async fn judge_request(&mut self, messages: &ServerMessages) -> Result<(), RpcError> {
        match self {
            // Boxed, since few requests wait for these.
            Self::Hooks(hooked) => Box::pin(hooked.judge_request(messages)).await,
            Self::Limits(turn) => {
                if let Some(turn) = turn.take() {
                    Box::pin(turn.come()).await;
                }
                Ok(())
            }
            Self::Approval(approval) => Box::pin(approval.wait_for_approval(messages)).await,
            Self::Rights(rights) => rights.recheck(),
            Self::Record(recording) => recording.begin_request().await,
            Self::Results(_) => Ok(()),
        }
    }

    /// The response for the client after the gate has seen it.
    async fn process_response(&mut self, response: Response) -> Response {
        match self {
            Self::Hooks(hooked) => return Box::pin(hooked.judge_response(response)).await,
            Self::Approval(approval) => Box::pin(approval.record_answer(&response)).await,
            Self::Record(recording) => recording.end(&response),
            Self::Results(results) if !results.leaves(&response) => {
                return Box::pin(results.after(response)).await;
            }
            Self::Results(_) | Self::Limits(_) | Self::Rights(_) => {}
        }
        response
    }

    /// The gate's name in errors, spans and the audit log. The core itself names the policy,
    /// because an item may be hidden.
    fn name(&self) -> Option<&'static str> {
        match self {
            Self::Hooks(_) => Some(hooks::HOOKS),
            Self::Limits(_) => Some(RATE),
            Self::Approval(_) => Some(approval::APPROVAL),
            Self::Record(_) => Some(RECORD),
            Self::Rights(_) | Self::Results(_) => None,
        }
    }
}

/// The gates that are on for a request. Without any, nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Gates(Vec<Gate>);

impl Gates {
    /// The gates of an operation that has arrived with this turn.
    pub(crate) fn new(
        settings: &Arc<FrontendSettings>,
        core: &Arc<Gateway>,
        operation: &Operation,
        turn: Option<Turn>,
    ) -> Self {
        let mut gates = Vec::new();
        if operation.is_refused() {
            // A refusal waits for no turn and no approval.
            turn.into_iter().for_each(Turn::pass);
        } else {
            // Fanlight's own answers concern no item of a server that hooks or a policy could judge.
            let is_own = operation.is_own();
            if !is_own {
                gates.extend(HookedCall::new(settings, operation).map(Gate::Hooks));
            }
            gates.extend(turn.map(|turn| Gate::Limits(Some(turn))));
            if let Some(needed) = operation.approval() {
                let approval = ApprovalGate::new(settings, operation, needed);
                gates.push(Gate::Approval(approval));
            }
            if !gates.is_empty() && !is_own {
                let rights = Rights::new(core, operation);
                gates.push(Gate::Rights(Box::new(rights)));
            }
        }
        gates.extend(Recording::for_operation(settings, operation).map(Gate::Record));
        gates.extend(operation.shortening(core).map(Gate::Results));
        Self(gates)
    }

    /// Whether the request may run at once, and nobody has to see its response.
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs the request between its gates.
    pub(crate) async fn run_gated(
        mut self,
        context: Arc<CallContext>,
        messages: ServerMessages,
        run: BoxFuture<'static, Response>,
    ) -> Response {
        let mut response = match self.judge_request(&context, &messages).await {
            Ok(()) => run.await,
            Err(error) => Response::from_error(&error),
        };
        for gate in &mut self.0 {
            response = gate.process_response(response).await;
        }
        response
    }

    async fn judge_request(
        &mut self,
        context: &CallContext,
        messages: &ServerMessages,
    ) -> Result<(), RpcError> {
        for gate in &mut self.0 {
            if let Err(error) = gate.judge_request(messages).await {
                return Err(match gate.name() {
                    Some(name) => context.refuse(name, error),
                    None => error,
                });
            }
        }
        Ok(())
    }

    /// Records the answer of a request that does not run.
    pub(crate) fn end(self, response: &Response) {
        for gate in self.0 {
            if let Gate::Record(mut recording) = gate {
                recording.end(response);
            }
        }
    }
}

/// A request that the gateway answers without the core; identified by its method.
#[derive(Debug)]
pub(crate) struct OwnRequest<'a>(pub(crate) &'a Method);

impl Decidable for OwnRequest<'_> {
    fn method(&self) -> &Method {
        self.0
    }
}

/// The client of a request, by its identity and endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) identity: &'a Identity,
}

/// The refusal of a request that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// The gate's name in errors, spans and the audit log.
    pub(crate) gate: &'static str,
    /// The error for the client.
    pub(crate) error: RpcError,
    /// All required scopes, if the client lacks any of them.
    pub(crate) scopes: Option<Box<[Arc<str>]>>,
    /// The time after which a rate limit allows the request.
    pub(crate) retry_after: Option<Duration>,
}

impl Refused {
    fn new(gate: &'static str, error: RpcError) -> Box<Self> {
        Box::new(Self {
            gate,
            error: error.with_gate(gate),
            scopes: None,
            retry_after: None,
        })
    }
}

/// How far a request must be resolved for the gates.
pub(crate) fn detail(settings: &FrontendSettings, client: Client<'_>, method: &Method) -> Detail {
    let needs_tool = || {
        rights::needs_tool(settings, client)
            || settings.hooks.load().is_some()
            || record::needs_tool(settings)
            || limits::needs_tool(settings)
    };
    if *method == Method::CallTool && needs_tool() {
        Detail::Tool
    } else {
        Detail::Known
    }
}

/// Decides by the current rules whether a client may do `subject`, and records the decision in the
/// audit log.
pub(crate) fn decide(
    settings: &FrontendSettings,
    client: Client<'_>,
    subject: &dyn Decidable,
) -> Result<(), Box<Refused>> {
    record_decision(settings, client, subject, may(settings, client, subject))
}

/// [`decide`] for the client of a context. A client without an identity gets Fanlight's own.
pub(crate) fn decide_for(
    settings: &FrontendSettings,
    caller: &Caller,
    subject: &dyn Decidable,
) -> Result<(), Box<Refused>> {
    let Some(identity) = caller.identity() else {
        return Ok(());
    };
    let endpoint = caller.endpoint();
    decide(settings, Client { endpoint, identity }, subject)
}

/// [`decide`] for a request of `peer`, including rate limits. The request runs at once or when its
/// turn comes.
pub(crate) async fn arrive(
    settings: &FrontendSettings,
    client: Client<'_>,
    peer: impl FnOnce() -> Peer,
    subject: &dyn Decidable,
) -> Result<Option<Turn>, Box<Refused>> {
    let taken = match may(settings, client, subject) {
        Ok(()) => limits::take(settings, client, peer, subject).await,
        Err(refused) => Err(refused),
    };
    record_decision(settings, client, subject, taken)
}

/// Records a decision in the audit log; a decision that cannot be recorded becomes a refusal.
pub(crate) fn record_decision<T>(
    settings: &FrontendSettings,
    client: Client<'_>,
    subject: &dyn Decidable,
    outcome: Result<T, Box<Refused>>,
) -> Result<T, Box<Refused>> {
    let refused = outcome.as_ref().err().map(|refused| RefusedRequest {
        reason: refused.gate,
        code: refused.error.code,
    });
    let Client { endpoint, identity } = client;
    let recorded = settings.record.record(&AuditEvent::Decided {
        client: identity,
        endpoint,
        subject,
        refused,
    });
    let allowed = outcome?;
    match recorded {
        Ok(()) => Ok(allowed),
        Err(NotRecorded) => Err(Refused::new(RECORD, not_recorded(&NotRecorded))),
    }
}
