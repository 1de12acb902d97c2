//! OpenCode: `mcp`, in version 2 `mcp.servers`, with `command` as a list and variables in the form
//! `{env:NAME}`.

use crate::document::{Entry, Node, Value};

use super::Note;
use super::build::{
    Unit, entries, expressions, find, map_texts, renamed, replaced, servers_entry, time_limit,
    with_members,
};
use super::servers::is_reachable;

/// The servers of a file.
pub(super) fn servers(root: &Node, notes: &mut Vec<Note>) -> Entry {
    let section = find(root, "mcp");
    let nested = section.and_then(|section| find(&section.value, "servers"));
    // In version 1, a server may have the name `servers`.
    let section = nested.filter(|entry| !is_reachable(entry)).or(section);
    let mut servers = Vec::new();
    for entry in section
        .map(|section| entries(&section.value))
        .unwrap_or_default()
    {
        if is_reachable(entry) {
            servers.push(one(entry));
        } else if entry.key != "timeout" {
            notes.push(Note {
                span: entry.key_span,
                message: format!(
                    "the server `{}` is defined elsewhere and is left out",
                    entry.key
                ),
                help: "write its `command` or `url` to have it here",
            });
        }
    }
    servers_entry(section, root, servers)
}

fn one(entry: &Entry) -> Entry {
    let mut members = Vec::new();
    for member in entries(&entry.value) {
        let member = &Entry {
            value: map_texts(&member.value, &in_our_notation),
            ..member.clone()
        };
        match (member.key.as_str(), &member.value.value) {
            ("command", Value::List(words)) => {
                if let Some((program, args)) = words.split_first() {
                    members.push(Entry {
                        value: program.clone(),
                        ..renamed(member, "command")
                    });
                    members.push(replaced(member, "args", Value::List(args.to_vec())));
                }
            }
            ("environment", _) => members.push(renamed(member, "env")),
            // The time limit for connecting and listing.
            ("timeout", Value::Map(limits)) => {
                for limit in limits {
                    match limit.key.as_str() {
                        "startup" => {
                            members.extend(time_limit(limit, "startTimeout", Unit::Milliseconds));
                        }
                        "request" => {
                            members.extend(time_limit(limit, "timeout", Unit::Milliseconds));
                        }
                        _ => {}
                    }
                }
            }
            ("timeout", _) => {
                members.extend(time_limit(member, "startTimeout", Unit::Milliseconds));
            }
            ("command" | "url" | "headers" | "enabled" | "disabled" | "cwd", _) => {
                members.push(member.clone());
            }
            _ => {}
        }
    }
    with_members(entry, members)
}

/// Rewrites variables, which are empty if unset, and files in the form `{file:path}`.
fn in_our_notation(text: &str) -> String {
    let text = expressions(text, "{env:", "}", &|name| Some(format!("${{{name}:-}}")));
    expressions(&text, "{file:", "}", &|path| {
        Some(format!("${{file:{path}}}"))
    })
}
