//! Continue: YAML with a list `mcpServers` and secrets in the form `${{ secrets.NAME }}`.

use crate::document::{Entry, Node, Value};

use super::Note;
use super::build::{
    Unit, entries, expressions, extend, find, map_texts, renamed, replaced, servers_entry, text,
    time_limit,
};
use super::servers::{is_reachable, server};
use crate::client_files::client::Client;

/// The servers of a file.
pub(super) fn servers(root: &Node, notes: &mut Vec<Note>) -> Entry {
    let section = find(root, "mcpServers");
    let items = match section.map(|section| &section.value.value) {
        Some(Value::List(items)) => items.as_slice(),
        // Continue's folder may contain other clients' files.
        Some(Value::Map(_)) => return super::servers::servers(Client::Continue, root),
        _ => &[],
    };
    let mut servers = Vec::new();
    for item in items {
        let name = find(item, "name")
            .and_then(|entry| text(&entry.value))
            .unwrap_or_default();
        let entry = Entry {
            key: name.to_owned(),
            key_span: item.span,
            value: item.clone(),
        };
        if is_reachable(&entry) {
            servers.push(one(&entry));
        } else {
            notes.push(Note {
                span: item.span,
                message: "this server is a block of Continue's hub and is left out".to_owned(),
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
        match member.key.as_str() {
            "name" => {}
            "connectionTimeout" => {
                members.extend(time_limit(member, "startTimeout", Unit::Milliseconds));
            }
            "apiKey" => {
                let token =
                    text(&member.value).map(|token| Value::String(format!("Bearer {token}")));
                let header = token.map(|token| replaced(member, "Authorization", token));
                extend(
                    &mut members,
                    "headers",
                    member,
                    header.into_iter().collect(),
                );
            }
            "requestOptions" => {
                if let Some(headers) = find(&member.value, "headers") {
                    extend(
                        &mut members,
                        "headers",
                        headers,
                        entries(&headers.value).to_vec(),
                    );
                }
                let timeout = find(&member.value, "timeout");
                members.extend(
                    timeout.and_then(|limit| time_limit(limit, "timeout", Unit::Milliseconds)),
                );
            }
            _ => members.push(renamed(member, &member.key)),
        }
    }
    server(
        Client::Continue,
        &super::build::with_members(entry, members),
    )
}

/// Rewrites `${{ secrets.NAME }}` and `${{ inputs.NAME }}` as variables.
fn in_our_notation(text: &str) -> String {
    expressions(text, "${{", "}}", &|content| {
        let (_, name) = content.rsplit_once('.')?;
        Some(format!("${{{name}}}"))
    })
}
