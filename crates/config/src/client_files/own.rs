//! A server in a client's file as an entry of Fanlight's own configuration.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::client_files::edit::item;
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
    ) -> (Vec<(String, Json)>, Vec<String>) {
        let folder = self
            .project
            .as_deref()
            .or(path.parent())
            .unwrap_or(Path::new(""));
        let Some(Json::Object(servers)) = self.root.field("mcpServers").map(item) else {
            return Default::default();
        };
        let mut left_out = Vec::new();
        let entry = |(name, value): (String, Json)| {
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
    value: Json,
    folder: &Path,
    is_of_project: bool,
    is_option: &dyn Fn(&str) -> bool,
    mut unknown: impl FnMut(&str),
) -> Json {
    let Json::Object(members) = value else {
        return value;
    };
    let mut own: Vec<(String, Json)> = Vec::new();
    let (mut allow, mut deny) = (None, Vec::new());
    for (key, value) in members {
        let absolute = |value: &Json| match value {
            Json::String(path) if !path.starts_with("${") => {
                json!(folder.join(path).display().to_string())
            }
            other => other.clone(),
        };
        match (key.as_str(), &value) {
            (_, Json::Null) => {}
            ("disabled", Json::Bool(false)) | ("enabled", Json::Bool(true)) => {}
            ("disabled", Json::Bool(true)) => own.push(("enabled".to_owned(), Json::Bool(false))),
            ("type", Json::String(kind)) if kind != "sse" => {}
            ("serverUrl" | "httpUrl", _) => own.push(("url".to_owned(), value)),
            ("includeTools", _) => allow = Some(value),
            ("disabledTools" | "excludeTools", Json::Array(names)) => deny.extend(names.clone()),
            ("cwd" | "envFile", _) => own.push((key, absolute(&value))),
            ("args" | "inheritEnv", Json::Array(items)) if items.is_empty() => {}
            ("env" | "headers", Json::Object(pairs)) if pairs.is_empty() => {}
            _ if is_option(&key) => own.push((key, value)),
            _ => unknown(&key),
        }
    }
    let has = |own: &[(String, Json)], key: &str| own.iter().any(|(known, _)| known == key);
    // The client starts a project's servers in the project's folder. In other files, a relative
    // path refers to the file's own folder.
    let starts_in_folder = is_of_project || own.iter().any(|(key, value)| is_relative(key, value));
    if starts_in_folder && has(&own, "command") && !has(&own, "cwd") {
        own.push(("cwd".to_owned(), json!(folder.display().to_string())));
    }
    if (allow.is_some() || !deny.is_empty()) && !has(&own, "tools") {
        let mut tools = Vec::new();
        tools.extend(allow.map(|names| ("allow", names)));
        tools.extend((!deny.is_empty()).then_some(("deny", Json::Array(deny))));
        own.push(("tools".to_owned(), Json::from_iter(tools)));
    }
    own.sort_by_key(|(key, _)| {
        ORDER
            .iter()
            .position(|known| known == key)
            .unwrap_or(ORDER.len())
    });
    own.into_iter().collect()
}

/// Whether a command or an argument is a path relative to the start folder.
fn is_relative(key: &str, value: &Json) -> bool {
    let is_path = |text: &str| text.starts_with("./") || text.starts_with("../");
    match (key, value) {
        ("command", Json::String(command)) => is_path(command),
        ("args", Json::Array(items)) => items
            .iter()
            .any(|item| matches!(item, Json::String(text) if is_path(text))),
        _ => false,
    }
}

/// A value in which Fanlight's variables replace editors' variables.
fn filled(value: &Json, project: Option<&Path>) -> Json {
    match value {
        Json::String(text) => {
            let text = expressions(text, "${env:", "}", &|name| Some(format!("${{{name}}}")));
            let text = expressions(&text, "${input:", "}", &|id| {
                Some(format!("${{{}}}", Input::variable(id)))
            });
            let text = text.replace("${userHome}", "${HOME}");
            let Some(project) = project else {
                return Json::String(text);
            };
            let name = project
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let text = text.replace("${workspaceFolder}", &project.display().to_string());
            Json::String(text.replace("${workspaceFolderBasename}", &name))
        }
        Json::Array(items) => Json::Array(items.iter().map(|item| filled(item, project)).collect()),
        Json::Object(members) => Json::from_iter(
            members
                .iter()
                .map(|(key, value)| (key.clone(), filled(value, project))),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_files::item::to_flow;
    use crate::document::{Source, Syntax};

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
            to_flow(&entries[0].1),
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
            .map(|(_, entry)| to_flow(&entry))
            .collect();
        let relative = r#"{"command": "node", "args": ["./weather.js"], "cwd": "/home/me/Claude"}"#;
        assert_eq!(entries, [relative, r#"{"command": "node"}"#]);
    }
}
