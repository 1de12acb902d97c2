//! Zed: `settings.json` with `context_servers`, some of which belong to extensions.

use crate::document::{Entry, Node, Value};

use super::Note;
use super::build::{entries, find, renamed, replaced, servers_entry, with_members};
use super::servers::{is_reachable, server};
use crate::client_files::client::Client;

/// The servers of a file. Servers of extensions are left out, since only Zed can start them.
pub(super) fn servers(root: &Node, notes: &mut Vec<Note>) -> Entry {
    let section = find(root, "context_servers");
    let found = section
        .map(|section| entries(&section.value))
        .unwrap_or_default();
    let mut servers = Vec::new();
    for entry in found {
        if is_reachable(entry) {
            servers.push(one(entry));
        } else {
            notes.push(Note {
                span: entry.key_span,
                message: format!(
                    "the server `{}` is of an extension of Zed and is left out",
                    entry.key
                ),
                help: "write its `command` to have it here",
            });
        }
    }
    servers_entry(section, root, servers)
}

/// A server. Its command may be a mapping with a path, arguments and variables.
fn one(entry: &Entry) -> Entry {
    let mut members = Vec::new();
    for member in entries(&entry.value) {
        match (member.key.as_str(), &member.value.value) {
            ("command", Value::Map(parts)) => {
                for part in parts {
                    match part.key.as_str() {
                        "path" => members.push(renamed(part, "command")),
                        "args" | "env" if !part.value.is_null() => members.push(part.clone()),
                        "timeout" => {
                            members.push(replaced(part, "timeout", part.value.value.clone()));
                        }
                        _ => {}
                    }
                }
            }
            ("source" | "settings", _) => {}
            _ => members.push(member.clone()),
        }
    }
    server(Client::Zed, &with_members(entry, members))
}
