//! `server.json` of the MCP registry: packages to start, and remote servers.

use serde_json::{Value as Json, json};

use super::{PackagedServer, is_true, items, reference, short_name, text, variable_name};
use crate::document::Node;

/// The server of a `server.json`, or the reason for none. A remote server over Streamable HTTP is
/// preferred, then one over SSE, then the first package that can be started.
///
/// # Errors
///
/// The file lacks something.
pub fn server_json(root: &Node) -> Result<PackagedServer, String> {
    // The registry's API wraps the server.
    let root = root
        .field("server")
        .filter(|inner| inner.field("name").is_some())
        .unwrap_or(root);
    let name = text(root, "name").ok_or("it has no `name`")?;
    let mut server = Builder {
        variables: Vec::new(),
        notes: Vec::new(),
    };
    let remotes = items(root, "remotes");
    let kind = |remote: &Node| {
        text(remote, "type")
            .or_else(|| text(remote, "transport_type"))
            .unwrap_or_default()
            .to_string()
    };
    let over = |wanted: &str| remotes.iter().find(|remote| kind(remote) == wanted);
    let packages = items(root, "packages");
    let value = if let Some(remote) = over("streamable-http")
        .or_else(|| over("streamable"))
        .or_else(|| over("sse"))
    {
        if !packages.is_empty() {
            server
                .notes
                .push("it can also be installed; the remote server was taken".to_owned());
        }
        server.remote(remote, kind(remote) == "sse")?
    } else {
        let mut reasons = Vec::new();
        let started = packages
            .iter()
            .find_map(|package| match server.package(package) {
                Ok(value) => Some(value),
                Err(reason) => {
                    reasons.push(reason);
                    None
                }
            });
        let nothing = "it has neither `packages` nor `remotes`".to_owned();
        started.ok_or_else(|| {
            if reasons.is_empty() {
                nothing
            } else {
                reasons.join("; ")
            }
        })?
    };
    Ok(PackagedServer {
        name: short_name(&name),
        value,
        variables: server.variables,
        notes: server.notes,
    })
}

struct Builder {
    variables: Vec<(String, String)>,
    notes: Vec<String>,
}

impl Builder {
    fn remote(&mut self, remote: &Node, is_sse: bool) -> Result<Json, String> {
        let url = text(remote, "url").ok_or("its remote server has no `url`")?;
        let mut entry = json!({});
        if is_sse {
            entry["type"] = json!("sse");
        }
        entry["url"] = json!(self.filled(&url, remote.field("variables")));
        let headers = items(remote, "headers")
            .iter()
            .filter_map(|header| self.named_value(header))
            .collect::<Vec<_>>();
        if !headers.is_empty() {
            entry["headers"] = headers.into_iter().collect();
        }
        Ok(entry)
    }

    fn package(&mut self, package: &Node) -> Result<Json, String> {
        let any = |keys: [&str; 2]| {
            keys.into_iter()
                .find_map(|key| text(package, key))
                .map(|text| text.into_owned())
        };
        let kind = any(["registryType", "registry_type"])
            .or_else(|| any(["registry_name", "registryName"]))
            .unwrap_or_default();
        let identifier = any(["identifier", "name"]).ok_or("its package has no `identifier`")?;
        let version = any(["version", "version"]).filter(|version| version != "latest");
        let transport = package
            .field("transport")
            .and_then(|transport| text(transport, "type"));
        if transport
            .as_ref()
            .is_some_and(|transport| transport != "stdio")
        {
            return Err(format!(
                "`{identifier}` is started by hand and serves over HTTP: start it, and write its URL"
            ));
        }
        let hint = any(["runtimeHint", "runtime_hint"]);
        let list = |key: &str, former: &str| match items(package, key) {
            [] => items(package, former).to_vec(),
            items => items.to_vec(),
        };
        let mut runtime = self.arguments(&list("runtimeArguments", "runtime_arguments"));
        let arguments = self.arguments(&list("packageArguments", "package_arguments"));
        let variables = list("environmentVariables", "environment_variables");
        let env: Vec<(String, Json)> = variables
            .iter()
            .filter_map(|variable| self.named_value(variable))
            .collect();
        let at = |separator: &str| match &version {
            Some(version) => format!("{identifier}{separator}{version}"),
            None => identifier.clone(),
        };
        let (command, args) = match kind.as_str() {
            "npm" => {
                if runtime.is_empty() {
                    runtime.push("-y".to_owned());
                }
                ("npx", [runtime, vec![at("@")], arguments].concat())
            }
            "pypi" => ("uvx", [runtime, vec![at("@")], arguments].concat()),
            "nuget" => (
                "dnx",
                [
                    runtime,
                    vec![at("@"), "--yes".to_owned(), "--".to_owned()],
                    arguments,
                ]
                .concat(),
            ),
            "oci" | "docker" => {
                let mut run: Vec<String> = ["run", "-i", "--rm"].map(str::to_owned).to_vec();
                run.extend(runtime);
                run.extend(
                    env.iter()
                        .flat_map(|(name, _)| ["-e".to_owned(), name.clone()]),
                );
                let has_tag = identifier
                    .rsplit('/')
                    .next()
                    .is_some_and(|last| last.contains([':', '@']));
                run.push(if has_tag { identifier } else { at(":") });
                ("docker", [run, arguments].concat())
            }
            "mcpb" => {
                return Err("its package is an .mcpb bundle, which is not supported".to_owned());
            }
            other => {
                return Err(format!(
                    "its package is of the registry `{other}`, which is not known here"
                ));
            }
        };
        let mut entry = json!({ "command": hint.as_deref().unwrap_or(command), "args": args });
        if !env.is_empty() {
            entry["env"] = env.into_iter().collect();
        }
        Ok(entry)
    }

    /// Arguments as words, without optional ones that have no value.
    fn arguments(&mut self, list: &[Node]) -> Vec<String> {
        let mut words = Vec::new();
        for argument in list {
            let hint = text(argument, "valueHint").or_else(|| text(argument, "value_hint"));
            let name = text(argument, "name");
            let is_named = text(argument, "type").is_some_and(|kind| kind == "named");
            let called = hint
                .or_else(|| name.clone())
                .unwrap_or_else(|| "argument".into());
            let value = self.value(argument, called.trim_start_matches('-'));
            match (is_named, name, value) {
                (true, Some(name), Some(value)) => words.extend([name.into_owned(), value]),
                // The argument is a switch.
                (true, Some(name), None)
                    if argument.field("isRequired").is_none()
                        || is_true(argument, "isRequired") =>
                {
                    words.push(name.into_owned());
                }
                (false, _, Some(value)) => words.push(value),
                _ => {}
            }
        }
        words
    }

    /// A header or variable with its value.
    fn named_value(&mut self, node: &Node) -> Option<(String, Json)> {
        let name = text(node, "name")?.into_owned();
        let value = self.value(node, &name)?;
        Some((name, json!(value)))
    }

    /// The value of an input: a fixed one, else its default, else a variable if it is required or
    /// secret.
    fn value(&mut self, node: &Node, name: &str) -> Option<String> {
        if let Some(value) = text(node, "value") {
            return Some(self.filled(&value, node.field("variables")));
        }
        let default = text(node, "default");
        let is_wanted = ["isRequired", "is_required", "isSecret", "is_secret"]
            .iter()
            .any(|key| is_true(node, key));
        if !is_wanted {
            return default.map(|default| default.into_owned());
        }
        Some(self.variable(name, node, default.as_deref()))
    }

    fn variable(&mut self, name: &str, node: &Node, default: Option<&str>) -> String {
        let name = variable_name(name);
        let about = text(node, "description")
            .map(|about| about.into_owned())
            .unwrap_or_default();
        if !self.variables.iter().any(|(known, _)| *known == name) {
            self.variables.push((name.clone(), about));
        }
        reference(&name, default)
    }

    /// A text with variables in place of `{name}`.
    fn filled(&mut self, template: &str, variables: Option<&Node>) -> String {
        variables.map_or(&[][..], Node::entries).iter().fold(
            template.to_owned(),
            |text_so_far, variable| {
                let place = format!("{{{}}}", variable.key);
                if !text_so_far.contains(&place) {
                    return text_so_far;
                }
                let fixed = text(&variable.value, "value").map(|value| value.into_owned());
                let default = text(&variable.value, "default");
                let value = fixed.unwrap_or_else(|| {
                    self.variable(&variable.key, &variable.value, default.as_deref())
                });
                text_so_far.replace(&place, &value)
            },
        )
    }
}
