//! Recognizes a file's client: by its name, or by content that only one client writes.

use std::path::{Path, PathBuf};

use crate::document::{Node, Value};

use super::build::{entries, find};
use crate::client_files::client::Client;

/// The client of a file; `None` for Fanlight's own files and unknown ones.
pub(super) fn client_of(path: &Path, root: &Node) -> Option<Client> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    let has = |key: &str| find(root, key).is_some();
    if name.starts_with("fanlight") {
        return None;
    }
    if name.ends_with(".toml") {
        return Some(Client::Codex);
    }
    let client = by_name(path, &name).or_else(|| by_content(root));
    client.or_else(|| {
        if has("mcpServers") {
            by_hint(path, &name)
        } else {
            None
        }
    })
}

/// Whether a node is a list of named mappings.
fn is_list_of_named(node: &Node) -> bool {
    let Value::List(items) = &node.value else {
        return false;
    };
    !items.is_empty() && items.iter().all(|item| find(item, "name").is_some())
}

/// The client whose file has this name, or this folder if several clients use the name.
fn by_name(path: &Path, name: &str) -> Option<Client> {
    let folder = |folder: &str| {
        path.components()
            .any(|part| part.as_os_str().eq_ignore_ascii_case(folder))
    };
    Some(match name {
        "claude_desktop_config.json" => Client::ClaudeDesktop,
        ".claude.json" | ".mcp.json" => Client::ClaudeCode,
        "mcp_config.json" => Client::Windsurf,
        "mcp_settings.json" => Client::Roo,
        "cline_mcp_settings.json" if folder("rooveterinaryinc.roo-cline") => Client::Roo,
        "cline_mcp_settings.json" => Client::Cline,
        "opencode.json" | "opencode.jsonc" => Client::OpenCode,
        "mcp.json" if folder(".cursor") => Client::Cursor,
        "mcp.json" if folder(".vscode") || folder("User") => Client::VsCode,
        "mcp.json" if folder(".lmstudio") => Client::LmStudio,
        "mcp.json" if folder(".roo") => Client::Roo,
        "settings.json" if folder(".gemini") => Client::Gemini,
        "settings.json" if folder("zed") || folder(".zed") => Client::Zed,
        "config.yaml" if folder("goose") => Client::Goose,
        "config.json" if folder("opencode") => Client::OpenCode,
        _ if folder(".continue") => Client::Continue,
        _ => return None,
    })
}

/// The only client that writes such content.
fn by_content(root: &Node) -> Option<Client> {
    let section = |key: &str| find(root, key).map(|entry| &entry.value);
    let is_map = |key: &str| section(key).is_some_and(|node| matches!(node.value, Value::Map(_)));
    let is_list = |key: &str| section(key).is_some_and(|node| matches!(node.value, Value::List(_)));
    let has_servers = section("mcpServers").is_some() || section("servers").is_some();
    let any = |key: &str, members: &[&str]| {
        let is_it = |node: &Node| members.iter().any(|member| find(node, member).is_some());
        section(key).is_some_and(|node| entries(node).iter().any(|entry| is_it(&entry.value)))
    };
    if is_map("context_servers") {
        Some(Client::Zed)
    } else if section("mcpServers").is_some_and(is_list_of_named) {
        Some(Client::Continue)
    } else if is_list("inputs") && is_map("servers") {
        Some(Client::VsCode)
    } else if is_map("projects")
        && (section("numStartups").is_some() || any("projects", &["mcpServers"]))
    {
        Some(Client::ClaudeCode)
    } else if !has_servers && any("extensions", &["cmd", "uri", "bundled"]) {
        Some(Client::Goose)
    } else if !has_servers && is_map("mcp") && section("listen").is_none() {
        Some(Client::OpenCode)
    } else {
        None
    }
}

/// The client in the name of the file or its folder, as in a copy `gemini-settings.json`.
fn by_hint(path: &Path, name: &str) -> Option<Client> {
    const HINTS: [(&str, Client); 12] = [
        ("claude-code", Client::ClaudeCode),
        ("claude_code", Client::ClaudeCode),
        ("claude", Client::ClaudeDesktop),
        ("cursor", Client::Cursor),
        ("vscode", Client::VsCode),
        ("windsurf", Client::Windsurf),
        ("cline", Client::Cline),
        ("roo", Client::Roo),
        ("gemini", Client::Gemini),
        ("lmstudio", Client::LmStudio),
        ("lm-studio", Client::LmStudio),
        ("lm_studio", Client::LmStudio),
    ];
    let folder = path
        .parent()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let words = |text: &str| -> Vec<String> {
        text.to_lowercase()
            .split(|c: char| !c.is_ascii_alphanumeric())
            .map(str::to_owned)
            .collect()
    };
    let (in_name, in_folder) = (words(name), words(folder));
    let names = |hint: &str| {
        let hint = words(hint);
        [&in_name, &in_folder]
            .into_iter()
            .any(|words| words.windows(hint.len()).any(|part| part == hint))
    };
    HINTS
        .into_iter()
        .find(|(hint, _)| names(hint))
        .map(|(_, client)| client)
}

/// Whether the client's file has little else than servers. Fanlight's options may be added to such
/// a file.
pub(super) fn is_for_servers_alone(client: Client) -> bool {
    matches!(
        client,
        Client::ClaudeDesktop
            | Client::Cursor
            | Client::VsCode
            | Client::Windsurf
            | Client::Cline
            | Client::Roo
            | Client::LmStudio
    )
}

/// The folder of a file's project.
pub(super) fn project_of(path: &Path) -> Option<PathBuf> {
    const OF_PROJECT: [&str; 8] = [
        ".vscode",
        ".cursor",
        ".roo",
        ".gemini",
        ".zed",
        ".codex",
        ".continue",
        ".opencode",
    ];
    let folder = path.parent()?;
    let name = path.file_name()?.to_str()?;
    if [".mcp.json", "opencode.json", "opencode.jsonc"].contains(&name) {
        return Some(folder.to_owned());
    }
    let is_known = folder
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| OF_PROJECT.contains(&name));
    is_known.then(|| folder.parent().unwrap_or(Path::new("")).to_owned())
}
