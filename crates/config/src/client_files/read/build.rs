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
    entries(node).iter().rev().find(|entry| entry.key == key)
}

/// The entries of a mapping; none for another value.
pub(super) fn entries(node: &Node) -> &[Entry] {
    match &node.value {
        Value::Map(entries) => entries,
        _ => &[],
    }
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
pub(super) fn renamed(entry: &Entry, key: &str) -> Entry {
    Entry {
        key: key.to_owned(),
        ..entry.clone()
    }
}

/// An entry with another value at the old value's position.
pub(super) fn replaced(entry: &Entry, key: &str, value: Value) -> Entry {
    Entry {
        key: key.to_owned(),
        key_span: entry.key_span,
        value: Node {
            span: entry.value.span,
            value,
        },
    }
}

/// An entry of a time limit under this key. `unit` is the unit of plain numbers; limits of zero are
/// left out.
pub(super) fn time_limit(entry: &Entry, key: &str, unit: Unit) -> Option<Entry> {
    let Value::Number(digits) = &entry.value.value else {
        return Some(renamed(entry, key));
    };
    let amount: f64 = digits.parse().ok()?;
    let is_milliseconds = unit == Unit::Milliseconds || (unit == Unit::Either && amount >= 1000.0);
    let unit = if is_milliseconds { "ms" } else { "s" };
    (amount > 0.0).then(|| replaced(entry, key, Value::String(format!("{digits}{unit}"))))
}

/// The unit of a plain number in a time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    /// Undocumented: seconds below a thousand, otherwise milliseconds.
    Either,
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

/// Adds entries to the mapping `key`, which is created if it is missing.
pub(super) fn extend(members: &mut Vec<Entry>, key: &str, from: &Entry, more: Vec<Entry>) {
    if more.is_empty() {
        return;
    }
    match members
        .iter_mut()
        .find(|entry| entry.key == key)
        .map(|entry| &mut entry.value.value)
    {
        Some(Value::Map(entries)) => entries.extend(more),
        _ => members.push(replaced(from, key, Value::Map(more))),
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
