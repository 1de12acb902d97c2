//! Decides which scopes an operation needs, and whether a client has them. Holds the rules of one
//! endpoint; does no I/O.
//!
//! Source: 2026-07-28 basic/authorization, Scope Selection Strategy and Scope Challenge Handling;
//! RFC 6749, 3.3.

use std::collections::BTreeSet;
use std::sync::Arc;

use fanlight_canonical::identity::Scopes;
use fanlight_canonical::{Decidable, Interest, Item};
use fanlight_protocol::Method;

/// Whether a rule applies to a tool; takes the server and its own name for the tool.
pub type ToolNames = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// The configured scopes of operations.
#[derive(Clone, Debug, Default)]
pub struct ScopeSettings {
    /// The scopes for reading: lists, resources, prompts, completion, subscriptions.
    pub read: Vec<String>,
    /// The scopes for everything else: tool calls, their tasks, and unknown methods.
    pub call: Vec<String>,
    /// Additional scopes for calls of some tools.
    pub tools: Vec<ToolScopes>,
}

/// Additional scopes for calls of some tools.
#[derive(Clone)]
pub struct ToolScopes {
    /// The tools.
    pub names: ToolNames,
    /// The scopes.
    pub scopes: Vec<String>,
}

/// The rules of an endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopePolicy {
    read: Vec<Arc<str>>,
    call: Vec<Arc<str>>,
    tools: Vec<ToolRule>,
}

#[derive(Clone)]
struct ToolRule {
    names: ToolNames,
    scopes: Vec<Arc<str>>,
}

fanlight_protocol::opaque!(ToolRule, ToolScopes);

/// A message's effect, as far as scopes matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// Needs only an identity.
    Free,
    /// Reads.
    Read,
    /// Listens, including to tasks, whose state may contain their results.
    ListenToTasks,
    /// May change something.
    Call,
    /// Calls this tool.
    Tool(Item<'a>),
    /// May call any tool; which one is unknown.
    AnyTool,
}

impl<'a> Operation<'a> {
    /// The operation in `subject`. The tool of a call is looked up only if the policy
    /// `depends_on_tools`.
    pub(crate) fn from_subject(subject: &'a dyn Decidable, depends_on_tools: bool) -> Self {
        match (subject.method(), subject.interest()) {
            (_, Some(interest)) => Operation::from_interest(interest),
            (Method::CallTool, None) if subject.is_own() => Self::Read,
            (Method::CallTool, None) if !depends_on_tools => Self::Call,
            (Method::CallTool, None) => match subject.tool() {
                Some(tool) => Self::Tool(tool),
                // No list contains it, so only its server knows which tool it is.
                None => Self::AnyTool,
            },
            (method, None) => Self::from_method(method),
        }
    }
}

impl Operation<'static> {
    /// The operation of listening to `interest`. Messages that a server sends to a session on its
    /// own need only the session: they belong to requests that were allowed.
    pub(crate) fn from_interest(interest: &Interest) -> Self {
        match interest {
            Interest { session: true, .. } => Self::Free,
            Interest { tasks, .. } if !tasks.is_empty() => Self::ListenToTasks,
            _ => Self::Read,
        }
    }
}

impl Operation<'_> {
    /// The operation of a request with `method`; for a tool call, without the tool.
    pub(crate) fn from_method(method: &Method) -> Self {
        match method {
            Method::Initialize | Method::Ping | Method::Discover => Self::Free,
            Method::ListTools
            | Method::ListResources
            | Method::ListResourceTemplates
            | Method::ReadResource
            | Method::ReadDirectory
            | Method::ListSkills
            | Method::GetSkill
            | Method::ListPrompts
            | Method::GetPrompt
            | Method::Complete
            | Method::SetLogLevel
            | Method::Subscribe
            | Method::Unsubscribe
            | Method::Listen => Self::Read,
            Method::GetTask
            | Method::TaskResult
            | Method::ListTasks
            | Method::UpdateTask
            | Method::CancelTask => Self::Call,
            // An unknown method may call tools. The other methods are no client requests.
            _ => Self::AnyTool,
        }
    }
}

impl ScopePolicy {
    /// The rules in `settings`.
    pub(crate) fn new(settings: &ScopeSettings) -> Self {
        let shared = |scopes: &[String]| {
            scopes
                .iter()
                .map(|scope| Arc::from(scope.as_str()))
                .collect()
        };
        let rule = |rule: &ToolScopes| ToolRule {
            names: Arc::clone(&rule.names),
            scopes: shared(&rule.scopes),
        };
        Self {
            read: shared(&settings.read),
            call: shared(&settings.call),
            tools: settings.tools.iter().map(rule).collect(),
        }
    }

    /// Whether the scopes of a call depend on its tool.
    pub(crate) fn depends_on_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// All required scopes of `operation`, each once.
    pub(crate) fn required_scopes(&self, operation: &Operation<'_>) -> Vec<Arc<str>> {
        let rules = |is_meant: &dyn Fn(&ToolRule) -> bool| {
            let rules = self.tools.iter().filter(|rule| is_meant(rule));
            self.call
                .iter()
                .chain(rules.flat_map(|rule| &rule.scopes))
                .cloned()
                .collect()
        };
        distinct(match operation {
            Operation::Free => Vec::new(),
            Operation::Read => self.read.clone(),
            Operation::ListenToTasks => self.read.iter().chain(&self.call).cloned().collect(),
            Operation::Call => self.call.clone(),
            Operation::Tool(Item { server, name }) => rules(&|rule| (rule.names)(server, name)),
            Operation::AnyTool => rules(&|_| true),
        })
    }

    /// The scopes for usual work with the endpoint, which clients ask for first.
    pub(crate) fn usual_scopes(&self) -> Vec<Arc<str>> {
        distinct(self.read.iter().chain(&self.call).cloned().collect())
    }

    /// Checks whether the scopes `held` suffice for `operation`.
    ///
    /// # Errors
    ///
    /// All required scopes, if any is missing.
    pub(crate) fn check(
        &self,
        held: &Scopes,
        operation: &Operation<'_>,
    ) -> Result<(), Vec<Arc<str>>> {
        if *held == Scopes::All {
            return Ok(());
        }
        let required = self.required_scopes(operation);
        if required.iter().all(|scope| held.contains(scope)) {
            Ok(())
        } else {
            Err(required)
        }
    }
}

fn distinct(mut scopes: Vec<Arc<str>>) -> Vec<Arc<str>> {
    let mut seen = BTreeSet::new();
    scopes.retain(|scope| seen.insert(Arc::clone(scope)));
    scopes
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::subscription::Lists;

    use super::*;

    fn list(scopes: &[&str]) -> Vec<String> {
        scopes.iter().map(|scope| (*scope).to_owned()).collect()
    }

    fn tools(prefix: &'static str, scopes: &[&str]) -> ToolScopes {
        ToolScopes {
            names: Arc::new(move |server, name| format!("{server}/{name}").starts_with(prefix)),
            scopes: list(scopes),
        }
    }

    fn tool<'a>(server: &'a str, name: &'a str) -> Operation<'a> {
        Operation::Tool(Item {
            server,
            name: name.into(),
        })
    }

    fn policy() -> ScopePolicy {
        ScopePolicy::new(&ScopeSettings {
            read: list(&["mcp:read"]),
            call: list(&["mcp:call"]),
            tools: vec![
                tools("files/", &["files"]),
                tools("files/delete_", &["files", "files:delete"]),
            ],
        })
    }

    fn joined(scopes: &[Arc<str>]) -> String {
        scopes.join(" ")
    }

    #[test]
    fn operation_needs_the_scopes_of_its_method_and_tool() {
        let policy = policy();
        for (operation, scopes) in [
            (Operation::from_method(&Method::Initialize), ""),
            (Operation::from_method(&Method::Ping), ""),
            (Operation::from_method(&Method::Discover), ""),
            (Operation::from_method(&Method::ListTools), "mcp:read"),
            (Operation::from_method(&Method::ReadResource), "mcp:read"),
            (Operation::from_method(&Method::GetPrompt), "mcp:read"),
            (Operation::from_method(&Method::Complete), "mcp:read"),
            (Operation::from_method(&Method::Listen), "mcp:read"),
            (Operation::from_method(&Method::TaskResult), "mcp:call"),
            (
                Operation::from_interest(&Interest {
                    session: true,
                    ..Interest::default()
                }),
                "",
            ),
            (
                Operation::from_interest(&Interest {
                    lists: Lists::ALL,
                    ..Interest::default()
                }),
                "mcp:read",
            ),
            (
                Operation::from_interest(&Interest {
                    tasks: ["t".into()].into(),
                    ..Interest::default()
                }),
                "mcp:read mcp:call",
            ),
            (Operation::from_method(&Method::SetLogLevel), "mcp:read"),
            (Operation::from_method(&Method::CancelTask), "mcp:call"),
            (Operation::from_method(&Method::UpdateTask), "mcp:call"),
            (
                Operation::from_method(&Method::Other("tools/callLater".into())),
                "mcp:call files files:delete",
            ),
            (
                Operation::from_method(&Method::Other("things/list".into())),
                "mcp:call files files:delete",
            ),
            (
                Operation::from_method(&Method::Elicit),
                "mcp:call files files:delete",
            ),
            (tool("git", "log"), "mcp:call"),
            (tool("files", "read"), "mcp:call files"),
            (tool("files", "delete_all"), "mcp:call files files:delete"),
            (Operation::AnyTool, "mcp:call files files:delete"),
        ] {
            assert_eq!(
                joined(&policy.required_scopes(&operation)),
                scopes,
                "{operation:?}"
            );
        }
        assert_eq!(joined(&policy.usual_scopes()), "mcp:read mcp:call");
    }

    #[test]
    fn method_of_every_known_name_is_free_only_if_it_opens_a_connection() {
        let free: Vec<_> = Method::KNOWN
            .iter()
            .filter(|name| Operation::from_method(&Method::from_name(name)) == Operation::Free)
            .collect();
        assert_eq!(free, [&"initialize", &"ping", &"server/discover"]);
        for name in Method::KNOWN
            .iter()
            .filter(|name| Operation::from_method(&Method::from_name(name)) == Operation::Read)
        {
            let method = Method::from_name(name);
            // Methods unknown to `changes_nothing` belong to extensions, and read.
            let reads = ["resources/directory/read", "skills/list", "skills/get"];
            assert!(method.changes_nothing() || reads.contains(name), "{name}");
        }
    }

    #[test]
    fn all_required_scopes_must_be_held() {
        let policy = policy();
        let delete = || tool("files", "delete_all");
        for (held, operation, missing) in [
            ("mcp:read", Operation::Read, None),
            ("mcp:read", Operation::Call, Some("mcp:call")),
            ("mcp:call", Operation::Read, Some("mcp:read")),
            ("", Operation::Free, None),
            ("", Operation::Read, Some("mcp:read")),
            ("MCP:READ", Operation::Read, Some("mcp:read")),
            (
                "mcp:call files",
                delete(),
                Some("mcp:call files files:delete"),
            ),
            (
                "files:delete files",
                delete(),
                Some("mcp:call files files:delete"),
            ),
            ("mcp:call files files:delete", delete(), None),
        ] {
            let outcome = policy.check(&Scopes::parse(held), &operation).err();
            assert_eq!(
                outcome.as_deref().map(joined).as_deref(),
                missing,
                "{held:?} {operation:?}"
            );
        }
        assert_eq!(policy.check(&Scopes::All, &delete()), Ok(()));
    }

    #[test]
    fn without_rules_nothing_is_needed() {
        let policy = ScopePolicy::default();
        assert_eq!(
            policy.check(&Scopes::parse(""), &Operation::AnyTool),
            Ok(())
        );
        assert!(policy.usual_scopes().is_empty() && !policy.depends_on_tools());
    }
}
