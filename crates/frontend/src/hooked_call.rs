//! Tool calls and results, including results of tasks, that guardrails judge. Their bytes do not
//! change.

use std::sync::Arc;

use fanlight_canonical::{CallContext, Decidable as _, ServerMessages};
use fanlight_gateway::Operation;
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_protocol::{Json, Method, Response, RpcError, code};

use crate::approval::CallBeforeApproval;
use crate::eras::fault;
use crate::guardrail::{CallHook, HookAnswer, HookMoment};
use crate::settings::FrontendSettings;

/// A call, or a request about its task, that hooks judge.
#[derive(Debug)]
pub(crate) struct HookedCall {
    hook: Arc<dyn CallHook>,
    method: Method,
    /// The call's description, to which the result may be added.
    described: ObjectBuilder,
    /// The approval to use if a hook asks for one; `None` if the call's server is unknown.
    approval: Option<Box<CallBeforeApproval>>,
}

impl HookedCall {
    /// Returns `operation` as a hooked call if hooks judge it.
    pub(crate) fn of(settings: &Arc<FrontendSettings>, operation: &Operation) -> Option<Box<Self>> {
        let method = operation.method().clone();
        let hook = settings.hooks.load().filter(|hook| match method {
            Method::CallTool => true,
            Method::GetTask | Method::TaskResult | Method::UpdateTask | Method::CancelTask => {
                hook.wants(HookMoment::Result)
            }
            _ => false,
        })?;
        let approval = CallBeforeApproval::for_hook(settings, operation)
            .filter(|_| hook.wants(HookMoment::Call));
        Some(Box::new(Self {
            hook,
            method,
            described: described(operation),
            approval,
        }))
    }

    /// Asks the hooks before the call runs, and then whoever has to approve it.
    ///
    /// # Errors
    ///
    /// If the call must not run.
    pub(crate) async fn before(&mut self, messages: ServerMessages) -> Result<(), RpcError> {
        if self.method != Method::CallTool || !self.hook.wants(HookMoment::Call) {
            return Ok(());
        }
        let question = self.described.clone().finish();
        question
            .read_strictly()
            .map_err(|why| fault::unreadable("params", &why))?;
        match (
            self.hook.ask(HookMoment::Call, question).await,
            self.approval.take(),
        ) {
            (HookAnswer::Allow, _) => Ok(()),
            (HookAnswer::Ask(text), Some(approval)) => {
                approval.asking(text).agreed(messages).await.map(drop)
            }
            (HookAnswer::Ask(reason) | HookAnswer::Deny(reason), _) => {
                Err(denied("this call", &reason, "false"))
            }
        }
    }

    /// The response that the client gets after the hooks have judged it.
    pub(crate) async fn after(&self, response: Response) -> Response {
        if response.is_error() || !self.hook.wants(HookMoment::Result) {
            return response;
        }
        let body = response.body();
        let result = match (&self.method, body.find_distinct(&["result"])) {
            // A task's state contains the result once the task is done.
            (Method::GetTask | Method::UpdateTask | Method::CancelTask, Ok([None])) => {
                return response;
            }
            (Method::GetTask | Method::UpdateTask | Method::CancelTask, Ok([Some(place)])) => {
                body.slice(place)
            }
            _ => body,
        };
        let mut described = self.described.clone();
        described.member("result", &result);
        let question = described.finish();
        let answer = match question.read_strictly() {
            Ok(()) => self.hook.ask(HookMoment::Result, question).await,
            Err(why) => HookAnswer::Deny(format!("programs could read it differently: {why}")),
        };
        match answer {
            HookAnswer::Allow => response,
            HookAnswer::Deny(reason) | HookAnswer::Ask(reason) => {
                Response::from_error(&denied("the result of this call", &reason, "true"))
            }
        }
    }
}

/// The description of the call for hooks.
fn described(operation: &Operation) -> ObjectBuilder {
    let context: &CallContext = operation.context();
    let caller = &context.caller;
    let mut call = ObjectBuilder::new();
    if let Some(identity) = caller.identity() {
        call.string("principal", &identity.principal.describe());
        call.string("who", &identity.name)
            .string("authentication", identity.source.as_str());
        let mut groups = ArrayBuilder::default();
        for group in &*identity.groups {
            groups.push(&Json::string(group));
        }
        call.member("groups", &groups.finish());
    }
    if let Some(info) = &context.client_info {
        call.member("clientInfo", info);
    }
    call.string("endpoint", caller.endpoint().full_path());
    let tool = operation.tool();
    if let Some(server) = tool
        .as_ref()
        .map(|tool| tool.server)
        .or_else(|| operation.server())
    {
        call.string("server", server);
    }
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
    call
}

fn denied(what: &str, reason: &str, may_have_run: &'static str) -> RpcError {
    let mut data = ObjectBuilder::new();
    data.member("mayHaveRun", &Json::literal(may_have_run));
    let message = format!("a guardrail of this gateway does not let {what} pass: {reason}");
    RpcError::new(code::NOT_PERMITTED, message).with_data(data.finish())
}
