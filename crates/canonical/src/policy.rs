//! The interface between the core and the operator's policy, which decides what clients may do.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use fanlight_protocol::{Json, Method};

use crate::{CallContext, Interest};

/// The operator's policy. It is immutable; a changed configuration makes a new one.
///
/// A trait because its implementation depends on this crate.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Identifies the policy; equal for two policies that decide alike.
    fn number(&self) -> u64;

    /// The rights of a client; `None` for Fanlight itself and for operators, who may do everything.
    fn rights_of(&self, client: &CallContext) -> Option<Arc<dyn Rights>>;
}

/// The rights of a client.
///
/// A trait because its implementation depends on this crate.
pub trait Rights: fmt::Debug + Send + Sync {
    /// Identifies the rights within this process; equal for clients that the policy treats alike.
    fn number(&self) -> u64;

    /// Whether the number identifies the rights, because they are the same in all requests of the
    /// client. If not, nothing is cached under the number.
    fn is_lasting(&self) -> bool {
        true
    }

    /// Whether an item exists for the client. [`PolicyOutcome::Hidden`] if the client may use it
    /// with no arguments at all.
    fn listing(&self, item: &PolicyItem<'_>) -> Verdict;

    /// Whether an item exists for the client.
    fn shows(&self, item: &PolicyItem<'_>) -> bool {
        self.listing(item).outcome != PolicyOutcome::Hidden
    }

    /// Whether the client may be permitted to use anything of a configured server. `false` only if
    /// the client may use nothing there, whatever the server has.
    fn reaches(&self, server: &str) -> bool;

    /// Whether the client may do everything at a configured server, with any of its items and any
    /// arguments. `false` if that is uncertain.
    fn is_whole(&self, _server: &str) -> bool {
        false
    }

    /// The verdict about sending a method that Fanlight does not know to a configured server. Such
    /// a method could name anything, so rules for all actions permit it only if the client may do
    /// everything at the server.
    fn judge_sending(&self, _server: &str, _method: &str) -> Verdict {
        Verdict::without_policy(PolicyOutcome::Hidden)
    }

    /// Decides whether the client may do `action` with an item, with these arguments if it takes
    /// any.
    ///
    /// # Errors
    ///
    /// If two readers could read the arguments differently, and the decision depends on them.
    fn decide(
        &self,
        action: PolicyAction,
        item: &PolicyItem<'_>,
        arguments: Option<&Json>,
    ) -> Result<Verdict, AmbiguousArguments>;
}

/// The arguments could be read differently by two readers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AmbiguousArguments(Box<str>);

impl AmbiguousArguments {
    /// Creates the error with a message for the client.
    pub fn new(message: &str) -> Self {
        Self(message.into())
    }
}

fanlight_protocol::named! {
    /// An action of a client with an item.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum PolicyAction {
        /// The client calls a tool.
        Call = "call",
        /// The client gets a prompt.
        Get = "get",
        /// The client reads a resource, or a directory of resources.
        Read = "read",
        /// The client gets a skill.
        GetSkill = "getSkill",
        /// The client completes an argument of a prompt or template.
        Complete = "complete",
        /// The client subscribes to a resource.
        Subscribe = "subscribe",
        /// The user signs in at a server, or deposits a key for it.
        SignIn = "signIn",
        /// The client sends a method or notification that Fanlight does not know.
        Send = "send",
        /// The client sees the item in lists.
        List = "list",
    }
}

fanlight_protocol::named! {
    /// The kinds of items that policies decide about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum PolicyKind {
        /// A tool, by its name.
        Tool = "Tool",
        /// A prompt, by its name.
        Prompt = "Prompt",
        /// A resource, by its URI.
        Resource = "Resource",
        /// A template of resources, by the text of the template.
        Template = "Template",
        /// A skill, by its URI.
        Skill = "Skill",
        /// A method or notification that Fanlight does not know, by its name.
        Method = "Method",
        /// A server, by its name in the configuration.
        Server = "Server",
    }
}

impl PolicyKind {
    /// The kinds of items that belong to a server.
    pub const OF_SERVERS: [Self; 6] = [
        Self::Tool,
        Self::Prompt,
        Self::Resource,
        Self::Template,
        Self::Skill,
        Self::Method,
    ];

    /// The kind of a URI in a request: a template if it has a variable.
    pub fn from_uri(uri: &str) -> Self {
        if uri.contains('{') {
            Self::Template
        } else {
            Self::Resource
        }
    }

    /// The action of using an item of this kind.
    #[must_use]
    pub fn use_action(self) -> PolicyAction {
        match self {
            Self::Tool => PolicyAction::Call,
            Self::Prompt => PolicyAction::Get,
            Self::Resource | Self::Template => PolicyAction::Read,
            Self::Skill => PolicyAction::GetSkill,
            Self::Method => PolicyAction::Send,
            Self::Server => PolicyAction::SignIn,
        }
    }
}

/// An item that a policy decides about, always by its server's own name.
#[derive(Clone, Debug)]
pub struct PolicyItem<'a> {
    /// The kind of item.
    pub kind: PolicyKind,
    /// The server's name in the configuration.
    pub server: &'a str,
    /// The server's own name or URI for it.
    pub name: Cow<'a, str>,
    /// The item's definition; `None` if it is unknown. If the policy reads annotations, a tool
    /// without one is hidden.
    pub definition: Option<&'a Json>,
}

impl<'a> PolicyItem<'a> {
    /// A server as an item.
    pub fn from_server(server: &'a str) -> Self {
        Self {
            kind: PolicyKind::Server,
            server,
            name: server.into(),
            definition: None,
        }
    }
}

/// The subject of a policy's decision about a request that still runs, or about something that it
/// created.
#[derive(Clone, Debug)]
pub struct PolicySubject {
    /// The client's action.
    pub action: PolicyAction,
    /// The kind of the item.
    pub kind: PolicyKind,
    /// The server's name in the configuration.
    pub server: Box<str>,
    /// The server's own name or URI for it.
    pub name: Box<str>,
    /// The client's name or URI for it.
    pub visible: Box<str>,
    /// The item's definition, if Fanlight has it.
    pub definition: Option<Arc<Json>>,
    /// The arguments as the server gets them.
    pub arguments: Option<Json>,
}

impl PolicySubject {
    /// The item that the decision was about.
    pub fn item(&self) -> PolicyItem<'_> {
        let Self {
            kind,
            server,
            name,
            definition,
            ..
        } = self;
        PolicyItem {
            kind: *kind,
            server,
            name: Cow::Borrowed(name),
            definition: definition.as_deref(),
        }
    }
}

/// A policy's decision, and the policies that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub outcome: PolicyOutcome,
    /// The ids of the policies that decided, for operators alone.
    pub policies: Arc<[Arc<str>]>,
}

impl Verdict {
    /// A verdict that no policy made.
    pub fn without_policy(outcome: PolicyOutcome) -> Self {
        Self {
            outcome,
            policies: Arc::default(),
        }
    }
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOutcome {
    /// The action is permitted.
    Allowed,
    /// The action is permitted after approval.
    Asked {
        /// The person who has to approve.
        by: ApprovedBy,
        /// The operator's text for the approver.
        text: Arc<str>,
        /// Identifies the rule.
        number: u64,
    },
    /// The action is forbidden. It might be permitted with other arguments, so the item exists for
    /// the client.
    Denied,
    /// The action is forbidden, and the client is told that there is no such item.
    Hidden,
}

impl PolicyOutcome {
    /// Whether the action is forbidden.
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::Denied | Self::Hidden)
    }

    /// The outcome's name for operators.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allow",
            Self::Asked { .. } => "ask",
            Self::Denied | Self::Hidden => "deny",
        }
    }
}

/// Checks definitions as servers list them, and servers' instructions.
///
/// A trait because its implementation depends on this crate.
pub trait DefinitionGuard: fmt::Debug + Send + Sync {
    /// Identifies the guard; equal for two guards that decide alike.
    fn number(&self) -> u64;

    /// Whether it can withhold definitions. If so, clients can use only listed items.
    fn can_withhold(&self) -> bool;

    /// Whether clients may see a definition, which is given as the server sent it. Otherwise it
    /// does not exist for them. Called whenever lists are merged.
    fn admits(&self, kind: PolicyKind, server: &str, name: &str, definition: &Json) -> bool;

    /// Whether clients may see a server's instructions.
    fn admits_instructions(&self, server: &str, instructions: &Json) -> bool;
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

/// How much of an operation has to be known for the decision whether it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Everything that is known without asking a server.
    Known,
    /// The called tool as well, for which lists are read if necessary.
    Tool,
}

/// The input of a decision whether a request, notification or listening may run, together with the
/// client's identity.
pub trait Decidable: fmt::Debug + Send + Sync {
    /// The method of the request or notification. For listening, `subscriptions/listen` in every
    /// era.
    fn method(&self) -> &Method;

    /// The called tool's definition, as clients see it in lists. `None` if no list has the tool, or
    /// [`Detail::Tool`] was not requested. While the list is unchanged, each call returns the same
    /// `Arc`.
    fn definition(&self) -> Option<&Arc<Json>> {
        None
    }

    /// The tool that the server gets. `None` if no list has it, so that only its server knows it,
    /// or if [`Detail::Tool`] was not requested.
    fn tool(&self) -> Option<Item<'_>> {
        None
    }

    /// Whether the client called the tool through a tool of Fanlight, whose definition it followed.
    fn is_indirect(&self) -> bool {
        false
    }

    /// Whether Fanlight answers the tool call itself, so that no tool of a server is concerned.
    fn is_own(&self) -> bool {
        false
    }

    /// The server that gets a tool call, even if no list has the tool; `None` if it is unknown.
    fn server(&self) -> Option<&str> {
        None
    }

    /// Whether the request is certain to be refused, by the policy or because it names nothing.
    fn is_refused(&self) -> bool {
        false
    }

    /// The policy's verdict; `None` without a policy, or if no item of a server is concerned.
    fn verdict(&self) -> Option<&Verdict> {
        None
    }

    /// The client's name of the subject: a name, a URI or the id of a task. `None` without a
    /// subject.
    fn shown_name(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The context of the request, and its parameters; `None` without a context.
    fn request(&self) -> Option<(&CallContext, Option<&Json>)> {
        None
    }

    /// The interest of a listener; `None` if this is not a request to listen.
    fn interest(&self) -> Option<&Interest> {
        None
    }
}
