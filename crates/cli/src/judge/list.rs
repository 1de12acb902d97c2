//! The lists that servers may have: what the specification says about each.

use fanlight_gateway::catalogue::ListKind;
use serde_json::Value;

use crate::judge::report::ListReport;
use crate::judge::shape::Shape;

/// The list with this member.
pub(crate) fn find_list(member: &str) -> Option<ListKind> {
    ListKind::ALL
        .into_iter()
        .find(|list| list.member() == member)
}

/// The capability that promises a list.
fn capability(list: ListKind) -> Option<&'static str> {
    match list {
        ListKind::Tools => Some("tools"),
        ListKind::Resources | ListKind::ResourceTemplates => Some("resources"),
        ListKind::Prompts => Some("prompts"),
        ListKind::Skills => None,
    }
}

/// The shape of a list's entries.
pub(crate) fn shape(list: ListKind) -> Shape {
    match list {
        ListKind::Tools => Shape::Tool,
        ListKind::Resources | ListKind::Skills => Shape::Resource,
        ListKind::ResourceTemplates => Shape::ResourceTemplate,
        ListKind::Prompts => Shape::Prompt,
    }
}

/// Empty reports for the lists that these capabilities promise.
pub(crate) fn declared_lists(capabilities: &Value) -> Vec<ListReport> {
    let of = |list: ListKind| {
        let capability = capabilities
            .get(capability(list)?)
            .filter(|capability| !capability.is_null())?;
        Some(ListReport {
            kind: list.member().to_owned(),
            announces_changes: capability["listChanged"].as_bool().unwrap_or_default(),
            ..ListReport::default()
        })
    };
    ListKind::ALL.into_iter().filter_map(of).collect()
}
