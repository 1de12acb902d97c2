//! `fanlight add`: adds a server to the configuration.

use std::path::{Path, PathBuf};

use fanlight_config::client_files::{self, Client, EditError, Entry, to_yaml};
use fanlight_config::document::Syntax;
use fanlight_config::parse;
use serde_json::{Value, json};

use crate::cli::{AddArgs, CommonArgs};
use crate::configuration::variable;
use crate::replace::{self, NewFile};
use crate::{Result, configuration, say};

/// Adds a server to the named configuration, the folder's, or a new `fanlight.yaml`.
pub fn add(args: &AddArgs, common: &CommonArgs) -> Result {
    let found = configuration::paths(common).and_then(|paths| paths.into_iter().next());
    let path = found.unwrap_or_else(|| PathBuf::from("fanlight.yaml"));
    let shown = path.display();
    let cannot = |error: std::io::Error| failure!("{shown}: {error}");
    let target = replace::target(&path);
    let text = replace::read(&target).map_err(cannot)?.unwrap_or_default();
    let value = value(args)?;
    let changed =
        changed(&path, &text, &args.name, value).map_err(|reason| failure!("{shown}: {reason}"))?;
    let errors = parse(&changed, &path, &variable)
        .err()
        .and_then(fanlight_config::ConfigErrors::without_missing_variables);
    if let Some(errors) = errors {
        return Err(errors.into());
    }
    replace::replace(&target, &changed, NewFile::OfOwner).map_err(cannot)?;
    say!("added `{}` to {shown}; next: `fanlight check`", args.name);
    Ok(())
}

/// The server's entry.
fn value(args: &AddArgs) -> Result<Value> {
    let pairs = |texts: &[String], sign: char| -> Result<Value> {
        let pair = |text: &String| match text.split_once(sign) {
            Some((name, value)) => Ok((name.trim().to_owned(), json!(value.trim()))),
            None => Err(usage!("write a name, `{sign}` and a value, not {text:?}")),
        };
        texts.iter().map(pair).collect()
    };
    let mut entry = json!({});
    if let Some(url) = &args.url {
        entry["url"] = json!(url);
    }
    if let Some((program, rest)) = args.command.split_first() {
        entry["command"] = json!(program);
        entry["args"] = json!(rest);
    }
    for (key, texts, sign) in [("headers", &args.header, ':'), ("env", &args.env, '=')] {
        if !texts.is_empty() {
            entry[key] = pairs(texts, sign)?;
        }
    }
    Ok(entry)
}

/// The configuration's text with the server.
fn changed(path: &Path, text: &str, name: &str, value: Value) -> Result<String, String> {
    let is_json = path.extension().is_some_and(|end| end == "json");
    let empty = if is_json { "{}\n" } else { "mcpServers: {}\n" };
    let text = if text.trim().is_empty() { empty } else { text };
    // These clients' files have the notation of a configuration.
    let client = match Syntax::detect(path, text) {
        Syntax::Toml => return Err("a TOML file is changed by hand".to_owned()),
        Syntax::Json if !text.contains("\"mcpServers\"") && text.contains("\"servers\"") => {
            Client::VsCode
        }
        Syntax::Json => Client::Cursor,
        Syntax::Yaml => Client::Continue,
    };
    let why = |error: EditError| match error {
        EditError::Malformed(line, message) => format!("line {line}: {message}"),
        EditError::ByHand => {
            let entry = to_yaml(&json!({ name: value }), "  ");
            format!("this file is changed by hand; add:\n{entry}")
        }
    };
    if client_files::find_entry(client, text, name)
        .map_err(why)?
        .is_some()
    {
        return Err(format!("there is a server `{name}` already"));
    }
    client_files::add(client, text, &Entry::from_file(client, name, value.clone())).map_err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_added_and_everything_else_stays() {
        let value = || {
            Value::from_iter([
                ("command", json!("npx")),
                ("args", Value::from_iter(["-y", "p"])),
            ])
        };
        let add = |path: &str, text: &str| changed(Path::new(path), text, "new", value());
        let new = "new:\n    command: npx\n    args: [\"-y\", p]\n";
        assert_eq!(add("f.yaml", "").unwrap(), format!("mcpServers:\n  {new}"));
        let known = "listen: 127.0.0.1:1 # mine\nmcpServers:\n  old: { command: x }\n";
        let added = add("f.yaml", known).unwrap();
        assert!(
            added.contains(new)
                && added.contains("# mine")
                && added.contains("old: { command: x }"),
            "{added}"
        );
        let json = add("mcp.json", r#"{"mcpServers": {"old": {"command": "x"}}}"#).unwrap();
        assert!(
            json.contains(r#""new""#) && json.contains(r#""old": {"command": "x"}"#),
            "{json}"
        );
        assert!(add("mcp.json", "").unwrap().contains("mcpServers"));
        let twice = add("f.yaml", "mcpServers:\n  new: { command: x }\n").unwrap_err();
        assert!(twice.contains("already"), "{twice}");
    }
}
