//! Guardrails: they judge tool calls and results, including results of tasks, whose bytes do not
//! change unless a guardrail replaces a result. Without guardrails, a call costs one look at the
//! settings.

use std::sync::Arc;

use fanlight_canonical::{CallContext, Decidable as _, ServerMessages};
use fanlight_config::HookTime;
use fanlight_gateway::Operation;
use fanlight_protocol::{Json, Method, ObjectBuilder, Response, RpcError, code};
use fanlight_telemetry::Rewritten;

use super::approval::ApprovalGate;
use crate::eras::fault;
use crate::{CallHook, FrontendSettings, HookAnswer, JudgedCall};

/// The name of the gate.
pub(super) const HOOKS: &str = "hooks";

/// A call, or a request about its task, that hooks judge.
#[derive(Debug)]
pub(super) struct HookedCall {
    hook: Arc<dyn CallHook>,
    method: Method,
    call: JudgedCall,
    context: Arc<CallContext>,
    /// The approval to use if a hook asks for one; `None` if the call's server is unknown.
    approval: Option<Box<ApprovalGate>>,
}

impl HookedCall {
    /// Returns `operation` as a hooked call if hooks judge it.
    pub(super) fn new(
        settings: &Arc<FrontendSettings>,
        operation: &Operation,
    ) -> Option<Box<Self>> {
        let method = operation.method().clone();
        let is_call = method == Method::CallTool;
        // A method that Fanlight does not know may call any tool.
        let may_call = is_call || matches!(method, Method::Other(_));
        let hook = (settings.hooks.load()).filter(|_| may_call || method.is_about_task())?;
        let call = judged(operation);
        let asks_before = may_call && hook.wants(HookTime::Call, Some(&call));
        if !asks_before && !hook.wants(HookTime::Result, Some(&call)) {
            return None;
        }
        let context = Arc::clone(operation.context());
        Some(Box::new(Self {
            hook,
            method,
            call,
            context,
            approval: ApprovalGate::for_hook(settings, operation).filter(|_| asks_before),
        }))
    }

    /// Asks the hooks before the call runs, and then whoever has to approve it.
    ///
    /// # Errors
    ///
    /// If the call must not run.
    pub(super) async fn judge_request(
        &mut self,
        messages: &ServerMessages,
    ) -> Result<(), RpcError> {
        let call = &self.call;
        if let Method::Other(method) = &self.method {
            return Err(fault::method_not_found(method));
        }
        if self.method != Method::CallTool || !self.hook.wants(HookTime::Call, Some(call)) {
            return Ok(());
        }
        let question = call.question(None);
        question
            .read_strictly()
            .map_err(|why| fault::unreadable_error("params", &why))?;
        match (
            self.hook.ask(HookTime::Call, call, question).await,
            &mut self.approval,
        ) {
            (HookAnswer::Allow | HookAnswer::Replace(_), _) => Ok(()),
            (HookAnswer::Ask(text), Some(approval)) => {
                approval.wait_with_question(text, messages).await
            }
            (HookAnswer::Ask(reason) | HookAnswer::Deny(reason), _) => {
                Err(denied("this call", &reason, false))
            }
        }
    }

    /// The response that the client gets after the hooks have judged it.
    pub(super) async fn judge_response(&self, response: Response) -> Response {
        let (moment, call) = (HookTime::Result, &self.call);
        if response.is_error() || !self.hook.wants(moment, Some(call)) {
            return response;
        }
        let body = response.body();
        let place = match (&self.method, body.find_distinct(&["result"])) {
            // A task's state contains the result once the task is done.
            (Method::GetTask | Method::UpdateTask | Method::CancelTask, Ok([None])) => {
                return response;
            }
            (Method::GetTask | Method::UpdateTask | Method::CancelTask, Ok([Some(place)])) => place,
            _ => 0..body.bytes().len(),
        };
        let question = call.question(Some(&body.slice(place.clone())));
        let answer = match question.read_strictly() {
            Ok(()) => self.hook.ask(moment, call, question).await,
            Err(why) => HookAnswer::Deny(format!("programs could read it differently: {why}")),
        };
        match answer {
            HookAnswer::Allow => response,
            HookAnswer::Replace(result) => {
                self.context.trace.record_rewriting(Rewritten::RESULT);
                if let Some(noted) = &self.context.noted {
                    let _ = noted.replaced.set(());
                }
                response.with_body(&body.with(place, &result))
            }
            HookAnswer::Deny(reason) | HookAnswer::Ask(reason) => {
                let error = denied("the result of this call", &reason, true);
                Response::from_error(&self.context.refuse(HOOKS, error))
            }
        }
    }
}

/// The call as hooks judge it.
fn judged(operation: &Operation) -> JudgedCall {
    let context: &CallContext = operation.context();
    let caller = &context.caller;
    let mut call = ObjectBuilder::new();
    if let Some(identity) = caller.identity() {
        call.string("principal", &identity.principal.describe());
        let groups = identity.groups.iter().map(|group| &**group);
        call.string("who", &identity.name)
            .string("authentication", identity.source.as_str())
            .member("groups", &Json::strings(groups));
    }
    call.optional("clientInfo", context.client_info.as_ref())
        .string("endpoint", caller.endpoint().full_path());
    let tool = operation.tool();
    let server = tool
        .as_ref()
        .map(|tool| tool.server)
        .or_else(|| operation.server());
    call.optional_string("server", server);
    // A tool that no list contains keeps the client's name for it.
    match (&tool, operation.shown_name()) {
        (Some(tool), _) => call.string("tool", &tool.name),
        (None, Some(name)) if *operation.method() == Method::CallTool => call.string("tool", &name),
        (None, Some(task)) => call.string("task", &task),
        (None, None) => &mut call,
    };
    if let Some(arguments) = operation.sent_arguments() {
        call.member("arguments", &arguments);
    }
    if let Some(verdict) = operation.verdict() {
        call.string("decision", verdict.outcome.as_str());
    }
    if let Some(ids) = context.trace.ids() {
        call.string("trace", &ids.trace_id.to_string());
    }
    JudgedCall {
        endpoint: caller.endpoint().full_path().into(),
        server: server.map(Box::from),
        tool: tool.as_ref().map(|tool| (*tool.name).into()),
        described: call,
    }
}

fn denied(what: &str, reason: &str, may_have_run: bool) -> RpcError {
    let message = format!("a guardrail of this gateway does not let {what} pass: {reason}");
    RpcError::new(code::NOT_PERMITTED, message).may_have_run(may_have_run)
}
