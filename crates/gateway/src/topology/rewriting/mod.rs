//! The rewriting policy: what the configuration changes of a backend's tools besides their names, which are the naming
//! policy's (`naming`).
//!
//! Definitions are rewritten once, when a list is merged; arguments with each call. Both are splices: what the
//! configuration does not name keeps its bytes.

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

/// What is changed of one backend's tools and prompts, by the names that the backend gives them.
#[derive(Clone, Debug, Default)]
pub struct Rewriting {
    /// Other names of tools and prompts.
    pub renames: Named<String>,
    /// Members of definitions of tools: their new values; `None` removes them.
    pub definitions: Named<Vec<(DefinitionMember, Option<Json>)>>,
    /// Arguments of tools.
    pub arguments: Named<Named<ArgumentRule>>,
}

/// Values by name, in the order of the configuration.
type Named<T> = Vec<(String, T)>;

/// What is changed of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentRule {
    /// Each call has this value. Clients neither see the argument nor may send it.
    Value(Json),
    /// Calls without the argument get this value.
    Default(Json),
    /// Clients neither see the argument nor may send it.
    Hidden,
}

/// The rewriting of the tools of one backend, by original name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolRewritings(HashMap<String, Arc<ToolRewriting>>);

/// The rewriting of one tool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolRewriting {
    members: Vec<(DefinitionMember, Option<Json>)>,
    arguments: Arguments,
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

    /// Whether it keeps clients from sending some arguments of any tool.
    pub(crate) fn guard_arguments(&self) -> bool {
        self.0.values().any(|tool| tool.guards_arguments())
    }

    /// The rewriting of the tool that the backend calls `original`.
    pub(crate) fn of(&self, original: &str) -> Option<&Arc<ToolRewriting>> {
        self.0.get(original)
    }

    /// The definition that clients see of the tool that the backend calls `original`, and defines as `tool`.
    pub(crate) fn definition(&self, original: &str, tool: Arc<Json>) -> Arc<Json> {
        match self.of(original) {
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
    /// What it changes of the definition.
    pub(crate) fn changes(&self) -> Rewritten {
        let members = self.members.iter().map(|(member, _)| member.rewritten());
        members.fold(
            Rewritten::ARGUMENTS.when(!self.arguments.is_empty()),
            Rewritten::and,
        )
    }

    /// Whether it keeps clients from sending some arguments.
    pub(crate) fn guards_arguments(&self) -> bool {
        self.arguments.refuses()
    }

    /// Whether the annotations that it gives the tool say neither that it changes nothing nor that it can be called twice without
    /// harm, whatever those of the server say.
    pub(crate) fn runs_once(&self) -> bool {
        let annotations = self
            .members
            .iter()
            .find(|(member, _)| *member == DefinitionMember::Annotations);
        annotations.is_some_and(|(_, value)| !value.as_ref().is_some_and(is_repeatable))
    }

    pub(crate) fn arguments(&self) -> &Arguments {
        &self.arguments
    }
}
