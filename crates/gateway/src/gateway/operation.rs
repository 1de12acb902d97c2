//! What clients ask for as the gateway carries it out: resolved once, by one topology.

use std::fmt;
use std::sync::Arc;

use fanlight_canonical::{
    CallContext, Decidable, Detail, Interest, Item, NeededApproval, ResolvedOperation, Unresolved,
};
use fanlight_protocol::json::Json;
use fanlight_protocol::{Method, Notification, input};

use super::{FoundTarget, Gateway};
use crate::routing::Target;
use crate::topology::{BackendId, View};

/// A request as the gateway carries it out. Its fields are private to the gateway, and only `Gateway::operation` makes
/// one: what has been decided about it is what runs.
pub struct Operation {
    /// What its client's endpoint shows of the topology that it keeps.
    pub(super) view: View,
    pub(super) request: Unresolved,
    /// Where it is sent; `None` until that has been needed. Once found it stays, for further rounds of input too.
    pub(super) target: FoundTarget,
    /// The tool that lists have under the name that the client gave.
    listed: Option<ListedTool>,
}

/// A tool that a list has.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    pub(super) backend: BackendId,
    /// A JSON string: its backend's own name for it.
    pub(super) original: Json,
    /// The definition, as clients see it.
    pub(super) definition: Arc<Json>,
}

/// Listening as the gateway begins it. Only `Gateway::listen_operation` makes one.
#[derive(Debug)]
pub struct ListenOperation {
    pub(super) view: View,
    pub(super) interest: Interest,
    pub(super) context: Arc<CallContext>,
}

/// A notification as the gateway passes it on. Only `Gateway::notice` makes one.
#[derive(Debug)]
pub struct Notice {
    pub(super) view: View,
    pub(super) notification: Notification,
    pub(super) context: Arc<CallContext>,
}

impl Gateway {
    /// Resolves what a client wants to listen to by the current topology.
    pub(super) fn listen_operation(&self, interest: Interest, context: Arc<CallContext>) -> ListenOperation {
        ListenOperation { view: self.view_of(&context.caller), interest, context }
    }

    /// Resolves a notification by the current topology.
    pub(super) fn notice(&self, notification: Notification, context: Arc<CallContext>) -> Notice {
        Notice { view: self.view_of(&context.caller), notification, context }
    }

    /// Resolves a request by the current topology.
    pub(super) async fn operation(&self, request: Unresolved, detail: Detail) -> Operation {
        let view = self.view_of(&request.context.caller);
        let mut operation = Operation { view, request, target: None, listed: None };
        let needs_tool = detail == Detail::Tool || operation.view.topology().has_approvals();
        if needs_tool && operation.request.method == Method::CallTool {
            self.find_tool(&mut operation).await;
        }
        operation
    }

    /// Finds the tool in the lists, and then where the call is sent.
    async fn find_tool(&self, operation: &mut Operation) {
        let Operation { view, request, target, listed } = operation;
        let name = request.params.as_ref().and_then(|params| params.get("name"));
        if let Some(name) = name.as_ref().and_then(Json::as_str) {
            *listed = match self.trusted_tool(view, &name) {
                Some(tool) => Some(tool),
                // Boxed: calls of known tools do not need the large future of reading lists.
                None => Box::pin(self.read_tool(view, &name, &request.context.trace)).await,
            };
        }
        if view.transparent().is_some() {
            return;
        }
        let lookup = self.lookup(view, &request.context);
        let found = match lookup.known_target(&request.method, request.params.as_ref()) {
            Some(found) => Some(found),
            None => Box::pin(lookup.target(&request.method, request.params.as_ref())).await,
        };
        *target = found.map(Box::new);
    }
}

impl Operation {
    /// The params that the server gets of a call, and the server.
    fn sent(&self) -> Option<(BackendId, Option<&Json>)> {
        Some(match (self.view.transparent(), self.target.as_deref()) {
            (Some(only), _) => (only.id, self.request.params.as_ref()),
            (None, Some(Ok(Target::One(routed)))) => (routed.backend, Some(&routed.params)),
            _ => return None,
        })
    }
}

impl Decidable for Operation {
    fn method(&self) -> &Method {
        &self.request.method
    }

    fn definition(&self) -> Option<&Arc<Json>> {
        self.listed.as_ref().map(|listed| &listed.definition)
    }

    fn tool(&self) -> Option<Item<'_>> {
        let listed = self.listed.as_ref()?;
        let (backend, params) = self.sent()?;
        let name = params.and_then(|params| params.get("name"));
        let original = listed.original.as_str()?;
        let is_listed = backend == listed.backend && name.as_ref().and_then(Json::as_str)? == original;
        is_listed.then(|| Item { server: self.view.name(backend), name: original })
    }

    fn server(&self) -> Option<&str> {
        self.sent().map(|(backend, _)| self.view.name(backend))
    }

    fn approval(&self) -> Option<NeededApproval<'_>> {
        if self.request.method != Method::CallTool {
            return None;
        }
        let (backend, params) = self.sent()?;
        let member = self.view.get(backend).filter(|member| member.has_approvals())?;
        let tool = self.tool();
        let rule = member.approval(tool.as_ref().map(|tool| &*tool.name))?;
        // One that cannot be read needs approval, too: what it means, only the server knows.
        let name = params.and_then(|params| Some(params.peek("name")?.as_str()?.into_owned())).unwrap_or_default();
        // The client's own: those that the configuration adds may be secrets, and nobody else chooses them.
        let arguments = self.request.params.as_ref().and_then(|params| params.get("arguments"));
        Some(NeededApproval { rule, tool: Item { server: member.name(), name: name.into() }, arguments })
    }
}

impl ResolvedOperation for Operation {
    fn context(&self) -> &Arc<CallContext> {
        &self.request.context
    }

    fn answer(&mut self, answers: &[(Json, Json)], state: Option<&Json>) {
        let next = |params: Option<&Json>| input::next_params(params, answers, state);
        if let Some(Ok(Target::One(routed))) = self.target.as_deref_mut() {
            routed.params = next(Some(&routed.params));
        }
        self.request.params = Some(next(self.request.params.as_ref()));
    }
}

impl Decidable for ListenOperation {
    fn method(&self) -> &Method {
        &Method::Listen
    }

    fn interest(&self) -> Option<&Interest> {
        Some(&self.interest)
    }
}

impl Decidable for Notice {
    fn method(&self) -> &Method {
        &self.notification.method
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("method", &self.request.method).finish_non_exhaustive()
    }
}
