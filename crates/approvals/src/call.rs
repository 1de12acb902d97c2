//! The call that an approval is for, and what is asked about it.

use std::sync::Arc;

use fanlight_identity::Principal;
use fanlight_protocol::Json;

/// A call, as far as an approval is bound to it: a call that differs in any of this is another.
#[derive(Clone, Debug, PartialEq)]
pub struct CallToApprove {
    /// Whose call it is.
    pub principal: Principal,
    /// The path of the endpoint.
    pub endpoint: Arc<str>,
    /// The name that the configuration gives the server.
    pub server: Box<str>,
    /// The server's own name for the tool.
    pub tool: Box<str>,
    /// `arguments` as the server is going to get them.
    pub arguments: Option<Json>,
    /// `arguments` as the client has sent them, without what the configuration adds.
    pub own: Option<Json>,
    /// The number of the rule by which approval is needed.
    pub rules: u64,
}

impl CallToApprove {
    /// The same without the messages that its arguments are parts of.
    pub(crate) fn detached(&self) -> Self {
        let detached = |json: &Option<Json>| json.as_ref().map(Json::detached);
        Self {
            arguments: detached(&self.arguments),
            own: detached(&self.own),
            ..self.clone()
        }
    }

    /// Bytes of what an approver is shown.
    pub(crate) fn len(&self) -> usize {
        self.server.len()
            + self.tool.len()
            + self.arguments.as_ref().map_or(0, |json| json.bytes().len())
    }
}

/// What approvers are told of a call, besides the call.
#[derive(Clone, Debug)]
pub struct Question {
    /// The text that the rule asks with.
    pub text: Arc<str>,
    /// The name of the client for people.
    pub client: Arc<str>,
    /// Who may answer.
    pub approver: ApproverRule,
}

/// Which approvers may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApproverRule {
    /// Every approver.
    Any,
    /// An approver who is certainly not the one who calls.
    Other,
}
