//! `manifest.json` of an `.mcpb` bundle: the start of its server, and the questions to its user.

use crate::document::{Node, Value};

use super::{PackagedServer, is_true, items, reference, short_name, text, variable_name};
use crate::client_files::item::Item;
use crate::client_files::places::System;

/// The server of a bundle that is unpacked in `folder`.
///
/// # Errors
///
/// The manifest lacks something.
pub fn manifest(root: &Node, folder: &str, system: System) -> Result<PackagedServer, String> {
    let name = short_name(&text(root, "name").ok_or("its manifest has no `name`")?);
    let server = root.field("server").ok_or("its manifest has no `server`")?;
    let config = server.field("mcp_config");
    let override_name = match system {
        System::Linux => "linux",
        System::MacOs => "darwin",
        System::Windows => "win32",
    };
    let own = config.and_then(|config| config.field("platform_overrides")?.field(override_name));
    let member = |key: &str| {
        own.and_then(|own| own.field(key))
            .or_else(|| config.and_then(|config| config.field(key)))
    };
    let mut filler = Filler {
        prefix: variable_name(&name),
        folder,
        config: root.field("user_config"),
        variables: Vec::new(),
    };
    let (command, args) = match member("command").and_then(string) {
        Some(command) => {
            let args = match member("args").map(|args| &args.value) {
                Some(Value::List(items)) => items
                    .iter()
                    .filter_map(string)
                    .flat_map(|arg| filler.words(arg))
                    .collect(),
                _ => Vec::new(),
            };
            (filler.filled(command), args)
        }
        None => started(server, &filler)?,
    };
    let mut members = vec![
        ("command", Item::text(command)),
        ("args", Item::texts(args)),
    ];
    if let Some(Value::Map(pairs)) = member("env").map(|env| &env.value) {
        let pair = |pair: &crate::document::Entry| {
            Some((
                pair.key.clone(),
                Item::text(filler.filled(string(&pair.value)?)),
            ))
        };
        let env: Vec<_> = pairs.iter().filter_map(pair).collect();
        members.push(("env", Item::map(env)));
    }
    Ok(PackagedServer {
        name,
        value: Item::map(members),
        variables: filler.variables,
        notes: Vec::new(),
    })
}

/// The default command for a kind of server.
fn started(server: &Node, filler: &Filler<'_>) -> Result<(String, Vec<String>), String> {
    let entry = text(server, "entry_point")
        .ok_or("its manifest says neither `mcp_config` nor `entry_point`")?;
    let path = format!("{}/{entry}", filler.folder);
    match text(server, "type").as_deref() {
        Some("node") => Ok(("node".to_owned(), vec![path])),
        Some("python") => Ok(("python3".to_owned(), vec![path])),
        Some("uv") => Ok((
            "uv".to_owned(),
            ["run", "--directory", filler.folder, &path]
                .map(str::to_owned)
                .to_vec(),
        )),
        Some("binary") => Ok((path, Vec::new())),
        _ => Err("its manifest has a server of a kind that is not known here".to_owned()),
    }
}

fn string(node: &Node) -> Option<&str> {
    match &node.value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Fills in the open values of a manifest.
struct Filler<'n> {
    /// The prefix of variable names.
    prefix: String,
    folder: &'n str,
    config: Option<&'n Node>,
    variables: Vec<(String, String)>,
}

impl<'n> Filler<'n> {
    /// The words of an argument: one for each value, if there may be several.
    fn words(&mut self, argument: &str) -> Vec<String> {
        let only = argument
            .strip_prefix("${user_config.")
            .and_then(|rest| rest.strip_suffix('}'));
        if let Some(asked) = only.and_then(|key| self.asked(key))
            && is_true(asked, "multiple")
        {
            let defaults: Vec<String> = items(asked, "default")
                .iter()
                .filter_map(string)
                .map(|text| self.filled(text))
                .collect();
            if !defaults.is_empty() {
                return defaults;
            }
        }
        vec![self.filled(argument)]
    }

    fn asked(&self, key: &str) -> Option<&'n Node> {
        self.config?.field(key)
    }

    fn filled(&mut self, text: &str) -> String {
        let mut result = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, tail)) = after.split_once('}') else {
                break;
            };
            result.push_str(before);
            result.push_str(&self.value(name));
            rest = tail;
        }
        result + rest
    }

    fn value(&mut self, name: &str) -> String {
        let in_home = |folder: &str| format!("${{HOME}}/{folder}");
        match name {
            "__dirname" => self.folder.to_owned(),
            "/" | "pathSeparator" => "/".to_owned(),
            "DESKTOP" => in_home("Desktop"),
            "DOCUMENTS" => in_home("Documents"),
            "DOWNLOADS" => in_home("Downloads"),
            _ => match name.strip_prefix("user_config.") {
                Some(key) => self.of_user(key),
                None => format!("${{{name}}}"),
            },
        }
    }

    /// A value that the user must provide: a variable named after the server.
    fn of_user(&mut self, key: &str) -> String {
        let name = format!("{}_{}", self.prefix, variable_name(key));
        let asked = self.asked(key);
        let describe = |node: &Node| {
            text(node, "description")
                .or_else(|| text(node, "title"))
                .map(|text| text.into_owned())
        };
        let about = asked.and_then(describe).unwrap_or_default();
        let default = asked
            .and_then(|asked| text(asked, "default"))
            .map(|default| default.into_owned());
        if !self.variables.iter().any(|(known, _)| *known == name) {
            self.variables.push((name.clone(), about));
        }
        // An optional value is empty.
        let default = default.or_else(|| {
            asked
                .filter(|asked| !is_true(asked, "required"))
                .map(|_| String::new())
        });
        reference(&name, default.as_deref())
    }
}
