//! Servers from package descriptions: `server.json` of the MCP registry.

mod server_json;

use serde_json::Value as Json;

use crate::document::{Node, Value};
pub use server_json::server_json;

/// A package's server in the notation of Fanlight's own file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackagedServer {
    /// The name.
    pub name: String,
    /// The entry in `mcpServers`.
    pub value: Json,
    /// The variables in its entry, with descriptions.
    pub variables: Vec<(String, String)>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A name of letters, digits and `-`, made from the last part of a longer one.
fn short_name(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') {
            c
        } else {
            '-'
        }
    };
    let name: String = last.chars().map(plain).take(64).collect();
    let name = name.trim_matches('-');
    if name.is_empty() {
        "server".to_owned()
    } else {
        name.to_owned()
    }
}

/// The text as the name of a variable.
pub fn variable_name(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let name: String = text.chars().map(plain).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

/// `${NAME}`, or `${NAME:-default}` with a default.
fn reference(name: &str, default: Option<&str>) -> String {
    match default {
        // A brace would end the expression.
        Some(default) if !default.contains(['{', '}']) => format!("${{{name}:-{default}}}"),
        _ => format!("${{{name}}}"),
    }
}

/// A member of a mapping as text, also if it is a number or boolean.
fn text<'n>(node: &'n Node, key: &str) -> Option<std::borrow::Cow<'n, str>> {
    match &node.field(key)?.value {
        Value::String(text) | Value::Number(text) => Some(text.into()),
        Value::Bool(flag) => Some(flag.to_string().into()),
        _ => None,
    }
}

/// The items of a list.
fn items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    match node.field(key).map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn is_true(node: &Node, key: &str) -> bool {
    matches!(
        node.field(key).map(|node| &node.value),
        Some(Value::Bool(true))
    )
}

#[cfg(test)]
mod tests;
