//! Goose: `config.yaml` with `extensions`, some of which are built in.

use crate::document::{Entry, Node, Value};

use super::build::{
    Unit, braced, entries, find, map_texts, renamed, replaced, servers_entry, time_limit,
    with_members,
};
use super::servers::says;

/// The extensions that are MCP servers, without Goose's own parts.
pub(super) fn servers(root: &Node) -> Entry {
    let section = find(root, "extensions");
    let found = section
        .map(|section| entries(&section.value))
        .unwrap_or_default();
    let is_server = |entry: &&Entry| {
        ["stdio", "sse", "streamable_http"]
            .iter()
            .any(|kind| says(entry, "type", kind))
    };
    servers_entry(
        section,
        root,
        found.iter().filter(is_server).map(one).collect(),
    )
}

fn one(entry: &Entry) -> Entry {
    let mut members = Vec::new();
    for member in entries(&entry.value) {
        let member = &Entry {
            value: map_texts(&member.value, &braced),
            ..member.clone()
        };
        match (member.key.as_str(), &member.value.value) {
            (_, Value::Null) => {}
            ("cmd", _) => members.push(renamed(member, "command")),
            ("envs", _) => members.push(renamed(member, "env")),
            // Goose keeps the values in the system's keyring.
            ("env_keys", _) => members.push(renamed(member, "inheritEnv")),
            ("uri", _) => members.push(renamed(member, "url")),
            ("args" | "headers" | "enabled" | "cwd", _) => members.push(member.clone()),
            ("type", Value::String(kind)) if kind == "streamable_http" => {
                members.push(replaced(member, "type", Value::String("http".to_owned())));
            }
            ("type", _) => members.push(member.clone()),
            ("timeout", _) => members.extend(time_limit(member, "timeout", Unit::Seconds)),
            // An empty list means all tools.
            ("available_tools", Value::List(names)) if !names.is_empty() => {
                members.push(renamed(member, "includeTools"));
            }
            _ => {}
        }
    }
    let is_url = members.iter().any(|member| member.key == "url");
    // Goose writes both kinds of members into every entry.
    members.retain(|member| !is_url || !["inheritEnv", "env"].contains(&member.key.as_str()));
    with_members(entry, members)
}
