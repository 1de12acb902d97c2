//! Claude Code: `~/.claude.json` has the servers of a user and of each project.

use std::path::Path;

use super::Note;
use super::build::{find, map_texts, replace_value, switch_off, text};
use super::program::Program;
use super::servers::server;
use crate::client_files::client::Client;
use crate::client_files::edit::item;
use crate::document::{Entry, Node, Value};

/// Adds the projects' servers to the user's. A name that occurs twice gets the project's folder.
pub(super) fn add_projects(
    program: &Program,
    root: &Node,
    servers: &mut Vec<Entry>,
    notes: &mut Vec<Note>,
) {
    let projects = find(root, "projects").filter(|_| program.contains(Client::ClaudeCode));
    for project in projects
        .map(|projects| projects.value.entries())
        .unwrap_or_default()
    {
        let disabled = names(&project.value, "disabledMcpServers");
        for entry in find(&project.value, "mcpServers")
            .map(|section| section.value.entries())
            .unwrap_or_default()
        {
            let mut entry = in_folder(&server(program, entry, notes), &project.key);
            if disabled.contains(&entry.key.as_str()) {
                switch_off(&mut entry);
            }
            if servers
                .iter()
                .any(|known| known.key == entry.key && item(&known.value) == item(&entry.value))
            {
                continue;
            }
            if servers.iter().any(|known| known.key == entry.key) {
                let folder = Path::new(&project.key)
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned());
                entry.key = free_name(
                    servers,
                    &format!("{}-{}", entry.key, folder.unwrap_or_default()),
                );
            }
            servers.push(entry);
        }
    }
}

/// A server of a project, which Claude Code starts in the project's folder.
fn in_folder(entry: &Entry, folder: &str) -> Entry {
    let mut entry = Entry {
        value: map_texts(&entry.value, &|text| {
            text.replace("${CLAUDE_PROJECT_DIR}", folder)
        }),
        ..entry.clone()
    };
    let is_command = find(&entry.value, "command").is_some() && find(&entry.value, "cwd").is_none();
    let cwd = replace_value(&entry, "cwd", Value::String(folder.to_owned()));
    if let Value::Map(members) = &mut entry.value.value
        && is_command
    {
        members.push(cwd);
    }
    entry
}

fn free_name(servers: &[Entry], name: &str) -> String {
    let is_free = |name: &str| servers.iter().all(|server| server.key != name);
    let numbered = |number: usize| {
        if number == 1 {
            name.to_owned()
        } else {
            format!("{name}-{number}")
        }
    };
    (1..)
        .map(numbered)
        .find(|name| is_free(name))
        .unwrap_or_default()
}

fn names<'n>(node: &'n Node, key: &str) -> Vec<&'n str> {
    match find(node, key).map(|entry| &entry.value.value) {
        Some(Value::List(items)) => items.iter().filter_map(text).collect(),
        _ => Vec::new(),
    }
}
