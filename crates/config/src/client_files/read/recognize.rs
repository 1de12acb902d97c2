//! Recognizes a file's program: by its path, or by content that only one program writes.

use std::path::{Path, PathBuf};

use crate::document::{Entry, Node, Value};

use super::build::{find, text};
use super::program::Program;
use super::sections;
use crate::client_files::client::Client;

/// The program of a file; `None` for a file in Fanlight's own notation. The path decides first, then
/// a part that only one program writes, then a program's name in the file's name. Otherwise YAML is
/// Fanlight's own, and JSON with servers has the notation that most programs share.
pub(super) fn program_of(path: &Path, root: &Node) -> Option<Program> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    if name.starts_with("fanlight") {
        return None;
    }
    if name.ends_with(".toml") {
        return Some(Program::for_client(Client::Codex));
    }
    let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
    by_name(path, &name, root)
        .or_else(|| by_content(root))
        .or_else(|| {
            find(root, "mcpServers")?;
            by_hint(path, &name)
        })
        .or_else(|| {
            let program = Program::SHARED;
            (!is_yaml && sections::section(&program, root).is_some()).then_some(program)
        })
}

/// Whether a node is a list of named mappings.
fn is_list_of_named(node: &Node) -> bool {
    let Value::List(items) = &node.value else {
        return false;
    };
    !items.is_empty() && items.iter().all(|item| find(item, "name").is_some())
}

/// The program whose file has this name, or this folder if several programs use the name.
fn by_name(path: &Path, name: &str, root: &Node) -> Option<Program> {
    let folder = |folder: &str| {
        path.components()
            .any(|part| part.as_os_str().eq_ignore_ascii_case(folder))
    };
    let has = |key: &str| find(root, key).is_some();
    let client = match name {
        "crush.json" | ".crush.json" => return Some(Program::CRUSH),
        "mcp-config.json" => return Some(Program::COPILOT),
        "fastagent.config.yaml" | "mcp_agent.config.yaml" => return Some(Program::FAST_AGENT),
        "mcp_settings.json" if has("users") || has("systemConfig") || has("groups") => {
            return Some(Program::MCP_HUB);
        }
        _ if name.starts_with("librechat") => return Some(Program::LIBRE_CHAT),
        _ if folder(".copilot") => return Some(Program::COPILOT),
        _ if folder("amazonq") || folder(".amazonq") => return Some(Program::AMAZON_Q),
        _ if folder(".kiro") => return Some(Program::KIRO),
        _ if folder(".kilocode") => return Some(Program::KILO),
        _ if folder(".trae") || folder("Trae") || folder("Trae CN") => return Some(Program::TRAE),
        "settings.json" if folder(".qwen") || folder(".iflow") => return Some(Program::QWEN),
        "claude_desktop_config.json" => Client::ClaudeDesktop,
        ".claude.json" | ".mcp.json" => Client::ClaudeCode,
        "mcp_config.json" => Client::Windsurf,
        "mcp_settings.json" => Client::Roo,
        "cline_mcp_settings.json" if folder("rooveterinaryinc.roo-cline") => Client::Roo,
        "cline_mcp_settings.json" => Client::Cline,
        "opencode.json" | "opencode.jsonc" => Client::OpenCode,
        "mcp.json" if folder(".cursor") => Client::Cursor,
        "mcp.json" | "settings.json" if folder(".vscode") || folder("User") => Client::VsCode,
        "devcontainer.json" | ".devcontainer.json" => Client::VsCode,
        _ if name.ends_with(".code-workspace") => Client::VsCode,
        "mcp.json" if folder(".lmstudio") => Client::LmStudio,
        "mcp.json" if folder(".roo") => Client::Roo,
        "settings.json" if folder(".gemini") => Client::Gemini,
        "settings.json" if folder("zed") || folder(".zed") => Client::Zed,
        "config.yaml" if folder("goose") => Client::Goose,
        "config.json" if folder("opencode") => Client::OpenCode,
        _ if folder(".continue") => Client::Continue,
        _ => return None,
    };
    Some(Program::for_client(client))
}

/// The only program that writes such content.
fn by_content(root: &Node) -> Option<Program> {
    let section = |key: &str| find(root, key).map(|entry| &entry.value);
    let is_map = |key: &str| section(key).is_some_and(|node| matches!(node.value, Value::Map(_)));
    let is_list = |key: &str| section(key).is_some_and(|node| matches!(node.value, Value::List(_)));
    let has_any = |keys: &[&str]| keys.iter().any(|key| section(key).is_some());
    let has_servers = has_any(&["mcpServers", "servers"]);
    let any = |key: &str, members: &[&str]| {
        let is_it = |node: &Node| members.iter().any(|member| find(node, member).is_some());
        section(key).is_some_and(|node| match &node.value {
            Value::List(items) => items.iter().any(is_it),
            _ => node.entries().iter().any(|entry| is_it(&entry.value)),
        })
    };
    let client = if is_map("context_servers") {
        Client::Zed
    } else if section("mcpServers").is_some_and(is_list_of_named) {
        Client::Continue
    } else if is_list("inputs") && is_map("servers") {
        Client::VsCode
    } else if is_map("projects")
        && (section("numStartups").is_some() || any("projects", &["mcpServers"]))
    {
        Client::ClaudeCode
    } else if !has_servers && any("extensions", &["cmd", "uri", "bundled"]) {
        Client::Goose
    } else if !has_servers && is_map("mcp") && section("listen").is_none() {
        return Some(recognize_mcp(root));
    } else if section("mcp_servers").is_some()
        && (root.entries().len() == 1
            || has_any(&["model_list", "general_settings", "litellm_settings"]))
    {
        return Some(Program::LITELLM);
    } else if is_map("mcpProxy") {
        return Some(Program::MCP_PROXY);
    } else if has_servers && has_any(&["interface", "registration", "fileConfig"])
        || any_of_mcp_settings(root)
    {
        return Some(Program::LIBRE_CHAT);
    } else if has_any(&[
        "allowedTools",
        "toolsSettings",
        "useLegacyMcpJson",
        "includeMcpJson",
    ]) {
        return Some(Program::AMAZON_Q);
    } else if any("mcpServers", &["isActive"]) {
        return Some(Program::CHERRY_STUDIO);
    } else {
        return None;
    };
    Some(Program::for_client(client))
}

/// Whether the file has LibreChat's restriction of servers' domains.
fn any_of_mcp_settings(root: &Node) -> bool {
    find(root, "mcpSettings").is_some_and(|entry| find(&entry.value, "allowedDomains").is_some())
}

/// The program of a file with servers under `mcp`. Only OpenCode writes a command as a list.
fn recognize_mcp(root: &Node) -> Program {
    let section = find(root, "mcp").map_or(root, |entry| &entry.value);
    let nested = find(section, "servers").map(|entry| &entry.value);
    let is_opencode = |entry: &Entry| {
        let is_list = find(&entry.value, "command")
            .is_some_and(|command| matches!(command.value.value, Value::List(_)));
        let kind = find(&entry.value, "type").and_then(|kind| text(&kind.value));
        is_list || matches!(kind, Some("local" | "remote"))
    };
    let schema = find(root, "$schema").and_then(|schema| text(&schema.value));
    let has = |node: &Node| node.entries().iter().any(is_opencode);
    match nested {
        _ if schema.is_some_and(|schema| schema.contains("opencode.ai")) => {
            Program::for_client(Client::OpenCode)
        }
        _ if schema.is_some_and(|schema| schema.contains("charm.land")) => Program::CRUSH,
        _ if nested.is_some_and(has) || has(section) => Program::for_client(Client::OpenCode),
        Some(_) => Program::for_client(Client::VsCode),
        None => Program::CRUSH,
    }
}

/// The program in the name of the file or its folder, as in a copy `gemini-settings.json`.
fn by_hint(path: &Path, name: &str) -> Option<Program> {
    let hints = [
        ("claude-code", Program::for_client(Client::ClaudeCode)),
        ("claude", Program::for_client(Client::ClaudeDesktop)),
        ("cursor", Program::for_client(Client::Cursor)),
        ("vscode", Program::for_client(Client::VsCode)),
        ("windsurf", Program::for_client(Client::Windsurf)),
        ("cline", Program::for_client(Client::Cline)),
        ("roo", Program::for_client(Client::Roo)),
        ("gemini", Program::for_client(Client::Gemini)),
        ("lmstudio", Program::for_client(Client::LmStudio)),
        ("lm-studio", Program::for_client(Client::LmStudio)),
        ("copilot", Program::COPILOT),
        ("amazonq", Program::AMAZON_Q),
        ("amazon-q", Program::AMAZON_Q),
        ("kiro", Program::KIRO),
        ("qwen", Program::QWEN),
        ("trae", Program::TRAE),
        ("cherry", Program::CHERRY_STUDIO),
        ("kilocode", Program::KILO),
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
    hints
        .into_iter()
        .find(|(hint, _)| names(hint))
        .map(|(_, program)| program)
}

/// The folder of a file's project.
pub(super) fn project_of(path: &Path) -> Option<PathBuf> {
    const OF_PROJECT: [&str; 11] = [
        ".vscode",
        ".cursor",
        ".roo",
        ".gemini",
        ".zed",
        ".codex",
        ".continue",
        ".opencode",
        ".qwen",
        ".kiro",
        ".trae",
    ];
    let folder = path.parent()?;
    let name = path.file_name()?.to_str()?;
    if [
        ".mcp.json",
        "opencode.json",
        "opencode.jsonc",
        "crush.json",
        ".crush.json",
    ]
    .contains(&name)
    {
        return Some(folder.to_owned());
    }
    let is_known = folder
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| OF_PROJECT.contains(&name));
    is_known.then(|| folder.parent().unwrap_or(Path::new("")).to_owned())
}
