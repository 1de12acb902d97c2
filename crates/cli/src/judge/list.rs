//! The lists that servers may have.

use serde_json::Value;

use crate::judge::report::ListReport;
use crate::judge::shape::Shape;

/// A list that servers may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Tools,
    Resources,
    ResourceTemplates,
    Prompts,
}

impl List {
    const ALL: [Self; 4] = [
        Self::Tools,
        Self::Resources,
        Self::ResourceTemplates,
        Self::Prompts,
    ];

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The member with its entries.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    pub(crate) fn of_member(member: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.member() == member)
    }

    fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::ResourceTemplates => "resources",
            Self::Prompts => "prompts",
        }
    }

    /// The member that identifies an entry.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::Tools => Shape::Tool,
            Self::Resources => Shape::Resource,
            Self::ResourceTemplates => Shape::ResourceTemplate,
            Self::Prompts => Shape::Prompt,
        }
    }

    /// Empty reports for the lists that these capabilities promise.
    pub(crate) fn declared(capabilities: &Value) -> Vec<ListReport> {
        let of = |list: Self| {
            let capability = capabilities
                .get(list.capability())
                .filter(|capability| !capability.is_null())?;
            let announces_changes = capability["listChanged"].as_bool().unwrap_or_default();
            Some(ListReport {
                kind: list.member().to_owned(),
                announces_changes,
                ..ListReport::default()
            })
        };
        Self::ALL.into_iter().filter_map(of).collect()
    }
}
