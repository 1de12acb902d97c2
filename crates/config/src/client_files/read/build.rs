//! Building entries in Fanlight's notation from a client's entries.

use crate::document::{Entry, Node, Span, Value};

/// The entry `mcpServers` with these servers, at the position of the client's entry.
pub(super) fn servers_entry(section: Option<&Entry>, root: &Node, servers: Vec<Entry>) -> Entry {
    let start = Span::new(root.span.start, root.span.start);
    let (key_span, span) =
        section.map_or((start, start), |entry| (entry.key_span, entry.value.span));
    Entry {
        key: "mcpServers".to_owned(),
        key_span,
        value: Node {
            span,
            value: Value::Map(servers),
        },
    }
}

/// The entry of a key; the last one of a duplicate key.
pub(super) fn find<'n>(node: &'n Node, key: &str) -> Option<&'n Entry> {
    node.entries().iter().rev().find(|entry| entry.key == key)
}

/// The text of a string.
pub(super) fn text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A server with other members.
pub(super) fn with_members(server: &Entry, members: Vec<Entry>) -> Entry {
    Entry {
        value: Node {
            span: server.value.span,
            value: Value::Map(members),
        },
        ..server.clone()
    }
}

/// An entry under another key.
pub(super) fn rename_entry(entry: &Entry, key: &str) -> Entry {
    Entry {
        key: key.to_owned(),
        ..entry.clone()
    }
}

/// An entry with another value at the old value's position.
pub(super) fn replace_value(entry: &Entry, key: &str, value: Value) -> Entry {
    Entry {
        key: key.to_owned(),
        key_span: entry.key_span,
        value: Node {
            span: entry.value.span,
            value,
        },
    }
}

/// A time limit in Fanlight's notation, and whether the unit is a guess; `None` if it is zero. `unit`
/// is the unit of plain numbers.
pub(super) fn time_limit(value: &Value, unit: Unit) -> Option<(Value, bool)> {
    let (Value::Number(digits) | Value::String(digits)) = value else {
        return Some((value.clone(), false));
    };
    let Ok(amount) = digits.parse::<f64>() else {
        return Some((value.clone(), false));
    };
    let is_guess = unit == Unit::Either && amount >= 1000.0;
    let text = match unit {
        Unit::Nanoseconds => format!("{}ms", amount / 1e6),
        Unit::Milliseconds => format!("{digits}ms"),
        Unit::Either if is_guess => format!("{digits}ms"),
        Unit::Seconds | Unit::Either => format!("{digits}s"),
    };
    (amount > 0.0).then_some((Value::String(text), is_guess))
}

/// The unit of a plain number in a time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    Nanoseconds,
    /// Undocumented: seconds below a thousand, otherwise milliseconds.
    Either,
}

/// Whether a key is a comment, since JSON has none: `_comment`, `//`, `#`.
pub(crate) fn is_comment(key: &str) -> bool {
    ["//", "#", "_comment", "__comment", "$comment"]
        .iter()
        .any(|start| key.starts_with(start))
        || matches!(key, "comment" | "comments" | "_note" | "_notes")
}

/// A word without case, `_`, `-` and spaces.
pub(super) fn normalize_word(word: &str) -> String {
    word.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Switches a server off.
pub(super) fn switch_off(entry: &mut Entry) {
    let disabled = replace_value(entry, "disabled", Value::Bool(true));
    let mut members = entry.value.entries().to_vec();
    members.retain(|member| !["disabled", "enabled"].contains(&member.key.as_str()));
    members.push(disabled);
    *entry = with_members(entry, members);
}

/// A tree in which `change` has replaced every string.
pub(super) fn map_texts(node: &Node, change: &dyn Fn(&str) -> String) -> Node {
    let value = match &node.value {
        Value::String(text) => Value::String(change(text)),
        Value::List(items) => {
            Value::List(items.iter().map(|item| map_texts(item, change)).collect())
        }
        Value::Map(entries) => {
            let mapped = |entry: &Entry| Entry {
                value: map_texts(&entry.value, change),
                ..entry.clone()
            };
            Value::Map(entries.iter().map(mapped).collect())
        }
        other => other.clone(),
    };
    Node {
        span: node.span,
        value,
    }
}

/// Adds an entry under another key; to a mapping or list of this key, if there is one. A second
/// scalar keeps its own key, so that it is reported.
pub(super) fn put(members: &mut Vec<Entry>, key: &str, entry: &Entry) {
    let known = members.iter_mut().find(|known| known.key == key);
    match (
        known.map(|known| &mut known.value.value),
        &entry.value.value,
    ) {
        (None, _) => members.push(rename_entry(entry, key)),
        (Some(Value::Map(known)), Value::Map(more)) => known.extend(more.iter().cloned()),
        (Some(Value::List(known)), Value::List(more)) => known.extend(more.iter().cloned()),
        _ => members.push(entry.clone()),
    }
}

/// Rewrites `$NAME` as `${NAME}`, unless it is in braces already.
pub(super) fn braced(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        result.push_str(before);
        let after = from.strip_prefix('$').unwrap_or_default();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
        let (name, tail) = after.split_at(length);
        if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            result.push_str("${");
            result.push_str(name);
            result.push('}');
        } else {
            result.push('$');
            result.push_str(name);
        }
        rest = tail;
    }
    result + rest
}

/// Replaces each `open`…`close` by `change` of its trimmed content, unless that returns nothing.
pub(crate) fn expressions(
    text: &str,
    open: &str,
    close: &str,
    change: &dyn Fn(&str) -> Option<String>,
) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(open) {
        let Some((content, tail)) = after.split_once(close) else {
            break;
        };
        result.push_str(before);
        match change(content.trim()) {
            Some(changed) => result.push_str(&changed),
            None => [open, content, close]
                .iter()
                .for_each(|part| result.push_str(part)),
        }
        rest = tail;
    }
    result + rest
}
