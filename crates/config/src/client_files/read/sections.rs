//! The place of the servers in a file, and the servers that only the client can start.

use crate::document::{Entry, Node, Value};

use super::Note;
use super::build::{
    find, is_comment, normalize_word, rename_entry, servers_entry, switch_off, text,
};
use super::claude_code;
use super::program::Program;
use super::servers::{is_reachable, server};
use crate::client_files::client::Client;

/// Keys of servers in files of any program, in order of preference.
const SECTIONS: [&str; 9] = [
    "mcpServers",
    "mcp_servers",
    "servers",
    "context_servers",
    "mcp.servers",
    "amp.mcpServers",
    "mcp",
    "settings",
    "customizations",
];

/// Kinds of servers that only their client can start.
const OF_CLIENTS: [&str; 9] = [
    "builtin",
    "inmemory",
    "platform",
    "frontend",
    "inlinepython",
    "sdk",
    "openapi",
    "websocket",
    "ws",
];

/// The servers of a file as the entry `mcpServers`, and the top-level key that they are from.
pub(super) fn servers(program: &Program, root: &Node, notes: &mut Vec<Note>) -> (Entry, String) {
    // These settings restrict callers and servers.
    for entry in root.entries() {
        let is_rule = ["mcpProxy", "mcpSettings"].contains(&entry.key.as_str());
        if is_rule && !program.title.is_empty() {
            notes.push(Note {
                span: entry.key_span,
                message: format!("`{}` of {} has no effect here", entry.key, program.title),
                help: "use `listen`, `auth` and `policy` of Fanlight's own configuration",
            });
        }
    }
    let Some((key, section)) = section(program, root) else {
        let mut servers = Vec::new();
        claude_code::add_projects(program, root, &mut servers, notes);
        return (servers_entry(None, root, servers), String::new());
    };
    let named = match &section.value.value {
        Value::Map(found) => found.clone(),
        Value::List(items) => items
            .iter()
            .filter_map(|item| read_entry(item, notes))
            .collect(),
        // A value that is no mapping is kept, to be reported.
        _ => return (rename_entry(&section, "mcpServers"), key),
    };
    let is_off = choice(root);
    let mut servers = Vec::new();
    for entry in &named {
        let is_map = matches!(entry.value.value, Value::Map(_));
        if !is_map && (is_comment(&entry.key) || program.contains(Client::OpenCode)) {
            continue;
        }
        if is_map && let Some(message) = left_out(program, entry) {
            notes.extend(message.map(|message| Note {
                span: entry.key_span,
                message,
                help: "write its `command` or `url` to have it here",
            }));
            continue;
        }
        let mut entry = server(program, entry, notes);
        if is_off(&entry.key) {
            switch_off(&mut entry);
        }
        servers.push(entry);
    }
    claude_code::add_projects(program, root, &mut servers, notes);
    remove_slashes(&mut servers, notes);
    (servers_entry(Some(&section), root, servers), key)
}

/// Renames servers such as `github.com/upstash/context7`: policies and pins put a slash between a
/// server and its tool.
fn remove_slashes(servers: &mut [Entry], notes: &mut Vec<Note>) {
    let mut names: Vec<String> = servers.iter().map(|server| server.key.clone()).collect();
    for server in servers.iter_mut().filter(|server| server.key.contains('/')) {
        let last = server.key.rsplit('/').next().unwrap_or_default().to_owned();
        let is_free = !last.is_empty() && !names.contains(&last);
        let name = if is_free {
            last
        } else {
            server.key.replace('/', "-")
        };
        notes.push(Note {
            span: server.key_span,
            message: format!("the server `{}` has the name `{name}` here", server.key),
            help: "names have no slash in Fanlight",
        });
        names.push(name.clone());
        server.key = name;
    }
}

/// The entry with the servers, and its top-level key.
pub(super) fn section(program: &Program, root: &Node) -> Option<(String, Entry)> {
    let own = program.client.map(Client::section);
    for key in own.into_iter().chain(SECTIONS) {
        let Some(found) = find(root, key) else {
            continue;
        };
        let section = match key {
            // A server may have the name `servers`.
            "mcp" => find(&found.value, "servers")
                .filter(|nested| !is_reachable(nested))
                .or(Some(found))
                .cloned(),
            "settings" | "customizations" => nested(program, &found.value),
            _ => Some(found.clone()),
        };
        if let Some(section) = section {
            return Some((key.to_owned(), section));
        }
    }
    let all = root.entries();
    let mut servers = all
        .iter()
        .filter(|entry| !is_comment(&entry.key))
        .peekable();
    (servers.peek().is_some() && servers.all(is_reachable))
        .then(|| (String::new(), servers_entry(None, root, all.to_vec())))
}

/// The servers in the settings of a workspace or a container.
fn nested(program: &Program, settings: &Node) -> Option<Entry> {
    let inner = find(settings, "vscode").map_or(settings, |entry| &entry.value);
    let inner = find(inner, "settings").map_or(inner, |entry| &entry.value);
    ["mcp", "mcp.servers", "mcpServers"]
        .iter()
        .any(|key| find(inner, key).is_some())
        .then(|| section(program, inner))?
        .map(|(_, section)| section)
}

/// An item of a list as an entry with its name.
fn read_entry(item: &Node, notes: &mut Vec<Note>) -> Option<Entry> {
    let name = ["name", "id", "key"]
        .iter()
        .find_map(|key| find(item, key).and_then(|entry| text(&entry.value)));
    let entry = Entry {
        key: name.unwrap_or_default().to_owned(),
        key_span: item.span,
        value: item.clone(),
    };
    if name.is_some() {
        return Some(entry);
    }
    let message = if find(item, "uses").is_some() {
        "this server is a block of Continue's hub and is left out"
    } else {
        "this server has no name and is left out"
    };
    notes.push(Note {
        span: item.span,
        message: message.to_owned(),
        help: "write its `name`, with its `command` or `url`, to have it here",
    });
    None
}

/// Whether a server is left out because only its client can start it, and the note about that.
fn left_out(program: &Program, entry: &Entry) -> Option<Option<String>> {
    let kind = find(&entry.value, "type").and_then(|member| text(&member.value));
    let name = &entry.key;
    if program.contains(Client::Goose) {
        // Goose's own parts are no servers of others.
        let is_own = kind.is_none_or(|kind| OF_CLIENTS.contains(&normalize_word(kind).as_str()));
        return is_own.then_some(None);
    }
    if let Some(kind) = kind.filter(|kind| OF_CLIENTS.contains(&normalize_word(kind).as_str())) {
        return Some(Some(format!(
            "the server `{name}` is of the type `{kind}`, which Fanlight cannot reach, and is left out"
        )));
    }
    if is_reachable(entry) {
        return None;
    }
    let reason = match program.client? {
        Client::Zed => "is of an extension of Zed",
        Client::OpenCode => "is defined elsewhere",
        _ => return None,
    };
    Some((name != "timeout").then(|| format!("the server `{name}` {reason} and is left out")))
}

/// The servers that the settings of Gemini CLI and its relatives switch off.
fn choice(root: &Node) -> impl Fn(&str) -> bool {
    let names = |key: &str| -> Option<Vec<String>> {
        let choice = &find(root, "mcp")?.value;
        match &find(choice, key)?.value.value {
            Value::List(items) => Some(items.iter().filter_map(text).map(str::to_owned).collect()),
            _ => None,
        }
    };
    let (allowed, excluded) = (names("allowed"), names("excluded"));
    move |name| {
        let has = |names: &Vec<String>| names.iter().any(|known| known == name);
        allowed.as_ref().is_some_and(|names| !has(names)) || excluded.as_ref().is_some_and(has)
    }
}
