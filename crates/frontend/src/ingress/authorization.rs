//! Whether a message may proceed: the scopes of its sender, and how many of its requests may run.

use std::sync::Arc;

use fanlight_canonical::{Core, Detail, Item, ResolvedOperation};
use fanlight_identity::Scopes;
use fanlight_protocol::json::{ObjectBuilder, Value};
use fanlight_protocol::{Method, RpcError, code};
use tokio::sync::OwnedSemaphorePermit;

use super::{Ingress, Origin, Reason, Refusal, Transport};
use crate::eras::params::Params;
use crate::protection::Operation;

/// What it is decided about whether it may proceed.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a, R> {
    /// A request that the core does not carry out: its method.
    Method(&'a Method),
    /// An operation, and the parameters that the client gave.
    Operation(&'a R, &'a Params),
}

impl<C: Core> Ingress<C> {
    /// How much of a request has to be resolved for [`Self::admit`].
    pub(super) fn detail(&self, origin: &Origin<'_>, method: &Method) -> Detail {
        let depends = || {
            let protection = self.settings.protection.load();
            protection.scopes_at(self.path_of(origin)).depends_on_tools()
        };
        match method {
            Method::CallTool if origin.identity.scopes != Scopes::All && depends() => Detail::Tool,
            _ => Detail::Known,
        }
    }

    /// Admits one message: called once for each, after it has been found valid, and with exactly what runs. Notifications
    /// and answers, of which nothing is `asked`, need an identity alone. If it is a request that `reaches_core`, the permit
    /// counts it among those of its client that run at once.
    pub(super) fn admit<T: Transport>(
        &self,
        transport: &T,
        origin: &Origin<'_>,
        asked: Option<Asked<'_, C::Resolved>>,
        reaches_core: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, Box<Refusal>> {
        if let Some(asked) = asked
            && origin.identity.scopes != Scopes::All
        {
            self.check_scopes(origin, asked)?;
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

    fn check_scopes(&self, origin: &Origin<'_>, asked: Asked<'_, C::Resolved>) -> Result<(), Box<Refusal>> {
        let protection = self.settings.protection.load();
        let policy = protection.scopes_at(self.path_of(origin));
        let check =
            |operation| policy.check(&origin.identity.scopes, operation).map_err(|required| insufficient(&required));
        match asked {
            Asked::Operation(operation, params) if *operation.method() == Method::CallTool => {
                if !policy.depends_on_tools() {
                    return check(Operation::Call);
                }
                match names(operation, params) {
                    Some(names) => check(Operation::Tool(&names.each_ref().map(String::as_str))),
                    None => check(Operation::AnyTool),
                }
            }
            Asked::Operation(operation, _) => check(Operation::of(operation.method())),
            Asked::Method(method) => check(Operation::of(method)),
        }
    }

    fn path_of<'a>(&'a self, origin: &'a Origin<'_>) -> &'a str {
        origin.holder.endpoint().path().map_or(self.settings.path.as_str(), |path| path)
    }
}

/// The names by which a rule can be about the tool that the server gets: as the client gives it, as lists have it, and
/// the server with its own name, which no other server changes. `None` if no list has it, so that only its server knows
/// which tool it is.
fn names<R: ResolvedOperation>(operation: &R, params: &Params) -> Option<[String; 4]> {
    let Item { server, name } = operation.tool()?;
    let given = params.name().and_then(Value::as_str)?.into_owned();
    let listed = operation.definition()?.get("name")?.as_str()?.into_owned();
    Some([given, listed, format!("{server}__{name}"), format!("{server}/{name}")])
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
