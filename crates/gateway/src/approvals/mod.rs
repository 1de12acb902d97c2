//! Calls that wait for approval.
//!
//! An approval is for one call: its principal, endpoint, server, tool, arguments as written, and
//! the rules that required it. It permits one run of that call within a limited time.
//!
//! Approvals are in memory, so after a restart nothing is approved and calls ask again. With
//! replicas they are in a store that the replicas share.

mod answer;
mod table;

use std::sync::Arc;

use fanlight_canonical::identity::Principal;
use fanlight_protocol::Json;

pub use answer::{
    ApprovalLimits, Approver, NotApproved, NotAsked, NotDecided, OpenQuestion, Status,
};
pub use table::{Approvals, Asked, CommonAnswer, CommonApprovals, CommonAsked, Waiting};

/// The properties of a call that an approval is bound to. A call that differs in any of them is
/// another call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallToApprove {
    /// The caller.
    pub principal: Principal,
    /// The path of the endpoint.
    pub endpoint: Arc<str>,
    /// The server's name in the configuration.
    pub server: Box<str>,
    /// The server's own name for the tool.
    pub tool: Box<str>,
    /// The `arguments` for the server.
    pub arguments: Option<Json>,
    /// The `arguments` that the client sent, without those that the configuration adds.
    pub own: Option<Json>,
    /// An object with the other members of `params` that the server gets.
    pub more: Option<Json>,
    /// The number of the rule that requires approval.
    pub rules: u64,
}

impl CallToApprove {
    /// A copy of the call that does not keep the received message in memory.
    pub(crate) fn detached(&self) -> Self {
        let detached = |json: &Option<Json>| json.as_ref().map(Json::detached);
        let arguments = detached(&self.arguments);
        Self {
            own: if self.own == self.arguments {
                arguments.clone()
            } else {
                detached(&self.own)
            },
            arguments,
            more: detached(&self.more),
            ..self.clone()
        }
    }

    /// The bytes that an approver is shown.
    pub(crate) fn len(&self) -> usize {
        self.server.len()
            + self.tool.len()
            + [&self.arguments, &self.more]
                .into_iter()
                .flatten()
                .map(|json| json.bytes().len())
                .sum::<usize>()
    }
}

/// The question that approvers see beside the call.
#[derive(Clone, Debug)]
pub struct Question {
    /// The text of the rule.
    pub text: Arc<str>,
    /// The client's name for people.
    pub client: Arc<str>,
    /// The approvers who may answer.
    pub approver: ApproverRule,
}

/// The approvers who may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApproverRule {
    /// Every approver.
    Any,
    /// An approver who is certainly not the caller.
    Other,
}

#[cfg(test)]
mod tests;
