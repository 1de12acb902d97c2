//! Findings about names in merged lists: configured changes, and names that clients refuse.

use std::collections::BTreeSet;

use fanlight_gateway::catalogue::{ListView, UnknownName};
use fanlight_protocol::visible::plain;

/// Configured arguments that the tools do not have.
pub(super) fn unknown_arguments(lists: &[ListView]) -> Vec<String> {
    let all = lists.iter().flat_map(|list| list.unknown_names());
    all.filter_map(describe)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

fn describe(unknown: &UnknownName) -> Option<String> {
    let UnknownName {
        backend,
        name,
        tool,
        ..
    } = unknown;
    let tool = tool.as_ref()?;
    Some(format!(
        "the tool {tool:?} of {backend:?} has no argument {name:?} among its properties"
    ))
}

/// The configured changes of a list, one line per entry.
pub(super) fn rewritten(list: &ListView) -> impl Iterator<Item = String> {
    let changed = list
        .entries()
        .filter_map(|entry| Some((entry, entry.original.as_ref()?, entry.changes())));
    changed
        .filter(|(.., changes)| !changes.is_empty())
        .map(|(entry, original, changes)| {
            let line = format!(
                "{original} of {:?} {}",
                list.backend_of(entry),
                changes.join(", ")
            );
            plain(&line, 1000)
        })
}

pub(super) fn warnings(list: &ListView) -> impl Iterator<Item = String> {
    let collisions = list.collisions().iter().map(|collision| match &collision.alias {
        Some(alias) => format!(
            "{:?} and {:?} both have {:?}; clients read the one of {:?} as {alias}",
            collision.kept, collision.other, collision.key, collision.other
        ),
        None => format!(
            "{:?} and {:?} both have {:?}; the one of {:?} cannot be called: give one of them another prefix",
            collision.kept, collision.other, collision.key, collision.other
        ),
    });
    let invalid = list.invalid().iter().map(|found| {
        let name = found.name().unwrap_or_default();
        let line = format!(
            "{name:?} of {:?} is left out: {}, and strict clients would reject the list of all servers",
            found.backend, found.reason
        );
        plain(&line, 1000)
    });
    let objections = list.name_objections().into_iter();
    collisions.chain(invalid).chain(objections.map(|objection| {
        format!("some clients will refuse tool {objection}; a shorter prefix may help")
    }))
}
