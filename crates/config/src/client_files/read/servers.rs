//! The notation of most clients: `mcpServers`, or `servers` of VS Code, with `command` or `url`.

use crate::document::{Entry, Node, Value};

use super::build::{
    Unit, entries, find, map_texts, renamed, replaced, servers_entry, text, time_limit,
    with_members,
};
use crate::client_files::client::Client;

/// The servers of a file.
pub(super) fn servers(client: Client, root: &Node) -> Entry {
    let section = find(root, client.section())
        .or_else(|| find(root, "mcpServers"))
        .or_else(|| find(root, "servers"));
    match section {
        // A value that is no mapping is kept, to be reported.
        Some(section) if !matches!(section.value.value, Value::Map(_)) => {
            renamed(section, "mcpServers")
        }
        _ => {
            let found = section
                .map(|section| entries(&section.value))
                .unwrap_or_default();
            servers_entry(
                section,
                root,
                found.iter().map(|entry| server(client, entry)).collect(),
            )
        }
    }
}

/// One server. A value that is no mapping is kept, to be reported.
pub(super) fn server(client: Client, entry: &Entry) -> Entry {
    let Value::Map(members) = &entry.value.value else {
        return entry.clone();
    };
    let unit = match client {
        Client::Cline | Client::Roo => Unit::Seconds,
        Client::ClaudeCode | Client::Gemini | Client::LmStudio => Unit::Milliseconds,
        _ => Unit::Either,
    };
    let has_type = members.iter().any(|member| member.key == "type");
    let member = |member: &Entry| -> Option<Entry> {
        let member = Entry {
            value: map_texts(&member.value, &in_our_notation),
            ..member.clone()
        };
        match (member.key.as_str(), &member.value.value) {
            ("timeout", _) => time_limit(&member, "timeout", unit),
            // The command already shows that the server is local.
            ("type", Value::String(word)) if word == "local" => None,
            ("transportType" | "transport", Value::String(_)) if !has_type => {
                Some(renamed(&member, "type"))
            }
            ("transportType" | "transport", _) => None,
            ("tools", Value::List(_)) => Some(renamed(&member, "includeTools")),
            // The client's own confinement, in its own terms.
            ("sandbox", _) if client == Client::VsCode => None,
            ("env" | "headers", Value::Map(pairs)) => {
                // In VS Code, null unsets a variable.
                let given = pairs
                    .iter()
                    .filter(|pair| !pair.value.is_null())
                    .cloned()
                    .collect();
                Some(replaced(&member, &member.key, Value::Map(given)))
            }
            _ => Some(member),
        }
    };
    with_members(entry, members.iter().filter_map(member).collect())
}

/// Rewrites editors' variables whose names Fanlight does not accept: `${/}` and
/// `${workspaceFolder:name}`.
fn in_our_notation(text: &str) -> String {
    let text = text.replace("${/}", "/").replace("${pathSeparator}", "/");
    super::build::expressions(&text, "${workspaceFolder:", "}", &|_| {
        Some("${workspaceFolder}".to_owned())
    })
}

/// Whether an entry has a member that leads to its server.
pub(super) fn is_reachable(entry: &Entry) -> bool {
    ["command", "cmd", "url", "uri", "serverUrl", "httpUrl"]
        .iter()
        .any(|key| find(&entry.value, key).is_some())
}

/// Whether a member has this text.
pub(super) fn says(entry: &Entry, key: &str, word: &str) -> bool {
    find(&entry.value, key).and_then(|member| text(&member.value)) == Some(word)
}
