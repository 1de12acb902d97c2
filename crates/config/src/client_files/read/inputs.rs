//! The questions to a client's user: `inputs` of VS Code.

use crate::document::{Node, Value};

use super::build::{find, text};

/// A value that a client asks its user for; `${input:id}` refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The name.
    pub id: String,
    /// The question for the user.
    pub description: String,
    /// Whether the typed text is hidden.
    pub is_secret: bool,
    /// The value if the user enters none.
    pub default: Option<String>,
    /// The possible values; empty for any.
    pub options: Vec<String>,
}

impl Input {
    /// An input that the file does not describe.
    pub fn undescribed(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            description: id.to_owned(),
            is_secret: true,
            default: None,
            options: Vec::new(),
        }
    }

    /// The environment variable with its value: `INPUT_` and the id in capitals.
    pub fn variable(id: &str) -> String {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        };
        format!("INPUT_{}", id.chars().map(plain).collect::<String>())
    }
}

/// The inputs of a file.
pub(super) fn inputs(root: &Node) -> Vec<Input> {
    let Some(Value::List(items)) = find(root, "inputs").map(|entry| &entry.value.value) else {
        return Vec::new();
    };
    let input = |item: &Node| {
        let member = |key: &str| {
            find(item, key)
                .and_then(|entry| text(&entry.value))
                .map(str::to_owned)
        };
        let id = member("id")?;
        // An option may have a label besides its value.
        let option = |node: &Node| {
            text(node)
                .or_else(|| node.field("value").and_then(text))
                .map(str::to_owned)
        };
        let options = match find(item, "options").map(|entry| &entry.value.value) {
            Some(Value::List(options)) => options.iter().filter_map(option).collect(),
            _ => Vec::new(),
        };
        let is_secret = matches!(
            find(item, "password").map(|entry| &entry.value.value),
            Some(Value::Bool(true))
        );
        let description = member("description").unwrap_or_else(|| id.clone());
        Some(Input {
            id,
            description,
            is_secret,
            default: member("default"),
            options,
        })
    };
    items.iter().filter_map(input).collect()
}
