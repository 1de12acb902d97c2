//! A client's file in the notation of Fanlight's own.
//!
//! What has a meaning for Fanlight keeps it: commands, URLs, headers, variables, time limits, filters of tools, servers that are
//! switched off. Settings of the client itself are left out.

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

/// A client's file in the notation of Fanlight's own.
#[derive(Debug, Clone)]
pub struct ClientFile {
    /// Whose file it is.
    pub client: Client,
    /// The file as a configuration of Fanlight with `mcpServers`. Each value has its position in the client's file; a server
    /// may have members that only the client knows.
    pub root: Node,
    /// What the client asks its user for.
    pub inputs: Vec<Input>,
    /// The folder of the project that the file belongs to; `None` if it is for all projects.
    pub project: Option<PathBuf>,
    /// Entries that are left out although a user may expect them.
    pub notes: Vec<Note>,
}

/// Something about a file that its user should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Where it is.
    pub span: Span,
    /// What it is, in one line.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

impl ClientFile {
    /// The file at `path`, whose tree is `root`; `None` if it is not known to be of a client.
    #[must_use]
    pub fn read(path: &Path, root: &Node) -> Option<Self> {
        recognize::client_of(path, root).map(|client| Self::of(client, path, root))
    }

    /// A file that is known to be of this client.
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
