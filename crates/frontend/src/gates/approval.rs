//! Approvals: a call that needs one waits for it before it reaches the core; without one it does
//! not run. A call that needs none costs the look at its server's rules.
//!
//! The caller approves through an elicitation of their own client. While that is open, the call
//! looks like one whose server asks for input. Operators approve through
//! [`Approvals`](fanlight_gateway::approvals::Approvals).

use std::sync::Arc;

use fanlight_canonical::{
    ApprovedBy, CallContext, Identity, Item, ServerMessage, ServerMessages, ServerRequest,
};
use fanlight_gateway::Operation;
use fanlight_gateway::approvals::{
    ApproverRule, Asked, CallToApprove, NotApproved, NotAsked, Question,
};
use fanlight_protocol::visible::escaped;
use fanlight_protocol::{
    INPUT_RESPONSES, InputRequired, Json, Method, MissingCapability, ObjectBuilder, REQUEST_STATE,
    Response, RpcError, code, rewrite_object,
};
use fanlight_record::AuditEvent;
use fanlight_telemetry::Moment;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::not_recorded;
use crate::eras::fault;
use crate::settings::FrontendSettings;

/// The approval id when the caller's own client approves.
const CLIENT: &str = "client";

/// The name of the gate.
pub(super) const APPROVAL: &str = "approval";

/// A call that needs approval.
#[derive(Debug)]
pub(super) struct ApprovalGate {
    settings: Arc<FrontendSettings>,
    context: Arc<CallContext>,
    by: ApprovedBy,
    /// The question that the operator configured.
    text: Option<Arc<str>>,
    call: CallToApprove,
    /// The parameters, perhaps of a later round of input.
    params: Option<Json>,
    /// Whether a hook may ask, which perhaps did not ask about an earlier round.
    is_of_hook: bool,
    /// The id of the approval, once somebody has approved the call.
    approved: Option<String>,
}

impl ApprovalGate {
    /// Records the server's answer. If the answer asks for input, the next round belongs to the
    /// same approval.
    pub(super) async fn record_answer(&self, response: &Response) {
        if let Some(id) = &self.approved
            && let Some(state) =
                InputRequired::from_response(response).and_then(|required| required.state)
        {
            let approvals = &self.settings.approvals;
            approvals.continues(id, &self.call, &state).await;
        }
    }

    /// The gate of an operation that needs this approval. It later runs with exactly these
    /// arguments.
    pub(super) fn new(
        settings: &Arc<FrontendSettings>,
        operation: &Operation,
        (by, text, mut call): (ApprovedBy, Option<Arc<str>>, CallToApprove),
    ) -> Box<Self> {
        let context = Arc::clone(operation.context());
        // With another header the server may do something else.
        let mut headers = ObjectBuilder::new();
        for (name, value) in context.caller.headers() {
            headers.string(&format!("header {name}"), value);
        }
        call.more = with_members(call.more, headers);
        Box::new(Self {
            settings: Arc::clone(settings),
            context,
            by,
            text,
            call,
            params: operation.params().cloned(),
            is_of_hook: false,
            approved: None,
        })
    }

    /// Prepares an approval for `operation` in case a hook asks for one.
    pub(super) fn for_hook(
        settings: &Arc<FrontendSettings>,
        operation: &Operation,
    ) -> Option<Box<Self>> {
        let needed = (ApprovedBy::Approver, None, operation.to_approve(0)?);
        let mut gate = Self::new(settings, operation, needed);
        gate.is_of_hook = true;
        Some(gate)
    }

    /// Waits for the approval, asking the question of a hook.
    pub(super) async fn wait_with_question(
        &mut self,
        text: String,
        messages: &ServerMessages,
    ) -> Result<(), RpcError> {
        self.text = Some(text.into());
        self.wait_for_approval(messages).await
    }

    /// Waits for the approval.
    ///
    /// # Errors
    ///
    /// If nobody approves; the call must not run then.
    pub(super) async fn wait_for_approval(
        &mut self,
        messages: &ServerMessages,
    ) -> Result<(), RpcError> {
        // An approver must see what the server reads.
        if let Some(Err(why)) = self.params.as_ref().map(Json::read_strictly) {
            return Err(fault::unreadable_error("params", &why));
        }
        let approvals = &self.settings.approvals;
        let earlier = match self.param(REQUEST_STATE) {
            Some(state) => approvals
                .is_continued(&self.call, &state)
                .await
                .map_err(|error| not_asked(&error))?,
            None => None,
        };
        let id = match earlier {
            Some(id) => {
                self.record("approved", &id)?;
                id
            }
            // No approver has seen the input, and none has let the server ask for it.
            None if !self.is_of_hook && self.param(INPUT_RESPONSES).is_some() => {
                return Err(not_approved(
                    "this call brings input that no approved call has asked for; it was not carried out; send it without \
                     `inputResponses` and `requestState`",
                    None,
                    "unasked",
                ));
            }
            None => {
                self.call.more = self.all_more();
                let since = Moment::now();
                let asked = self.ask(messages).await;
                self.context.trace.waited_since(since);
                asked?
            }
        };
        self.approved = Some(id);
        Ok(())
    }

    fn param(&self, name: &str) -> Option<Json> {
        self.params.as_ref()?.get(name)
    }

    /// All other members of `params`, and the members of a round that no approval covers.
    fn all_more(&self) -> Option<Json> {
        let mut added = ObjectBuilder::new();
        for name in [INPUT_RESPONSES, REQUEST_STATE] {
            added.optional(name, self.param(name).as_ref());
        }
        with_members(self.call.more.clone(), added)
    }

    /// Asks whoever may approve; returns the id of the approval.
    async fn ask(&self, messages: &ServerMessages) -> Result<String, RpcError> {
        let params = Json::empty_object();
        let can_be_asked = messages.is_connected()
            && MissingCapability::for_server_request(
                &self.context.capabilities,
                &Method::Elicit,
                Some(&params),
            )
            .is_none();
        match self.by {
            ApprovedBy::Caller if can_be_asked => {
                self.ask_caller(messages).await.map(|()| CLIENT.to_owned())
            }
            ApprovedBy::Other => self.ask_approvers(ApproverRule::Other).await,
            ApprovedBy::Caller | ApprovedBy::Approver => {
                self.ask_approvers(ApproverRule::Any).await
            }
        }
    }

    /// Asks the client's user.
    async fn ask_caller(&self, messages: &ServerMessages) -> Result<(), RpcError> {
        self.settings
            .approvals
            .check_size(&self.call)
            .map_err(|error| not_asked(&error))?;
        // Arguments that the configuration adds may be secret, so the client does not see them.
        let arguments = self.call.own.as_ref().map_or("", Json::as_text);
        let name = escaped(&self.name()).into_owned();
        let question = match (&self.text, arguments) {
            (Some(text), _) => format!("{text}\n\n{name}"),
            (None, "") => format!("May {name} be called?"),
            (None, _) => format!("May {name} be called with these arguments?"),
        };
        let more = self.call.more.as_ref().map_or("", Json::as_text);
        let mut text = question;
        for part in [arguments, more]
            .into_iter()
            .filter(|part| !part.is_empty())
        {
            text = format!("{text}\n\n{}", escaped(part));
        }
        // The form has no fields: accepting is the answer (2026-07-28 client/elicitation, Response
        // Actions).
        let schema = Json::literal(r#"{"type":"object","properties":{}}"#);
        let params = ObjectBuilder::new()
            .string("message", &text)
            .member("requestedSchema", &schema)
            .finish();
        let (answer, answered) = oneshot::channel();
        let limit = self.settings.input_timeout;
        let request = ServerRequest {
            method: Method::Elicit,
            params: Some(params),
            trace: self.context.trace.clone(),
            answer,
            notices: None,
            deadline: Instant::now() + limit,
        };
        self.record("asked", CLIENT)?;
        messages.send(ServerMessage::Request(request)).await;
        let answer = timeout(limit, answered).await.ok().and_then(Result::ok);
        let action = answer
            .filter(|answer| !answer.is_error())
            .and_then(|answer| {
                let body = answer.body();
                // Two answers are none.
                let [action] = body.find_distinct(&["action"]).ok()?;
                Some(body.slice(action?))
            });
        if action
            .as_ref()
            .is_some_and(|action| action.is_str("accept"))
        {
            return self.record("approved", CLIENT);
        }
        self.record("refused", CLIENT)?;
        Err(not_approved(
            "the client's user has not approved this call; it was not carried out",
            None,
            "refused",
        ))
    }

    /// Asks operators, and waits as long as clients usually wait.
    async fn ask_approvers(&self, approver: ApproverRule) -> Result<String, RpcError> {
        let client = self.identity().map_or_else(
            || Arc::from("a local client"),
            |identity| Arc::clone(&identity.name),
        );
        let text = self
            .text
            .clone()
            .unwrap_or_else(|| format!("May {} be called?", self.name()).into());
        let question = Question {
            text,
            client,
            approver,
        };
        let mut waiting = match self
            .settings
            .approvals
            .ask(self.call.clone(), question)
            .await
        {
            Ok(Asked::Approved { id }) => return self.record("approved", &id).map(|()| id),
            Ok(Asked::Waiting(waiting)) => waiting,
            Err(error) => return Err(not_asked(&error)),
        };
        let id = waiting.id().to_owned();
        self.record("asked", &id)?;
        match timeout(self.settings.approval_wait, waiting.answer()).await {
            Ok(Ok(())) => self.record("approved", &id).map(|()| id),
            Ok(Err(NotApproved::Refused)) => {
                self.record("refused", &id)?;
                Err(not_asked(&NotAsked::Refused { id }))
            }
            Ok(Err(NotApproved::Over)) => Err(not_approved(
                "nobody has approved this call in time; it was not carried out",
                Some(&id),
                "over",
            )),
            // Clients usually give up by now.
            Err(_) => {
                let message = format!(
                    "this call needs the approval of an operator (approval {id}), and was not carried out; send the same \
                     call again once it is approved, before the gateway is restarted"
                );
                Err(not_approved(&message, Some(&id), "open"))
            }
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.call.server, self.call.tool)
    }

    fn identity(&self) -> Option<&Arc<Identity>> {
        self.context.caller.identity()
    }

    /// Writes the outcome to the audit log. The call must not run if that fails.
    fn record(&self, outcome: &'static str, id: &str) -> Result<(), RpcError> {
        if let Some(noted) = &self.context.noted {
            noted.approval.get_or_init(|| id.into());
        }
        let event = AuditEvent::Approval {
            client: self.identity().map(|identity| &**identity),
            tool: Item {
                server: &self.call.server,
                name: (&*self.call.tool).into(),
            },
            id,
            outcome,
        };
        let recorded = self.settings.record.record(&event);
        recorded.map_err(|error| not_recorded(&error))
    }
}

/// An object with the members of both; `None` if there are none.
fn with_members(own: Option<Json>, mut added: ObjectBuilder) -> Option<Json> {
    if added.is_empty() {
        return own;
    }
    let own = own.unwrap_or_else(Json::empty_object);
    Some(rewrite_object(&own, |_| true, added.finish().inner_text()))
}

fn not_asked(error: &NotAsked) -> RpcError {
    let (id, status) = match error {
        NotAsked::Refused { id } => (Some(id.as_str()), "refused"),
        NotAsked::TooMany => (None, "busy"),
        NotAsked::TooLarge { .. } => (None, "tooLarge"),
        NotAsked::Away => (None, "away"),
    };
    not_approved(&format!("{error}; it was not carried out"), id, status)
}

fn not_approved(message: &str, id: Option<&str>, status: &str) -> RpcError {
    let mut error = RpcError::new(code::NOT_APPROVED, message);
    if let Some(id) = id {
        error = error.with("approval", &Json::string(id));
    }
    error
        .with("status", &Json::string(status))
        .may_have_run(false)
}
