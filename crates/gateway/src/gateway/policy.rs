//! The policy's decisions about an operation: as it is resolved, and again after a wait.

use fanlight_canonical::{
    AmbiguousArguments, Call, CallContext, PolicyAction, PolicyItem, PolicyKind, PolicyOutcome,
    Verdict,
};
use fanlight_protocol::{Json, RpcError};

use super::Gateway;
use super::operation::{Decided, Operation, action, definition_of, find_item};
use crate::fault;
use crate::routing::Target;
use crate::topology::View;

/// The name of the policy's gate in errors, spans and the audit log.
const POLICY: &str = "policy";

impl Gateway {
    /// Finds the target of a request that names something, and applies the policy to it. A
    /// forbidden request gets its error when it runs.
    pub(super) async fn apply_policy(&self, operation: &mut Operation, action: PolicyAction) {
        let Operation {
            view,
            request,
            target,
            listed,
            verdict,
            ..
        } = operation;
        if target.is_none() {
            let lookup = self.directory.lookup(view, &request.context);
            *target = lookup
                .target(&request.method, request.params.as_ref())
                .await
                .map(Box::new);
        }
        let routed = match target.as_deref() {
            Some(Ok(Target::One(routed))) => routed,
            Some(Err(_)) => {
                *verdict = self.hidden_verdict(view, request, action);
                note_verdict(&request.context, verdict.as_ref());
                return;
            }
            _ => return,
        };
        let Some((kind, name)) = find_item(&request.method, Some(&routed.params)) else {
            return;
        };
        let definition =
            definition_of(listed.as_ref(), routed.backend, &name).map(|definition| &**definition);
        let item = PolicyItem {
            kind,
            server: view.name(routed.backend),
            name: name.into(),
            definition,
        };
        let arguments = routed.params.get("arguments");
        let Some(decided) = view.verdict(action, &item, arguments.as_ref()) else {
            return;
        };
        let visible = find_item(&request.method, request.params.as_ref());
        let (_, visible) = visible.unwrap_or((kind, String::new()));
        let refused = refusal(kind, &visible, &decided);
        *verdict = Some(decided.unwrap_or_else(|_| Verdict::without_policy(PolicyOutcome::Denied)));
        note_verdict(&request.context, verdict.as_ref());
        if let Some(error) = refused {
            *target = Some(Box::new(Err(error)));
        }
    }

    /// The verdict about an entry that is hidden from the client, if a list has it.
    fn hidden_verdict(&self, view: &View, request: &Call, action: PolicyAction) -> Option<Verdict> {
        let (kind, name) = find_item(&request.method, request.params.as_ref())?;
        let everything = view.without_policy();
        let list = self.newest_list(&everything, kind)?;
        let entry = list.find(&name).or_else(|| list.find_bare(&name).next())?;
        let (original, definition) = (entry.original.as_ref()?.as_str()?, Some(&*entry.visible));
        let item = PolicyItem {
            kind,
            server: everything.name(entry.backend),
            name: original,
            definition,
        };
        let rights = view.rights()?;
        let listing = rights.listing(&item);
        match listing.outcome {
            PolicyOutcome::Hidden => Some(listing),
            _ => rights
                .decide(action, &item, None)
                .ok()
                .filter(|verdict| verdict.outcome == PolicyOutcome::Hidden),
        }
    }

    /// Whether a request that has waited for something may go on under the current policy. The
    /// client is the one of `context`.
    ///
    /// # Errors
    ///
    /// The answer to a request that may not go on and has to be ended.
    pub fn may_go_on(&self, decided: &Decided, context: &CallContext) -> Result<(), RpcError> {
        let view = self.view_of(context);
        if view.rights().is_none() || action(&decided.method).is_none() {
            return Ok(());
        }
        // There was no policy when the request began.
        let Some(subject) = &decided.subject else {
            return Err(context.refuse(POLICY, fault::policy_has_changed()));
        };
        let Some(verdict) = view.verdict_again(subject) else {
            return Ok(());
        };
        note_verdict(context, verdict.as_ref().ok());
        if let Some(error) = refusal(subject.kind, &subject.visible, &verdict) {
            context.refused_by(POLICY);
            return Err(error);
        }
        let rule = |verdict: Option<&Verdict>| match verdict.map(|verdict| &verdict.outcome) {
            Some(PolicyOutcome::Asked { number, .. }) => Some(*number),
            _ => None,
        };
        // An approval under another policy does not count under this one.
        let asked = rule(verdict.as_ref().ok());
        if asked.is_some() && asked != rule(decided.verdict.as_ref()) {
            Err(context.refuse(POLICY, fault::policy_has_changed()))
        } else {
            Ok(())
        }
    }
}

impl Operation {
    /// Decides about a request of a client that may do everything.
    pub(super) fn judge_all_permitted(&mut self) {
        self.verdict = self.verdict_on_all();
        note_verdict(&self.request.context, self.verdict.as_ref());
    }

    /// The verdict about a request of a client that may do everything, if its server is known.
    fn verdict_on_all(&self) -> Option<Verdict> {
        let backend = match self.view.topology().backends() {
            [only] => only.id,
            _ => self.sent_request()?.0,
        };
        let (kind, _) = find_item(&self.request.method, self.params())?;
        // All items of the server have the same verdict.
        let item = PolicyItem {
            kind,
            server: self.view.name(backend),
            name: "".into(),
            definition: Some(&Json::empty_object()),
        };
        let (all, action) = (self.view.all_rights()?, action(&self.request.method)?);
        all.decide(action, &item, None).ok()
    }
}

/// The error for a request that the policy forbids; `None` if it permits the request.
fn refusal(
    kind: PolicyKind,
    visible: &str,
    decided: &Result<Verdict, AmbiguousArguments>,
) -> Option<RpcError> {
    match decided {
        Ok(Verdict {
            outcome: PolicyOutcome::Allowed | PolicyOutcome::Asked { .. },
            ..
        }) => None,
        Ok(Verdict {
            outcome: PolicyOutcome::Denied,
            ..
        }) => Some(fault::not_permitted(kind, visible).with_gate(POLICY)),
        Ok(Verdict {
            outcome: PolicyOutcome::Hidden,
            ..
        }) => Some(match kind {
            PolicyKind::Tool => fault::unknown_name("tool", visible, &[]),
            PolicyKind::Prompt => fault::unknown_name("prompt", visible, &[]),
            _ => fault::unknown_resource(visible),
        }),
        Err(ambiguous) => Some(fault::invalid_params(ambiguous.to_string()).with_gate(POLICY)),
    }
}

/// Records the policy's verdict on the request's span. A denied request names its gate.
fn note_verdict(context: &CallContext, verdict: Option<&Verdict>) {
    if let Some(Verdict { outcome, policies }) = verdict {
        context.trace.policy(outcome.as_str(), policies);
        if outcome.is_denial() {
            context.refused_by(POLICY);
        }
    }
}
