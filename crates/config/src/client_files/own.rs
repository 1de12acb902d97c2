//! A server in a client's file as an entry of Fanlight's own configuration.

use std::path::Path;

use crate::client_files::edit::item;
use crate::client_files::item::Item;
use crate::client_files::read::{ClientFile, Input, expressions};

/// The members of an entry in the order of writing.
const ORDER: [&str; 10] = [
    "enabled",
    "type",
    "command",
    "args",
    "url",
    "headers",
    "env",
    "envFile",
    "inheritEnv",
    "cwd",
];

impl ClientFile {
    /// The servers by name, for a configuration of Fanlight's own at any place, and a note about
    /// each member that is left out. `is_option` says which members of a server Fanlight knows.
    /// `path` is the client's file.
    pub fn own_entries(
        &self,
        path: &Path,
        is_option: &dyn Fn(&str) -> bool,
    ) -> (Vec<(String, Item)>, Vec<String>) {
        let folder = self
            .project
            .as_deref()
            .or(path.parent())
            .unwrap_or(Path::new(""));
        let Some(Item::Map(servers)) = self.root.field("mcpServers").map(item) else {
            return Default::default();
        };
        let mut left_out = Vec::new();
        let entry = |(name, value): (String, Item)| {
            let value = filled(&value, self.project.as_deref());
            let unknown = |key: &str| left_out.push(format!("`{key}` of `{name}` is unknown here"));
            let value = own_entry(value, folder, self.project.is_some(), is_option, unknown);
            (name, value)
        };
        let servers = servers.into_iter().map(entry).collect();
        (servers, left_out)
    }
}

/// An entry without alternative names of options, and with absolute paths.
fn own_entry(
    value: Item,
    folder: &Path,
    is_of_project: bool,
    is_option: &dyn Fn(&str) -> bool,
    mut unknown: impl FnMut(&str),
) -> Item {
    let Item::Map(members) = value else {
        return value;
    };
    let mut own: Vec<(String, Item)> = Vec::new();
    let (mut allow, mut deny) = (None, Vec::new());
    for (key, value) in members {
        let absolute = |value: &Item| match value {
            Item::Text(path) if !path.starts_with("${") => {
                Item::text(folder.join(path).display().to_string())
            }
            other => other.clone(),
        };
        match (key.as_str(), &value) {
            (_, Item::Null) => {}
            ("disabled", Item::Flag(false)) | ("enabled", Item::Flag(true)) => {}
            ("disabled", Item::Flag(true)) => own.push(("enabled".to_owned(), Item::Flag(false))),
            ("type", Item::Text(kind)) if kind != "sse" => {}
            ("serverUrl" | "httpUrl", _) => own.push(("url".to_owned(), value)),
            ("includeTools", _) => allow = Some(value),
            ("disabledTools" | "excludeTools", Item::List(names)) => deny.extend(names.clone()),
            ("cwd" | "envFile", _) => own.push((key, absolute(&value))),
            ("args" | "inheritEnv", Item::List(items)) if items.is_empty() => {}
            ("env" | "headers", Item::Map(pairs)) if pairs.is_empty() => {}
            _ if is_option(&key) => own.push((key, value)),
            _ => unknown(&key),
        }
    }
    let has = |own: &[(String, Item)], key: &str| own.iter().any(|(known, _)| known == key);
    // The client starts a project's servers in the project's folder. In other files, a relative
    // path refers to the file's own folder.
    let starts_in_folder = is_of_project || own.iter().any(|(key, value)| is_relative(key, value));
    if starts_in_folder && has(&own, "command") && !has(&own, "cwd") {
        own.push(("cwd".to_owned(), Item::text(folder.display().to_string())));
    }
    if (allow.is_some() || !deny.is_empty()) && !has(&own, "tools") {
        let mut tools = Vec::new();
        tools.extend(allow.map(|names| ("allow", names)));
        tools.extend((!deny.is_empty()).then_some(("deny", Item::List(deny))));
        own.push(("tools".to_owned(), Item::map(tools)));
    }
    own.sort_by_key(|(key, _)| {
        ORDER
            .iter()
            .position(|known| known == key)
            .unwrap_or(ORDER.len())
    });
    Item::Map(own)
}

/// Whether a command or an argument is a path relative to the start folder.
fn is_relative(key: &str, value: &Item) -> bool {
    let is_path = |text: &str| text.starts_with("./") || text.starts_with("../");
    match (key, value) {
        ("command", Item::Text(command)) => is_path(command),
        ("args", Item::List(items)) => items
            .iter()
            .any(|item| matches!(item, Item::Text(text) if is_path(text))),
        _ => false,
    }
}

/// A value in which Fanlight's variables replace editors' variables.
fn filled(value: &Item, project: Option<&Path>) -> Item {
    match value {
        Item::Text(text) => {
            let text = expressions(text, "${env:", "}", &|name| Some(format!("${{{name}}}")));
            let text = expressions(&text, "${input:", "}", &|id| {
                Some(format!("${{{}}}", Input::variable(id)))
            });
            let text = text.replace("${userHome}", "${HOME}");
            let Some(project) = project else {
                return Item::Text(text);
            };
            let name = project
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let text = text.replace("${workspaceFolder}", &project.display().to_string());
            Item::Text(text.replace("${workspaceFolderBasename}", &name))
        }
        Item::List(items) => Item::List(items.iter().map(|item| filled(item, project)).collect()),
        Item::Map(members) => Item::map(
            members
                .iter()
                .map(|(key, value)| (key.clone(), filled(value, project))),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::document::{Source, Syntax};

    use super::*;

    #[test]
    fn entry_has_the_names_of_options_and_absolute_paths() {
        let text = r#"{"inputs": [], "servers": {"a": {"type": "stdio", "env": {"K": "${input:my key}", "E": "${env:E}"}, "dev": {}, "new": {},
            "command": "${workspaceFolder}/x", "args": [], "disabled": true, "disabledTools": ["d"], "envFile": "a.env"}}}"#;
        let root = crate::document::parse(&Source::new(text), Syntax::Json)
            .unwrap()
            .unwrap();
        let path = Path::new("/p/.vscode/mcp.json");
        let file = ClientFile::read(path, &root).unwrap();
        let (entries, left_out) = file.own_entries(path, &|key| key != "new");
        assert_eq!((entries.len(), left_out.len()), (1, 1), "{left_out:?}");
        assert_eq!(
            entries[0].1.to_flow(),
            r#"{"enabled": false, "command": "/p/x", "env": {"K": "${INPUT_MY_KEY}", "E": "${E}"}, "envFile": "/p/a.env", "cwd": "/p", "tools": {"deny": ["d"]}}"#
        );
    }

    #[test]
    fn server_with_a_relative_path_starts_in_the_folder_of_its_file() {
        let text = r#"{"mcpServers": {"a": {"command": "node", "args": ["./weather.js"]}, "b": {"command": "node"}}}"#;
        let root = crate::document::parse(&Source::new(text), Syntax::Json)
            .unwrap()
            .unwrap();
        let path = Path::new("/home/me/Claude/claude_desktop_config.json");
        let file = ClientFile::read(path, &root).unwrap();
        let entries: Vec<_> = file
            .own_entries(path, &|_| true)
            .0
            .into_iter()
            .map(|(_, entry)| entry.to_flow())
            .collect();
        let relative = r#"{"command": "node", "args": ["./weather.js"], "cwd": "/home/me/Claude"}"#;
        assert_eq!(entries, [relative, r#"{"command": "node"}"#]);
    }
}
