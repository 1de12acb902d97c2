//! The rewriting policy: changes of a server's tools other than their names, which belong to the
//! naming policy (`naming`).
//!
//! Definitions are rewritten once, when a list is merged; arguments with each call. Both are
//! splices: everything that the configuration does not name keeps its bytes.

mod arguments;
mod definition;

use std::collections::HashMap;
use std::sync::Arc;

use fanlight_canonical::Rewritten;
use fanlight_protocol::annotations::is_repeatable;
use fanlight_protocol::json::Json;

pub(crate) use arguments::Argument;
use arguments::Arguments;
pub use definition::DefinitionMember;

/// The changes of one server's tools and prompts, by the server's names.
#[derive(Clone, Debug, Default)]
pub struct Rewriting {
    /// New names of tools and prompts.
    pub renames: Named<String>,
    /// New values for members of tools' definitions; `None` removes a member.
    pub definitions: Named<Vec<(DefinitionMember, Option<Json>)>>,
    /// Rules for arguments of tools.
    pub arguments: Named<Named<ArgumentRule>>,
}

/// Values by name, in configuration order.
type Named<T> = Vec<(String, T)>;

/// The change of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentRule {
    /// Each call gets this value. Clients neither see the argument nor may send it.
    Value(Json),
    /// Calls without the argument get this value.
    Default(Json),
    /// Clients neither see the argument nor may send it.
    Hidden,
}

/// The rewriting of one server's tools, by original name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolRewritings(HashMap<String, Arc<ToolRewriting>>);

/// The rewriting of one tool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolRewriting {
    members: Vec<(DefinitionMember, Option<Json>)>,
    pub(crate) arguments: Arguments,
}

impl ToolRewritings {
    pub(super) fn new(settings: &Rewriting) -> Self {
        let mut tools: HashMap<String, ToolRewriting> = HashMap::new();
        for (tool, members) in &settings.definitions {
            tools
                .entry(tool.clone())
                .or_default()
                .members
                .clone_from(members);
        }
        for (tool, arguments) in &settings.arguments {
            tools.entry(tool.clone()).or_default().arguments = Arguments::new(arguments);
        }
        Self(
            tools
                .into_iter()
                .map(|(name, tool)| (name, Arc::new(tool)))
                .collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether clients may not send some arguments of any tool.
    pub(crate) fn guard_arguments(&self) -> bool {
        self.0.values().any(|tool| tool.guards_arguments())
    }

    /// The rewriting of the tool that the server calls `original`.
    pub(crate) fn find(&self, original: &str) -> Option<&Arc<ToolRewriting>> {
        self.0.get(original)
    }

    /// The clients' definition of the tool that the server calls `original` and defines as `tool`.
    pub(crate) fn definition(&self, original: &str, tool: Arc<Json>) -> Arc<Json> {
        match self.find(original) {
            Some(rewriting) => Arc::new(rewriting.definition(&tool)),
            None => tool,
        }
    }

    /// The tools with a rewriting, in alphabetical order.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let mut tools: Vec<_> = self.0.keys().map(String::as_str).collect();
        tools.sort_unstable();
        tools
    }
}

impl ToolRewriting {
    /// The kinds of changes that it makes to the definition.
    pub(crate) fn changes(&self) -> Rewritten {
        let members = self.members.iter().map(|(member, _)| member.rewritten());
        members.fold(
            Rewritten::ARGUMENTS.when(!self.arguments.is_empty()),
            Rewritten::union,
        )
    }

    /// Whether clients may not send some arguments.
    pub(crate) fn guards_arguments(&self) -> bool {
        self.arguments.refuses()
    }

    /// Whether a call must not be repeated: the configured annotations call the tool neither
    /// read-only nor idempotent, whatever the server's annotations say.
    pub(crate) fn runs_once(&self) -> bool {
        let annotations = self
            .members
            .iter()
            .find(|(member, _)| *member == DefinitionMember::Annotations);
        annotations.is_some_and(|(_, value)| !value.as_ref().is_some_and(is_repeatable))
    }
}
