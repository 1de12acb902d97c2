//! A config file as a tree of values, each with its span in the text.

use crate::document::source::Span;

/// The permitted nesting of a config file. Fanlight's own format needs six levels. Not an option,
/// since it applies before options are known.
pub const MAX_DEPTH: usize = 64;

/// One value and its span.
#[derive(Debug, Clone)]
pub struct Node {
    /// The position in the text.
    pub span: Span,
    /// The value.
    pub value: Value,
}

/// A value as written: numbers keep their digits, strings are not substituted yet.
#[derive(Debug, Clone)]
pub enum Value {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number as digits.
    Number(String),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping.
    Map(Vec<Entry>),
}

/// One key with its value. Entries keep the file's order.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The key's position in the text.
    pub key_span: Span,
    /// The value of the key.
    pub value: Node,
}

impl Node {
    /// The kind of the value in messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value of a key in a mapping. A duplicate key, which is an error, yields its last value.
    pub fn field(&self, key: &str) -> Option<&Node> {
        self.entries()
            .iter()
            .rev()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// The value of a field, unless it is null.
    pub(crate) fn given_field(&self, key: &str) -> Option<&Node> {
        self.field(key).filter(|node| !node.is_null())
    }

    /// The entries of a mapping; none of anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The cost of a copy: one for each value and key, and one for every 64 bytes of text.
    pub fn weight(&self) -> usize {
        let of_text = |text: &str| 1 + text.len() / 64;
        match &self.value {
            Value::Null | Value::Bool(_) => 1,
            Value::Number(text) | Value::String(text) => of_text(text),
            Value::List(items) => 1 + items.iter().map(Node::weight).sum::<usize>(),
            Value::Map(entries) => {
                let of_entry = |entry: &Entry| of_text(&entry.key) + entry.value.weight();
                1 + entries.iter().map(of_entry).sum::<usize>()
            }
        }
    }

    /// The levels of nesting; a scalar is one.
    pub fn height(&self) -> usize {
        1 + match &self.value {
            Value::List(items) => items.iter().map(Node::height).max().unwrap_or(0),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| entry.value.height())
                .max()
                .unwrap_or(0),
            _ => 0,
        }
    }
}
