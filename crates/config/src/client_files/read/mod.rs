//! A client's file in Fanlight's own notation.
//!
//! Everything with a meaning for Fanlight is kept: commands, URLs, headers, variables, time limits,
//! filters of tools, disabled servers. Settings of the client itself are left out.

mod build;
mod claude_code;
mod codex;
mod continue_dev;
mod gemini;
mod goose;
mod inputs;
mod opencode;
mod recognize;
mod servers;
mod zed;

use std::path::{Path, PathBuf};

use crate::document::{Entry, Node, Span, Value};

use crate::client_files::client::Client;
pub(crate) use build::expressions;
pub use inputs::Input;

/// A client's file in Fanlight's own notation.
#[derive(Debug, Clone)]
pub struct ClientFile {
    /// The client.
    pub client: Client,
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
    /// Reads the file at `path` with the tree `root`; `None` if it is not a known client's file.
    #[must_use]
    pub fn read(path: &Path, root: &Node) -> Option<Self> {
        recognize::client_of(path, root).map(|client| Self::of(client, path, root))
    }

    /// Reads a file of this client.
    #[must_use]
    pub fn of(client: Client, path: &Path, root: &Node) -> Self {
        let mut notes = Vec::new();
        let servers = match client {
            Client::ClaudeCode => claude_code::servers(root),
            Client::Gemini => gemini::servers(root),
            Client::Codex => codex::servers(root),
            Client::Zed => zed::servers(root, &mut notes),
            Client::Goose => goose::servers(root),
            Client::OpenCode => opencode::servers(root, &mut notes),
            Client::Continue => continue_dev::servers(root, &mut notes),
            _ => servers::servers(client, root),
        };
        let mut entries = vec![servers];
        if recognize::is_for_servers_alone(client)
            && let Value::Map(others) = &root.value
        {
            let is_other =
                |entry: &&Entry| !["mcpServers", "servers", "inputs"].contains(&entry.key.as_str());
            entries.extend(others.iter().filter(is_other).cloned());
        }
        let root_node = Node {
            span: root.span,
            value: Value::Map(entries),
        };
        Self {
            client,
            root: root_node,
            inputs: inputs::inputs(root),
            project: recognize::project_of(path),
            notes,
        }
    }
}

#[cfg(test)]
mod tests;
