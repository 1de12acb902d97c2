//! Calls that need approval, and the rules that require it.

use std::borrow::Cow;

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
