//! The text of the new configuration, and a check of its servers.

use std::path::Path;

use fanlight_config::client_files::to_yaml;
use fanlight_config::{ConfigErrors, Problem, parse};
use serde_json::{Value, json};

use super::merge::Taken;
use super::secrets::Moved;
use crate::configuration::variable;

/// The configuration with these servers. `env_file` is in the same folder.
pub(super) fn configuration(taken: &[Taken], env_file: Option<&Path>) -> String {
    let mut text =
        "# Written by `fanlight import`. `fanlight check` tests whether these servers start.\n"
            .to_owned();
    if let Some(name) = env_file.and_then(Path::file_name) {
        text += &to_yaml(&json!({ "envFile": name.to_string_lossy() }), "");
    }
    text += "\nmcpServers:\n";
    for server in taken {
        let from: Vec<_> = server
            .from
            .iter()
            .map(|place| place.path.display().to_string())
            .collect();
        // A line break in a file's name would end the comment.
        let from = from.join(", ").replace(['\n', '\r'], " ");
        text += &format!("  # {from}\n{}", to_yaml(&entry(server), "  "));
    }
    text
}

fn entry(server: &Taken) -> Value {
    json!({ &server.name: server.value })
}

/// Checks a server's definition. Values of missing variables are not judged.
pub(super) fn check(server: &Taken, moved: &Moved) -> Result<(), String> {
    let text = format!("mcpServers:\n{}", to_yaml(&entry(server), "  "));
    // In the client's file these have no effect; in Fanlight's they would.
    if ["${exec:", "${keyring:"]
        .iter()
        .any(|one| text.contains(one))
    {
        return Err("a client's file may not refer to a program or a keyring".to_owned());
    }
    let variable = |name: &str| {
        let known = moved.variables.iter().find(|(known, _)| known == name);
        known
            .map(|(_, value)| value.clone())
            .or_else(|| variable(name))
    };
    let errors = parse(&text, Path::new("fanlight.yaml"), &variable)
        .err()
        .and_then(ConfigErrors::without_missing_variables);
    let first = errors.as_ref().and_then(|errors| errors.problems().first());
    first
        .map(Problem::message)
        .map_or(Ok(()), |message| Err(message.to_owned()))
}

/// Collects the variables that an entry refers to without a default.
pub(super) fn variables(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            for rest in text.split("${").skip(1) {
                let name = rest.split('}').next().unwrap_or_default();
                if !name.contains(":-") && !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| variables(item, names)),
        Value::Object(members) => members.values().for_each(|value| variables(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::merge::Place;

    #[test]
    fn configuration_has_where_each_server_is_from() {
        let place = Place {
            title: "Cursor",
            path: "/h/.cursor/mcp.json".into(),
            name: "a b".to_owned(),
        };
        let value = Value::from_iter([
            ("command", json!("npx")),
            ("args", Value::from_iter(["-y", "${X} ${Y:-1}"])),
        ]);
        let taken = [Taken {
            name: "a b".to_owned(),
            value,
            from: vec![place],
        }];
        let text = configuration(&taken, Some(Path::new("/x/fanlight.env")));
        assert!(
            text.ends_with(
                "envFile: fanlight.env\n\nmcpServers:\n  # /h/.cursor/mcp.json\n  \"a b\":\n    command: npx\n    args: [\"-y\", \
                 \"${X} ${Y:-1}\"]\n"
            ),
            "{text}"
        );
        let mut names = Vec::new();
        variables(&taken[0].value, &mut names);
        assert_eq!(names, ["X"]);
        assert_eq!(check(&taken[0], &Moved::default()), Ok(()));
        let wrong = Taken {
            name: "w".to_owned(),
            value: Value::from_iter([("url", json!("ftp://h/"))]),
            from: Vec::new(),
        };
        assert!(
            check(&wrong, &Moved::default())
                .unwrap_err()
                .contains("neither an http")
        );
    }
}
