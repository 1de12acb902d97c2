//! Gemini CLI: `settings.json` with `mcpServers`. Its `url` may be SSE, and `httpUrl` is Streamable
//! HTTP. Time limits are in milliseconds, variables have the form `$NAME`, and `mcp.allowed` and
//! `mcp.excluded` select servers.

use crate::document::{Entry, Node, Value};

use super::build::{braced, entries, find, map_texts, replaced, servers_entry, text};
use super::servers::server;
use crate::client_files::client::Client;

/// The servers of a file.
pub(super) fn servers(root: &Node) -> Entry {
    let section = find(root, "mcpServers");
    let choice = find(root, "mcp").map(|entry| &entry.value);
    let names = |key: &str| -> Option<Vec<&str>> {
        match &choice.and_then(|choice| find(choice, key))?.value.value {
            Value::List(items) => Some(items.iter().filter_map(text).collect()),
            _ => None,
        }
    };
    let (allowed, excluded) = (names("allowed"), names("excluded"));
    let is_off = |name: &str| {
        allowed.as_ref().is_some_and(|names| !names.contains(&name))
            || excluded.as_ref().is_some_and(|names| names.contains(&name))
    };
    let found = section
        .map(|section| entries(&section.value))
        .unwrap_or_default();
    let one = |entry: &Entry| {
        let entry = Entry {
            value: map_texts(&entry.value, &braced),
            ..entry.clone()
        };
        let mut entry = server(Client::Gemini, &entry);
        let has_http = find(&entry.value, "httpUrl").is_some();
        let off = is_off(&entry.key).then(|| replaced(&entry, "disabled", Value::Bool(true)));
        if let Value::Map(members) = &mut entry.value.value {
            members.retain(|member| !(has_http && matches!(member.key.as_str(), "url" | "type")));
            members.extend(off);
        }
        entry
    };
    servers_entry(section, root, found.iter().map(one).collect())
}
