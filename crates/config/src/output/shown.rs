//! A shown configuration: in the file's notation, complete with defaults, without secrets.

use crate::{Config, Secret, Server, Transport};
use serde_json::{Map, Value, json};

use crate::model::values::url_without_secrets;
use crate::option::Options as _;
use crate::report::mask::HIDDEN;

impl Config {
    /// The configuration in force as indented JSON. Tokens, keys, arguments, values of variables
    /// and headers, and URLs beyond their host are `***`.
    pub fn masked_json(&self) -> String {
        let mut shown = self.show();
        let servers: Map<String, Value> = self
            .servers
            .iter()
            .map(|one| (one.name.clone(), server(one)))
            .collect();
        shown.insert("mcpServers".to_owned(), Value::Object(servers));
        format!("{:#}", Value::Object(shown))
    }
}

fn server(server: &Server) -> Value {
    let mut shown = server.show();
    let mut add = |key: &str, value: Value| shown.insert(key.to_owned(), value);
    match &server.transport {
        Transport::Stdio {
            command,
            args,
            env,
            cwd,
        } => {
            add("type", json!("stdio"));
            // A command that is a whole command line may hold a secret after the program.
            let shown = match command.split_once(char::is_whitespace) {
                Some((program, _)) => format!("{program} {HIDDEN}"),
                None => command.clone(),
            };
            add("command", json!(shown));
            add("args", json!(vec![HIDDEN; args.len()]));
            add("env", hidden_values(env));
            add(
                "cwd",
                json!(cwd.as_ref().map(|folder| folder.display().to_string())),
            );
        }
        Transport::Http { url, headers } | Transport::Sse { url, headers } => {
            add(
                "type",
                json!(if matches!(server.transport, Transport::Sse { .. }) {
                    "sse"
                } else {
                    "http"
                }),
            );
            add("url", json!(url_without_secrets(url)));
            if !server.endpoints.urls.is_empty() {
                let shown = server.endpoints.urls.iter();
                add("urls", shown.map(|url| url_without_secrets(url)).collect());
            }
            add("headers", hidden_values(headers));
        }
        Transport::Incomplete { is_process, why } => {
            add("type", json!(if *is_process { "stdio" } else { "http" }));
            add("incomplete", json!(why));
        }
    }
    Value::Object(shown)
}

fn hidden_values(pairs: &[(String, Secret)]) -> Value {
    pairs
        .iter()
        .map(|(name, value)| (name.clone(), json!(value.to_string())))
        .collect::<Map<_, _>>()
        .into()
}
