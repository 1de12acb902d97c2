//! Merges the servers of all sources, each under one name.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::sources::Source;
use crate::cli::NAME;

/// Members that decide nothing: entries that differ only in them are the same server.
const WITHOUT_MEANING: [&str; 2] = ["enabled", "type"];

/// A server to import.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) name: String,
    pub(super) value: Value,
    /// The places with this server; the first is the imported one.
    pub(super) from: Vec<Place>,
}

/// A place with a server.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The name of the client, or of the kind of file.
    pub(super) title: &'static str,
    pub(super) path: PathBuf,
    /// The server's name in this place.
    pub(super) name: String,
}

/// A server or a part of a file that is not imported.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

/// Merges the servers of all sources in order. Of several entries for the same server, the first is
/// imported. If different servers have the same name, the later ones get new names.
pub(super) fn merge(sources: &[Source]) -> (Vec<Taken>, Vec<LeftOut>) {
    let mut taken: Vec<Taken> = Vec::new();
    let mut left_out = Vec::new();
    for source in sources {
        let left = |reason: String| LeftOut {
            path: source.path.clone(),
            reason,
        };
        left_out.extend(source.left_out.iter().cloned().map(left));
        for (name, value) in &source.servers {
            let place = Place {
                title: source.title,
                path: source.path.clone(),
                name: name.clone(),
            };
            if is_fanlight(name, value) {
                left_out.push(left(format!("`{name}` is Fanlight itself")));
            } else if let Some(known) = taken.iter_mut().find(|known| is_same(&known.value, value))
            {
                known.from.push(place);
            } else {
                let client = source.client.map(|client| client.as_str());
                let name = free_name(name, client, &taken);
                taken.push(Taken {
                    name,
                    value: value.clone(),
                    from: vec![place],
                });
            }
        }
    }
    (taken, left_out)
}

/// Whether two entries are for the same server, with equal rules: filters of tools, limits and
/// variables of one must not be lost in the other.
fn is_same(one: &Value, other: &Value) -> bool {
    let has_all = |one: &Value, other: &Value| match one {
        Value::Object(members) => members.iter().all(|(key, value)| {
            WITHOUT_MEANING.contains(&key.as_str()) || other.get(key) == Some(value)
        }),
        _ => one == other,
    };
    has_all(one, other) && has_all(other, one)
}

/// Whether `fanlight connect` has written this entry.
fn is_fanlight(name: &str, value: &Value) -> bool {
    let text = |item: &Value| item.as_str().map(str::to_owned);
    let args = match value.get("args") {
        Some(Value::Array(items)) => items.iter().filter_map(text).collect(),
        _ => Vec::new(),
    };
    let is_program = |word: &String| {
        let program = Path::new(word)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        program.trim_end_matches(".exe").split('@').next() == Some(NAME)
    };
    let mut words = value
        .get("command")
        .and_then(text)
        .into_iter()
        .chain(args.iter().cloned());
    (words.any(|word| is_program(&word)) && args.iter().any(|word| word == "stdio"))
        || (name == NAME && value.get("url").is_some())
}

/// A free name: the name itself, or the name with the client or a number appended.
fn free_name(name: &str, client: Option<&str>, taken: &[Taken]) -> String {
    let is_free = |name: &String| taken.iter().all(|known| known.name != *name);
    let with_client = client.map(|client| format!("{name}-{client}"));
    let numbered = (2..=taken.len() + 2).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned())
        .chain(with_client)
        .chain(numbered);
    names.find(is_free).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use fanlight_config::client_files::Client;
    use serde_json::json;

    use super::*;

    fn source(client: Client, servers: &[(&str, &str)]) -> Source {
        let servers = servers.iter().map(|(name, command)| {
            let words: Vec<_> = command.split(' ').collect();
            let entry = [
                ("command", json!(words[0])),
                ("args", Value::from_iter(words[1..].iter().copied())),
            ];
            ((*name).to_owned(), Value::from_iter(entry))
        });
        Source {
            title: client.title(),
            client: Some(client),
            path: client.as_str().into(),
            servers: servers.collect(),
            left_out: Vec::new(),
            variables: Vec::new(),
        }
    }

    #[test]
    fn same_server_is_taken_once_and_another_of_its_name_is_renamed() {
        let sources = [
            source(
                Client::Cursor,
                &[("git", "git-mcp"), ("me", "/usr/bin/fanlight stdio")],
            ),
            source(Client::Zed, &[("vcs", "git-mcp"), ("git", "other")]),
            source(
                Client::Roo,
                &[("git", "third"), ("run", "npx -y fanlight@0.2 stdio")],
            ),
        ];
        let (taken, left_out) = merge(&sources);
        let names: Vec<_> = taken
            .iter()
            .map(|server| (server.name.as_str(), server.from.len()))
            .collect();
        assert_eq!(names, [("git", 2), ("git-zed", 1), ("git-roo", 1)]);
        let mut sources = [
            source(Client::Cursor, &[("git", "git-mcp")]),
            source(Client::Zed, &[("git", "git-mcp")]),
        ];
        sources[1].servers[0].1["tools"] = json!({ "allow": ["status"] });
        let (taken_apart, _) = merge(&sources);
        assert_eq!(taken_apart.len(), 2, "a filter of tools is not lost");
        assert_eq!(
            left_out
                .iter()
                .map(|left| left.reason.as_str())
                .collect::<Vec<_>>(),
            ["`me` is Fanlight itself", "`run` is Fanlight itself"]
        );
    }
}
