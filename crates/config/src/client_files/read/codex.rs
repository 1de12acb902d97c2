//! Codex: `config.toml` with a table `mcp_servers`.

use crate::document::{Entry, Node, Value};

use super::build::{
    Unit, entries, extend, find, renamed, replaced, servers_entry, text, time_limit, with_members,
};

/// The servers of a file.
pub(super) fn servers(root: &Node) -> Entry {
    let section = find(root, "mcp_servers").or_else(|| find(root, "mcpServers"));
    let found = section
        .map(|section| entries(&section.value))
        .unwrap_or_default();
    servers_entry(section, root, found.iter().map(server).collect())
}

fn server(entry: &Entry) -> Entry {
    let mut members: Vec<Entry> = Vec::new();
    for member in entries(&entry.value) {
        let reference = |name: &str| format!("${{{name}}}");
        match member.key.as_str() {
            "command" | "args" | "env" | "cwd" | "url" | "enabled" => members.push(member.clone()),
            "env_vars" => members.extend(inherited(member)),
            "enabled_tools" => members.push(renamed(member, "includeTools")),
            "disabled_tools" => members.push(renamed(member, "disabledTools")),
            "tool_timeout_sec" => members.extend(time_limit(member, "timeout", Unit::Seconds)),
            "startup_timeout_sec" => {
                members.extend(time_limit(member, "startTimeout", Unit::Seconds));
            }
            "startup_timeout_ms" if find(&entry.value, "startup_timeout_sec").is_none() => {
                members.extend(time_limit(member, "startTimeout", Unit::Milliseconds));
            }
            "http_headers" => extend(
                &mut members,
                "headers",
                member,
                entries(&member.value).to_vec(),
            ),
            "env_http_headers" => {
                let from_variable = |header: &Entry| {
                    let name = text(&header.value)?;
                    Some(replaced(
                        header,
                        &header.key,
                        Value::String(reference(name)),
                    ))
                };
                let headers = entries(&member.value)
                    .iter()
                    .filter_map(from_variable)
                    .collect();
                extend(&mut members, "headers", member, headers);
            }
            "bearer_token_env_var" => {
                let token = text(&member.value)
                    .map(|name| Value::String(format!("Bearer {}", reference(name))));
                let header = token.map(|token| replaced(member, "Authorization", token));
                extend(
                    &mut members,
                    "headers",
                    member,
                    header.into_iter().collect(),
                );
            }
            _ => {}
        }
    }
    with_members(entry, members)
}

/// Forwarded variables: names, or mappings with a name.
fn inherited(member: &Entry) -> Option<Entry> {
    let Value::List(items) = &member.value.value else {
        return None;
    };
    let name = |item: &Node| match item.field("name") {
        Some(name) => Some(name.clone()),
        None => text(item).map(|_| item.clone()),
    };
    Some(replaced(
        member,
        "inheritEnv",
        Value::List(items.iter().filter_map(name).collect()),
    ))
}
