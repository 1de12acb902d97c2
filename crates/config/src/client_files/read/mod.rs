//! A client's file in Fanlight's own notation.
//!
//! Everything with a meaning for Fanlight is kept: commands, URLs, headers, variables, time limits,
//! filters of tools, disabled servers. Members of a server that nobody knows are kept, too, so that
//! they are reported. Settings of the client itself are left out.

mod build;
mod claude_code;
mod program;
mod recognize;
mod sections;
mod servers;

use std::path::{Path, PathBuf};

use super::client::Client;
use super::package::variable_name;
use crate::document::{Entry, Node, Span, Value};
pub(crate) use build::{expressions, is_comment};
use build::{find, text};
use program::Program;

/// Settings of Claude Desktop beside the servers.
const OF_CLIENTS: [&str; 3] = ["globalShortcut", "isUsingBuiltInNodeForMcp", "preferences"];

/// A client's file in Fanlight's own notation.
#[derive(Debug, Clone)]
pub struct ClientFile {
    /// The client, if `fanlight connect` knows it.
    pub client: Option<Client>,
    /// The name of the program that reads the file; empty for an `mcp.json` of no known program.
    pub title: &'static str,
    /// The file as a Fanlight configuration with `mcpServers`. Each value has its position in the
    /// client's file; a server may have members that only the client knows.
    pub root: Node,
    /// The questions to the client's user.
    pub inputs: Vec<Input>,
    /// The folder of the file's project; `None` for a file of all projects.
    pub project: Option<PathBuf>,
    /// Notes about omitted entries that a user may expect.
    pub notes: Vec<Note>,
}

/// A note about a file for its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The position.
    pub span: Span,
    /// The note in one line.
    pub message: String,
    /// The remedy.
    pub help: &'static str,
}

impl ClientFile {
    /// Reads the file at `path` with the tree `root`; `None` if it is in Fanlight's own notation.
    pub fn read(path: &Path, root: &Node) -> Option<Self> {
        let program = recognize::program_of(path, root)?;
        Some(Self::read_program(&program, path, root))
    }

    /// Reads a file of this client.
    pub fn read_as(client: Client, path: &Path, root: &Node) -> Self {
        Self::read_program(&Program::for_client(client), path, root)
    }

    fn read_program(program: &Program, path: &Path, root: &Node) -> Self {
        let mut notes = Vec::new();
        let (servers, section) = sections::servers(program, root, &mut notes);
        let mut entries = vec![servers];
        if program.is_for_servers_alone() {
            // Under other keys, the servers are among a client's settings.
            let is_alone = ["mcpServers", "servers"].contains(&section.as_str());
            let is_known = !program.title.is_empty();
            let is_of_client = |key: &str| {
                key == section || key == "inputs" || (is_known && OF_CLIENTS.contains(&key))
            };
            let is_other = |entry: &&Entry| !is_of_client(&entry.key);
            entries.extend(
                root.entries()
                    .iter()
                    .filter(is_other)
                    .filter(|_| is_alone)
                    .cloned(),
            );
        }
        let root_node = Node {
            span: root.span,
            value: Value::Map(entries),
        };
        Self {
            client: program.client,
            title: program.title,
            root: root_node,
            inputs: inputs(root),
            project: recognize::project_of(path),
            notes,
        }
    }
}

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
        variable_name(&format!("INPUT_{id}"))
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

#[cfg(test)]
mod tests;
