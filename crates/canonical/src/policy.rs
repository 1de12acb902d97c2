//! What clients may do by the operator's policy: what the core asks, and what it is told.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use fanlight_protocol::Json;

use crate::approval::ApprovedBy;
use crate::call::CallContext;

/// The operator's policy. It never changes; another configuration has another one.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Tells policies apart: equal for two that decide alike.
    fn number(&self) -> u64;

    /// What a client may do; `None` for Fanlight itself and for operators, who may do everything.
    fn rights_of(&self, client: &CallContext) -> Option<Arc<dyn Rights>>;
}

/// What a client may do.
pub trait Rights: fmt::Debug + Send + Sync {
    /// Tells rights apart within this process: equal for clients between whom the policy makes no difference.
    fn number(&self) -> u64;

    /// Whether an item exists for the client: [`PolicyOutcome::Hidden`] if there are no arguments with which the client may
    /// use it.
    fn listing(&self, item: &PolicyItem<'_>) -> Verdict;

    /// Whether an item exists for the client.
    fn shows(&self, item: &PolicyItem<'_>) -> bool {
        self.listing(item).outcome != PolicyOutcome::Hidden
    }

    /// Whether there may be anything of a server that the client may use; `false` only if there is nothing, whatever the
    /// server has. Asked of servers of the configuration alone.
    fn reaches(&self, server: &str) -> bool;

    /// Whether the client may do `action` with an item, with these arguments if it takes any.
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

/// Two readers could read the arguments differently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AmbiguousArguments(Box<str>);

impl AmbiguousArguments {
    /// With the message for the client.
    #[must_use]
    pub fn new(message: &str) -> Self {
        Self(message.into())
    }
}

/// What a client does with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyAction {
    /// It calls a tool.
    Call,
    /// It gets a prompt.
    Get,
    /// It reads a resource, or a directory of resources.
    Read,
    /// It gets a skill.
    GetSkill,
    /// It completes an argument of a prompt or template.
    Complete,
    /// It subscribes to a resource.
    Subscribe,
    /// Its user signs in at a server, or deposits a key for it.
    SignIn,
    /// It is shown the item in lists.
    List,
}

impl PolicyAction {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Call,
        Self::Get,
        Self::Read,
        Self::GetSkill,
        Self::Complete,
        Self::Subscribe,
        Self::SignIn,
        Self::List,
    ];

    /// Its name in policies.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Get => "get",
            Self::Read => "read",
            Self::GetSkill => "getSkill",
            Self::Complete => "complete",
            Self::Subscribe => "subscribe",
            Self::SignIn => "signIn",
            Self::List => "list",
        }
    }
}

/// The kinds of what servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// A tool, by its name.
    Tool,
    /// A prompt, by its name.
    Prompt,
    /// A resource, by its URI.
    Resource,
    /// A template of resources, by the text of the template.
    Template,
    /// A skill, by its URI.
    Skill,
    /// A server, by its name in the configuration.
    Server,
}

impl PolicyKind {
    /// Those of what a server has.
    pub const OF_SERVERS: [Self; 5] = [
        Self::Tool,
        Self::Prompt,
        Self::Resource,
        Self::Template,
        Self::Skill,
    ];

    /// What a URI is that a request names: a template if anything in it is to be filled in.
    #[must_use]
    pub fn of_uri(uri: &str) -> Self {
        if uri.contains('{') {
            Self::Template
        } else {
            Self::Resource
        }
    }

    /// What using an item of this kind is.
    #[must_use]
    pub fn use_action(self) -> PolicyAction {
        match self {
            Self::Tool => PolicyAction::Call,
            Self::Prompt => PolicyAction::Get,
            Self::Resource | Self::Template => PolicyAction::Read,
            Self::Skill => PolicyAction::GetSkill,
            Self::Server => PolicyAction::SignIn,
        }
    }

    /// Its name in policies.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "Tool",
            Self::Prompt => "Prompt",
            Self::Resource => "Resource",
            Self::Template => "Template",
            Self::Skill => "Skill",
            Self::Server => "Server",
        }
    }
}

/// An item that a policy decides about: always what its server itself calls it.
#[derive(Clone, Debug)]
pub struct PolicyItem<'a> {
    /// What it is.
    pub kind: PolicyKind,
    /// The name that the configuration gives the server.
    pub server: &'a str,
    /// The server's own name or URI for it.
    pub name: Cow<'a, str>,
    /// Its definition; `None` if that is not known. A tool without one is not shown where the policy reads annotations.
    pub definition: Option<&'a Json>,
}

impl<'a> PolicyItem<'a> {
    /// A server itself.
    #[must_use]
    pub fn of_server(server: &'a str) -> Self {
        Self {
            kind: PolicyKind::Server,
            server,
            name: server.into(),
            definition: None,
        }
    }
}

/// What a policy has decided about when a request began that still runs, or has left something behind.
#[derive(Clone, Debug)]
pub struct PolicySubject {
    /// What the client does.
    pub action: PolicyAction,
    /// What it is done with.
    pub kind: PolicyKind,
    /// The name that the configuration gives the server.
    pub server: Box<str>,
    /// The server's own name or URI for it.
    pub name: Box<str>,
    /// What the client calls it.
    pub visible: Box<str>,
    /// Its definition, if that is known.
    pub definition: Option<Arc<Json>>,
    /// The arguments as the server gets them.
    pub arguments: Option<Json>,
}

impl PolicySubject {
    /// What it is done with.
    #[must_use]
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

/// What was decided, and by which policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What was decided.
    pub outcome: PolicyOutcome,
    /// The ids of the policies that decided it, for operators alone.
    pub policies: Arc<[Arc<str>]>,
}

impl Verdict {
    /// That of no policy.
    #[must_use]
    pub fn of_nothing(outcome: PolicyOutcome) -> Self {
        Self {
            outcome,
            policies: Arc::default(),
        }
    }
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOutcome {
    /// It may be done.
    Allowed,
    /// It may be done if somebody agrees.
    Asked {
        /// Who.
        by: ApprovedBy,
        /// What they are asked, in the operator's words.
        text: Arc<str>,
        /// Tells this rule from those before and after it.
        number: u64,
    },
    /// It must not be done. With other arguments it might: the item exists for the client.
    Denied,
    /// It must not be done, and the client is told that there is no such thing.
    Hidden,
}

impl PolicyOutcome {
    /// Whether it must not be done.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::Denied | Self::Hidden)
    }

    /// Its name for operators.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allow",
            Self::Asked { .. } => "ask",
            Self::Denied | Self::Hidden => "deny",
        }
    }
}
