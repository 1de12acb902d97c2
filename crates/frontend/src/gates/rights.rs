//! Rights: the scopes of a client, asked when a request arrives, and the policy. The policy's first
//! decision is a part of resolving; [`Rights`] decide again after a wait. A client with all scopes
//! and no policy costs two comparisons.
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::identity::Scopes;
use fanlight_canonical::{CallContext, Caller, Decidable, Interest};
use fanlight_gateway::{Decided, Gateway};
use fanlight_protocol::{Json, RpcError, code};
use futures_util::future::BoxFuture;

use super::{Client, Refused};
use crate::protection::Operation;
use crate::settings::FrontendSettings;

/// The name of the gate where a client lacks scopes.
pub(crate) const SCOPES: &str = "scopes";

/// The facts that the decision about a request was based on, for another decision.
#[derive(Debug)]
pub(crate) struct Rights {
    core: Arc<Gateway>,
    decided: Decided,
    context: Arc<CallContext>,
}

impl Rights {
    /// The facts about `operation`.
    pub(crate) fn new(core: &Arc<Gateway>, operation: &fanlight_gateway::Operation) -> Self {
        Self {
            core: Arc::clone(core),
            decided: operation.decided(),
            context: Arc::clone(operation.context()),
        }
    }

    /// Decides by the current policy whether the request may go on.
    pub(crate) fn recheck(&self) -> Result<(), RpcError> {
        self.core.may_go_on(&self.decided, &self.context)
    }
}

/// Whether the client still has an earlier permission. Adds no audit record.
pub(crate) fn may(
    settings: &FrontendSettings,
    client: Client<'_>,
    subject: &dyn Decidable,
) -> Result<(), Box<Refused>> {
    if client.identity.scopes == Scopes::All {
        return Ok(());
    }
    let depends = needs_tool(settings, client);
    check(settings, client, &Operation::from_subject(subject, depends))
}

/// Whether the scopes that a call of the client needs depend on the tool.
pub(super) fn needs_tool(settings: &FrontendSettings, client: Client<'_>) -> bool {
    let path = client.endpoint.full_path();
    client.identity.scopes != Scopes::All
        && settings
            .protection
            .load()
            .scopes_at(path)
            .depends_on_tools()
}

fn check(
    settings: &FrontendSettings,
    client: Client<'_>,
    operation: &Operation<'_>,
) -> Result<(), Box<Refused>> {
    let protection = settings.protection.load();
    let policy = protection.scopes_at(client.endpoint.full_path());
    policy
        .check(&client.identity.scopes, operation)
        .map_err(|required| {
            let scope = required.join(" ");
            let message = format!("the credentials lack a scope; this needs: {scope}");
            let error =
                RpcError::new(code::NOT_PERMITTED, message).with("scope", &Json::string(&scope));
            let mut refused = Refused::new(SCOPES, error);
            refused.scopes = Some(required.into());
            refused
        })
}

/// A lasting decision about listening. It is repeated whenever the rules change, and resolves once
/// it is a refusal.
pub(crate) struct LastingDecision(BoxFuture<'static, Box<Refused>>);

impl LastingDecision {
    /// The decision about listening to `interest`; `None` for an unrestricted client.
    pub(crate) fn new(
        settings: &Arc<FrontendSettings>,
        caller: &Caller,
        interest: &Interest,
    ) -> Option<Self> {
        let identity = Arc::clone(
            caller
                .identity()
                .filter(|identity| identity.scopes != Scopes::All)?,
        );
        let (settings, endpoint) = (Arc::clone(settings), caller.endpoint().clone());
        let operation = Operation::from_interest(interest);
        let mut replacements = settings.protection.replacements();
        Some(Self(Box::pin(async move {
            loop {
                // Check at once: the rules may have changed since the first decision.
                if let Err(refused) = check(
                    &settings,
                    Client {
                        endpoint: &endpoint,
                        identity: &identity,
                    },
                    &operation,
                ) {
                    return refused;
                }
                // Cannot fail, since the settings own the sender.
                let _ = replacements.changed().await;
            }
        })))
    }

    /// Must not be polled again after it is ready.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Box<Refused>> {
        self.0.as_mut().poll(cx)
    }
}
