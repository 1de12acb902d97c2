//! YAML: a new entry precedes the first one of its section, on lines of its own.

use serde_json::{Value as Json, json};

use super::{
    find, find_section, indent_of, inserted, is_named, line_break, line_end, line_start, spliced,
};
use crate::client_files::item::{to_yaml, to_yaml_item};
use crate::document::{Node, Value};

/// The text with an entry added to the section at `path`, which is a mapping, or a list of named
/// mappings.
pub(super) fn add(
    text: &str,
    root: &Node,
    path: &[&str],
    name: &str,
    value: &Json,
) -> Option<String> {
    let [key] = path else { return None };
    // An entry of a list contains its name.
    let is_list =
        value.get("name") == Some(&json!(name)) && value.get("type") != Some(&json!("stdio"));
    let is_list = match root.field(key).map(|node| &node.value) {
        Some(Value::List(_)) => true,
        Some(Value::Map(_)) => false,
        _ => is_list && *key == "mcpServers",
    };
    let lines = |indent: &str| {
        let lines = if is_list {
            to_yaml_item(value, indent)
        } else {
            to_yaml(&json!({ name: value }), indent)
        };
        lines.replace('\n', line_break(text))
    };
    let Some(section) = root.entries().iter().find(|section| section.key == *key) else {
        let end = if text.ends_with('\n') {
            ""
        } else {
            line_break(text)
        };
        return Some(format!(
            "{text}{end}{key}:{}{}",
            line_break(text),
            lines("  ")
        ));
    };
    if let Some(known) = find_section(root, path).and_then(|servers| find(servers, name)) {
        let (start, end) = block(text, root, path, name, known)?;
        let indent = indent_of(text, start).to_owned();
        return Some(spliced(text, start, end, &lines(&indent)));
    }
    let key_line = line_end(text, section.key_span.end);
    let first = match &section.value.value {
        Value::Map(entries) => entries.first().map(|entry| entry.key_span.start),
        Value::List(items) => items.first().map(|item| item.span.start),
        Value::Null => None,
        _ => return None,
    };
    let Some(first) = first else {
        // The lines replace `extensions: {}` or an empty value.
        let end = line_end(text, section.value.span.end.max(section.key_span.end));
        let new = format!("{key}:{}{}", line_break(text), lines("  "));
        return Some(spliced(text, section.key_span.start, end, &new));
    };
    // Entries in braces are left to the user, since added lines would not read as expected.
    (first >= key_line).then(|| inserted(text, key_line, &lines(indent_of(text, first))))
}

/// The text without an entry.
pub(super) fn remove(text: &str, root: &Node, path: &[&str], name: &str) -> Option<String> {
    let servers = find_section(root, path)?;
    let known = find(servers, name)?;
    let (start, end) = block(text, root, path, name, known)?;
    let is_last = match &servers.value {
        Value::Map(entries) => entries.len() == 1,
        Value::List(items) => items.len() == 1,
        _ => false,
    };
    let text = spliced(text, start, end, "");
    if !is_last {
        return Some(text);
    }
    // An empty section would be null.
    let section = root
        .entries()
        .iter()
        .find(|section| Some(&section.key.as_str()) == path.first())?;
    Some(spliced(
        &text,
        line_start(&text, section.key_span.start),
        line_end(&text, section.key_span.start),
        "",
    ))
}

/// The lines of an entry.
fn block(
    text: &str,
    root: &Node,
    path: &[&str],
    name: &str,
    known: &Node,
) -> Option<(usize, usize)> {
    let start = match &find_section(root, path)?.value {
        Value::Map(entries) => {
            entries
                .iter()
                .find(|entry| entry.key == name)?
                .key_span
                .start
        }
        Value::List(items) => items.iter().find(|item| is_named(item, name))?.span.start,
        _ => return None,
    };
    Some((
        line_start(text, start),
        line_end(text, last_byte(known).max(start)),
    ))
}

/// The last byte of the last value in a node; a mapping's span extends to the following text.
fn last_byte(node: &Node) -> usize {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .map(|entry| last_byte(&entry.value).max(entry.key_span.end))
            .max(),
        Value::List(items) => items.iter().map(last_byte).max(),
        _ => None,
    }
    .unwrap_or(node.span.end)
}
