//! Calls that somebody has to agree to, and what such rules are about.

use std::borrow::Cow;
use std::sync::Arc;

use fanlight_protocol::Json;

/// A call that somebody has to agree to.
#[derive(Clone, Debug)]
pub struct NeededApproval<'a> {
    /// By which rule.
    pub rule: ApprovalRule,
    /// What the operator wants the approver to be asked; `None` for Fanlight's own words.
    pub text: Option<Arc<str>>,
    /// The tool, as its server gets the name.
    pub tool: Item<'a>,
    /// The arguments as the server gets them.
    pub arguments: Option<Json>,
    /// Those that the client has sent: without what the configuration adds, which may be secret.
    pub own: Option<Json>,
}

/// A rule by which somebody has to agree to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalRule {
    /// Who.
    pub by: ApprovedBy,
    /// Tells this rule from those before and after it: what was agreed to by another rule is not agreed to.
    pub number: u64,
}

/// Who agrees to a call: where several rules want somebody asked, the last of these counts, who is the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApprovedBy {
    /// The one who calls, whom their client asks; a client that cannot ask leaves it to operators.
    Caller,
    /// An operator with the role for that.
    Approver,
    /// Such an operator who is certainly another than the one who calls.
    Other,
}

/// Something that a server has: what rules are about. Names that clients see may depend on the other servers; this does
/// not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The name that the configuration gives the server.
    pub server: &'a str,
    /// The server's own name for it.
    pub name: Cow<'a, str>,
}
