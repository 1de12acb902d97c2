//! Kinds of values for servers and clients: JSON, and mappings of names.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::definition::{Form, Visible};
use crate::option::{Kind, Reader};
use crate::report::mask::HIDDEN;
use crate::report::problem::quoted;
use crate::syntax::{Entry, Node, Value};

/// A mapping of names to values, in the file's order.
pub(crate) struct NameMap<K>(pub(crate) K);

impl<K: Kind> Kind for NameMap<K> {
    type Value = Vec<(String, K::Value)>;

    fn form(&self) -> Form {
        Form::Map(Box::new(self.0.form()))
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        let help = "write each name as a key, with its value behind it or below";
        let entries = reader.mapping(entry, "a mapping of names", help)?;
        let mut named = Vec::with_capacity(entries.len());
        for entry in entries
            .iter()
            .filter(|entry| K::READS_NULL || !entry.value.is_null())
        {
            if entry.key.is_empty() || entry.key.chars().any(char::is_control) {
                let help = "write the name as the server lists it";
                reader.error(
                    entry.key_span,
                    "this name is empty, or holds a control character",
                    help,
                );
            }
            named.extend(
                self.0
                    .read(reader, entry)
                    .map(|value| (entry.key.clone(), value)),
            );
        }
        Some(named)
    }

    fn show(&self, value: &Self::Value) -> Json {
        value
            .iter()
            .map(|(name, value)| (name.clone(), self.0.show(value)))
            .collect::<Map<_, _>>()
            .into()
    }
}

/// A JSON value as text, with the file's digits of numbers and order of members. Null is a value.
pub(crate) struct JsonText {
    /// The permitted types by their names in JSON Schema; empty for all.
    pub(crate) types: &'static [&'static str],
    pub(crate) visible: Visible,
}

impl Kind for JsonText {
    type Value = Option<String>;
    const READS_NULL: bool = true;

    fn form(&self) -> Form {
        Form::Json(self.types, self.visible)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        if !self.types.is_empty() && !self.types.contains(&type_of(&entry.value)) {
            let types = self.types.join(" or ");
            reader.wrong_type(
                &quoted(&entry.key),
                &entry.value,
                &types,
                "null removes what the server has",
            );
            return None;
        }
        let mut text = String::new();
        write(reader, &quoted(&entry.key), &entry.value, &mut text)?;
        Some(Some(text))
    }

    fn show(&self, value: &Self::Value) -> Json {
        match value {
            Some(_) if self.visible != Visible::All => json!(HIDDEN),
            // The text was made by this module.
            Some(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            None => Json::Null,
        }
    }
}

/// The type of a value by its name in JSON Schema.
fn type_of(node: &Node) -> &'static str {
    match node.value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    }
}

/// Writes a value as JSON; `None` after reporting a problem. The file's depth limit also bounds the
/// value.
fn write(reader: &mut Reader<'_>, what: &str, node: &Node, out: &mut String) -> Option<()> {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(digits) => match serde_json::from_str::<Json>(digits) {
            Ok(Json::Number(_)) => out.push_str(digits),
            _ => {
                let help = "write digits, with a point or an exponent if needed; or put it in quotes for a text";
                reader.error(
                    node.span,
                    format!("{} is not a number in JSON", quoted(digits)),
                    help,
                );
                return None;
            }
        },
        Value::String(_) => push_quoted(&reader.string(what, node)?.value, out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write(reader, what, item, out)?;
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (index, entry) in entries.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                push_quoted(&entry.key, out);
                out.push(':');
                write(reader, &quoted(&entry.key), &entry.value, out)?;
            }
            out.push('}');
        }
    }
    Some(())
}

fn push_quoted(text: &str, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{}", json!(text));
}
