//! Compares the names in the configuration with the servers' lists: names that no server lists, and
//! changes that the configuration made to an entry.

use std::collections::HashMap;

use fanlight_canonical::{Outcome, Rewritten};
use fanlight_protocol::json::Json;

use super::ListKind;
use super::snapshot::{Entry, Snapshot, UnknownName};
use crate::merge::Contribution;
use crate::topology::{Argument, ArgumentRule, Member, ToolRewriting};

/// The entries of a server's list that the configuration mentions, by name.
pub(super) fn mentioned(
    kind: ListKind,
    member: &Member,
    list: &Contribution,
) -> HashMap<String, Json> {
    if !kind.is_named()
        || !(member.naming.renames_any()
            || kind == ListKind::Tools && !member.rewritings.is_empty())
    {
        return HashMap::new();
    }
    let is_mentioned = |name: &str| {
        member.naming.bare_name(name) != name || member.rewritings.find(name).is_some()
    };
    let entries = kind.own_entries(&list.results).into_iter();
    entries.filter(|(name, _)| is_mentioned(name)).collect()
}

/// The names in the configuration that a server's list lacks. Empty if the list is not whole.
pub(super) fn lacking_names(
    kind: ListKind,
    member: &Member,
    list: &Contribution,
    mentioned: &HashMap<String, Json>,
) -> Vec<UnknownName> {
    if !kind.is_named() || list.outcome != Outcome::Ok {
        return Vec::new();
    }
    let unknown = |name: &str, tool: Option<&str>| UnknownName {
        backend: member.name().to_owned(),
        name: name.to_owned(),
        tool: tool.map(str::to_owned),
        may_be_prompt: false,
    };
    let is_missing = |name: &&str| !mentioned.contains_key(*name);
    let renamed = member.naming.renamed_items().into_iter().filter(is_missing);
    let mut all: Vec<_> = renamed
        .map(|name| UnknownName {
            may_be_prompt: true,
            ..unknown(name, None)
        })
        .collect();
    if kind == ListKind::Tools {
        for tool in member.rewritings.tools() {
            let Some(rewriting) = member.rewritings.find(tool) else {
                continue;
            };
            match mentioned.get(tool) {
                None if all.iter().any(|other| other.name == tool) => {}
                None => all.push(unknown(tool, None)),
                Some(definition) => {
                    let arguments = missing_arguments(rewriting, definition);
                    all.extend(arguments.map(|argument| unknown(argument, Some(tool))));
                }
            }
        }
    }
    all
}

/// The configured arguments of a tool that are not properties of its input schema.
fn missing_arguments<'a>(
    rewriting: &'a ToolRewriting,
    tool: &Json,
) -> impl Iterator<Item = &'a str> {
    let properties = tool
        .get("inputSchema")
        .and_then(|schema| schema.get("properties"));
    let arguments = rewriting.arguments.all.iter().map(Argument::name);
    arguments.filter(move |name| {
        properties
            .as_ref()
            .is_none_or(|all| all.peek(name).is_none())
    })
}

impl Snapshot {
    /// The names in the configuration that servers do not list.
    pub(super) fn unknown_names(&self) -> &[UnknownName] {
        &self.unknown
    }
}

impl Entry {
    /// Describes for operators what the configuration has changed of the entry; empty if nothing.
    /// Values of fixed arguments are left out, because they may be secrets.
    pub fn changes(&self) -> Vec<String> {
        let mut changes = Vec::new();
        if self.rewritten.contains(Rewritten::NAME)
            && let Some(key) = &self.key
        {
            changes.push(format!("is called {key}"));
        }
        for (member, name) in [
            (Rewritten::TITLE, "title"),
            (Rewritten::DESCRIPTION, "description"),
            (Rewritten::ANNOTATIONS, "annotations"),
        ] {
            if self.rewritten.contains(member) {
                changes.push(format!("has another {name}"));
            }
        }
        let arguments = self
            .rewriting
            .iter()
            .flat_map(|rewriting| &rewriting.arguments.all);
        changes.extend(arguments.map(|argument| match &argument.rule {
            ArgumentRule::Value(_) => format!("has a fixed argument {:?}", argument.name()),
            ArgumentRule::Default(value) => format!(
                "has {value} as default of the argument {:?}",
                argument.name()
            ),
            ArgumentRule::Hidden => format!("hides the argument {:?}", argument.name()),
        }));
        changes
    }

    /// The parameters of a `tools/call` of this entry for its server, except for the name.
    ///
    /// # Errors
    ///
    /// If they have an argument that clients may not send.
    pub fn rewrite_call(&self, params: &Json) -> Result<Json, fanlight_protocol::RpcError> {
        match &self.rewriting {
            Some(rewriting) => rewriting.arguments.apply(params, None),
            None => Ok(params.clone()),
        }
    }
}
