//! What a client asks its user for: `inputs` of VS Code.

use crate::document::{Node, Value};

use super::build::{find, text};

/// A value that a client asks its user for, written `${input:id}` where it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Its name.
    pub id: String,
    /// What the user is asked.
    pub description: String,
    /// Whether what is typed is hidden.
    pub is_secret: bool,
    /// The value if the user gives none.
    pub default: Option<String>,
    /// The values that there are; empty for any.
    pub options: Vec<String>,
}

impl Input {
    /// An input that the file does not describe.
    #[must_use]
    pub fn undescribed(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            description: id.to_owned(),
            is_secret: true,
            default: None,
            options: Vec::new(),
        }
    }

    /// The environment variable that its value is taken from: `INPUT_` and its name in capitals.
    #[must_use]
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
        // An option may have a label beside its value.
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
