//! Calls that need approval, and the rules that require it.

use std::borrow::Cow;
use std::sync::Arc;

use fanlight_protocol::Json;

/// A call that needs approval.
#[derive(Clone, Debug)]
pub struct NeededApproval<'a> {
    /// The rule that requires the approval.
    pub rule: ApprovalRule,
    /// The operator's text for the approver; `None` for Fanlight's own text.
    pub text: Option<Arc<str>>,
    /// The tool, by the server's own name.
    pub tool: Item<'a>,
    /// The arguments as the server gets them.
    pub arguments: Option<Json>,
    /// The arguments that the client sent, without those that the configuration adds, which may be
    /// secret.
    pub own: Option<Json>,
    /// An object with the other members of `params` that the server gets.
    pub more: Option<Json>,
}

/// A rule that requires approval of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalRule {
    /// The person who has to approve.
    pub by: ApprovedBy,
    /// Identifies the rule. An approval under another rule does not count.
    pub number: u64,
}

/// The person who has to approve a call. If several rules apply, the greatest of these counts,
/// which is the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApprovedBy {
    /// The caller, who is asked by their own client. If the client cannot ask, an operator decides.
    Caller,
    /// An operator with the approver role.
    Approver,
    /// An approver who is certainly not the caller.
    Other,
}

/// A tool, prompt or resource of a server, as rules name it. Clients' names may depend on other
/// servers; this name does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The server's name in the configuration.
    pub server: &'a str,
    /// The server's own name for it.
    pub name: Cow<'a, str>,
}
