//! Adding an entry to the text of a client's file, and removing it, with every other byte in its
//! place.
//!
//! A change edits the text and reads it again: it is right only if the servers are the expected
//! ones and everything else is unchanged. Other files are left to the user.

mod json;
mod toml;
mod yaml;

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use crate::client_files::{Client, Entry, Language};
use crate::document::{Entry as Member, Node, Source, Syntax, Value};
use crate::text_file::{line_end, line_start, spliced};

/// The reason why a text was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditError {
    /// A mistake in the text: its line and its description.
    Malformed(usize, String),
    /// The form of the text requires a change by hand.
    ByHand,
}

/// The text of a client's file with an entry, which replaces one of the same name. An empty text
/// yields a new file.
///
/// # Errors
///
/// The text cannot be changed.
pub fn add(client: Client, text: &str, entry: &Entry) -> Result<String, EditError> {
    let plain = text.trim_start_matches('\u{feff}');
    if plain.trim().is_empty() {
        return Ok(entry.snippet().text);
    }
    let before = parse(client, text)?;
    let path = section(client, &before);
    if find_section(&before, &path)
        .and_then(|servers| find(servers, &entry.name))
        .map(item)
        .as_ref()
        == Some(&entry.value)
    {
        return Ok(text.to_owned());
    }
    let changed = match client.language() {
        Language::Json => json::add(plain, &path, &entry.name, &entry.value),
        Language::Toml => toml::add(plain, &before, &path, &entry.name, &entry.value),
        Language::Yaml => yaml::add(plain, &before, &path, &entry.name, &entry.value),
    };
    checked(
        client,
        text,
        &before,
        changed,
        &entry.name,
        Some(&entry.value),
    )
}

/// The text of a client's file without the entry of this name.
///
/// # Errors
///
/// The text cannot be changed.
pub fn remove(client: Client, text: &str, name: &str) -> Result<String, EditError> {
    let plain = text.trim_start_matches('\u{feff}');
    let before = parse(client, text)?;
    let path = section(client, &before);
    let changed = match client.language() {
        Language::Json => json::remove(plain, &path, name),
        Language::Toml => toml::remove(plain, &path, name),
        Language::Yaml => yaml::remove(plain, &before, &path, name),
    };
    checked(client, text, &before, changed, name, None)
}

/// The entry of this name in the text of a client's file.
///
/// # Errors
///
/// The text has a mistake.
pub fn find_entry(client: Client, text: &str, name: &str) -> Result<Option<Json>, EditError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let root = parse(client, text)?;
    let servers = find_section(&root, &section(client, &root));
    Ok(servers.and_then(|servers| find(servers, name)).map(item))
}

/// The names of all entries with their values.
pub fn entries(client: Client, text: &str) -> Result<Vec<(String, Json)>, EditError> {
    let root = parse(client, text)?;
    let servers = find_section(&root, &section(client, &root));
    Ok(match servers.map(item) {
        Some(Json::Object(entries)) => entries.into_iter().collect(),
        _ => Vec::new(),
    })
}

fn parse(client: Client, text: &str) -> Result<Node, EditError> {
    let syntax = match client.language() {
        Language::Json => Syntax::Json,
        Language::Yaml => Syntax::Yaml,
        Language::Toml => Syntax::Toml,
    };
    let source = Source::new(text);
    match crate::document::parse(&source, syntax) {
        // Readers disagree about which of two values of one key counts.
        Ok(Some(root)) if matches!(root.value, Value::Map(_)) && !repeats_key(&root) => Ok(root),
        Ok(_) => Err(EditError::ByHand),
        Err(error) => Err(EditError::Malformed(
            source.position(error.span.start).line,
            error.message,
        )),
    }
}

/// Whether a mapping in the tree has a key twice.
fn repeats_key(node: &Node) -> bool {
    match &node.value {
        Value::Map(members) => {
            let mut keys = HashSet::new();
            members
                .iter()
                .any(|member| !keys.insert(member.key.as_str()) || repeats_key(&member.value))
        }
        Value::List(items) => items.iter().any(repeats_key),
        _ => false,
    }
}

/// The keys on the path to the servers.
fn section(client: Client, root: &Node) -> Vec<&'static str> {
    // Version 2 of OpenCode has the servers one level deeper.
    let nested = root.field("mcp").and_then(|mcp| mcp.field("servers"));
    let is_nested = nested.is_some_and(|servers| servers.field("type").is_none());
    if client == Client::OpenCode && is_nested {
        vec!["mcp", "servers"]
    } else {
        vec![client.section()]
    }
}

fn find_section<'n>(root: &'n Node, path: &[&str]) -> Option<&'n Node> {
    path.iter().try_fold(root, |node, key| node.field(key))
}

/// A server by its name, in a mapping or in a list of mappings with names.
fn find<'n>(servers: &'n Node, name: &str) -> Option<&'n Node> {
    match &servers.value {
        Value::Map(_) => servers.field(name),
        Value::List(items) => items.iter().find(|item| is_named(item, name)),
        _ => None,
    }
}

fn is_named(item: &Node, name: &str) -> bool {
    item.field("name")
        .is_some_and(|node| matches!(&node.value, Value::String(text) if text == name))
}

/// The changed text with the old text's byte order mark, if it reads as expected.
fn checked(
    client: Client,
    text: &str,
    before: &Node,
    changed: Option<String>,
    name: &str,
    value: Option<&Json>,
) -> Result<String, EditError> {
    let changed = changed.ok_or(EditError::ByHand)?;
    let path = section(client, before);
    let (found, others) = match parse(client, &changed) {
        Ok(after) => {
            let servers = find_section(&after, &path);
            let found = servers.and_then(|servers| find(servers, name)).map(item);
            (found, remove_server(item(&after), &path, name))
        }
        // No content is left.
        Err(_) if value.is_none() && changed.trim().is_empty() => (None, json!({})),
        Err(_) => return Err(EditError::ByHand),
    };
    if found.as_ref() != value || others != remove_server(item(before), &path, name) {
        return Err(EditError::ByHand);
    }
    let mark = if text.starts_with('\u{feff}') {
        "\u{feff}"
    } else {
        ""
    };
    Ok(format!("{mark}{changed}"))
}

/// The file without a server, and without its section if that becomes empty.
fn remove_server(mut file: Json, path: &[&str], name: &str) -> Json {
    match (&mut file, path.split_first()) {
        (Json::Object(members), None) => {
            members.shift_remove(name);
        }
        (Json::Array(items), None) => items.retain(|item| item["name"] != name),
        (Json::Object(members), Some((key, rest))) => {
            let section = members.get(*key).cloned();
            let reduced = section.map(|section| remove_server(section, rest, name));
            match reduced {
                Some(section) if ![json!({}), json!([]), Json::Null].contains(&section) => {
                    members.insert((*key).to_owned(), section);
                }
                _ => {
                    members.shift_remove(*key);
                }
            }
        }
        _ => {}
    }
    file
}

/// A tree without positions.
pub(crate) fn item(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Number(digits) => serde_json::from_str(digits).unwrap_or_else(|_| json!(digits)),
        Value::String(text) => json!(text),
        Value::List(items) => Json::Array(items.iter().map(item).collect()),
        Value::Map(members) => Json::from_iter(
            members
                .iter()
                .map(|Member { key, value, .. }| (key.clone(), item(value))),
        ),
    }
}

/// The white space at the beginning of the line.
fn indent_of(text: &str, at: usize) -> &str {
    let line = text.get(line_start(text, at)..).unwrap_or_default();
    let end = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

/// The line break that a text uses.
fn line_break(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The text with `new` at a position.
fn inserted(text: &str, at: usize, new: &str) -> String {
    let (before, after) = text.split_at(at);
    format!("{before}{new}{after}")
}

#[cfg(test)]
mod tests;
