//! A client's file in Fanlight's own notation.
//!
//! Everything with a meaning for Fanlight is kept: commands, URLs, headers, variables, time limits,
//! filters of tools, disabled servers. Members of a server that nobody knows are kept, too, so that
//! they are reported. Settings of the client itself are left out.

mod build;
mod claude_code;
mod inputs;
mod program;
mod recognize;
mod sections;
mod servers;

use std::path::{Path, PathBuf};

use crate::document::{Entry, Node, Span, Value};

use crate::client_files::client::Client;
pub(crate) use build::{expressions, is_comment};
pub use inputs::Input;
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
        if program.is_for_servers_alone()
            && let Value::Map(others) = &root.value
        {
            // Under other keys, the servers are among a client's settings.
            let is_alone = ["mcpServers", "servers"].contains(&section.as_str());
            let is_known = !program.title.is_empty();
            let is_of_client = |key: &str| {
                key == section || key == "inputs" || (is_known && OF_CLIENTS.contains(&key))
            };
            let is_other = |entry: &&Entry| !is_of_client(&entry.key);
            entries.extend(others.iter().filter(is_other).filter(|_| is_alone).cloned());
        }
        let root_node = Node {
            span: root.span,
            value: Value::Map(entries),
        };
        Self {
            client: program.client,
            title: program.title,
            root: root_node,
            inputs: inputs::inputs(root),
            project: recognize::project_of(path),
            notes,
        }
    }
}

#[cfg(test)]
mod tests;
