//! Whether a message may proceed: the scopes of its sender, and how many of its requests may run.

use std::sync::Arc;

use fanlight_canonical::{Core, Endpoint, ToolItem};
use fanlight_identity::Scopes;
use fanlight_protocol::json::{ObjectBuilder, Value};
use fanlight_protocol::{Method, RpcError, code};
use fanlight_telemetry::Parent;
use tokio::sync::OwnedSemaphorePermit;

use super::{Ingress, Origin, Reason, Refusal, Transport};
use crate::eras::params::Params;
use crate::protection::Operation;

/// A request: its method, its parameters, and its span.
type Asked<'a> = (&'a Method, &'a Params, &'a Parent);

impl<C: Core> Ingress<C> {
    /// Admits one message: called once for each, after it has been found valid, and with exactly what servers get of it.
    /// Notifications and answers, which have no `request`, need an identity alone. If it is a request that `reaches_core`,
    /// the permit counts it among those of its client that run at once.
    pub(super) async fn admit<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        request: Option<Asked<'_>>,
        reaches_core: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, Box<Refusal>> {
        if let Some(request) = request
            && origin.identity.scopes != Scopes::All
        {
            // Boxed, since reading the list of tools, which rules may need, takes a large future.
            Box::pin(self.check_scopes(origin, request)).await?;
        }
        Ok(self.permit(transport, reaches_core)?)
    }

    /// A permit for one more request that `reaches_core`.
    pub(super) fn permit<T: Transport>(
        &self,
        transport: &T,
        reaches_core: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, RpcError> {
        let Some(permits) = transport.permits().filter(|_| reaches_core) else { return Ok(None) };
        Arc::clone(permits).try_acquire_owned().map(Some).map_err(|_| {
            let limit = self.settings.max_concurrent;
            RpcError::new(code::INTERNAL, format!("busy: {limit} requests are running; wait for one to finish"))
        })
    }

    async fn check_scopes(&self, origin: &Origin<'_>, (method, params, trace): Asked<'_>) -> Result<(), Box<Refusal>> {
        let protection = Arc::clone(&self.settings.protection.load());
        let endpoint = origin.holder.endpoint();
        let policy = protection.scopes_at(endpoint.path().map_or(self.settings.path.as_str(), |path| path));
        let check =
            |operation| policy.check(&origin.identity.scopes, operation).map_err(|required| insufficient(&required));
        match method {
            Method::CallTool if policy.depends_on_tools() => match self.tool_item(params, endpoint, trace).await {
                Some(ToolItem { server, name }) => check(Operation::Tool { server: &server, name: &name }),
                None => check(Operation::AnyTool),
            },
            Method::CallTool => check(Operation::Call),
            method => check(Operation::of(method)),
        }
    }

    /// The tool that a call is for. `None` if no list has it, so that only its server knows which tool it is.
    async fn tool_item(&self, params: &Params, endpoint: &Endpoint, trace: &Parent) -> Option<ToolItem> {
        let name = params.name().and_then(Value::as_str)?.into_owned();
        self.core.tool_item(&name, endpoint, trace).await
    }
}

/// The refusal of a request whose client lacks some of the scopes that it needs.
fn insufficient(required: &[Arc<str>]) -> Box<Refusal> {
    let scope = required.join(" ");
    let mut data = ObjectBuilder::new();
    data.string("scope", &scope);
    let message = format!("the credentials lack a scope; this needs: {scope}");
    let error = RpcError::new(code::NOT_PERMITTED, message).with_data(data.finish());
    let mut refusal = Refusal::new(Reason::Scopes, error);
    refusal.required_scopes = Some(required.into());
    refusal
}
