//! The entry for Fanlight in a client's file.

use serde_json::{Value as Json, json};

use crate::client_files::client::Client;
use crate::client_files::item::{
    Language, to_flow, to_json, to_toml, to_yaml, to_yaml_item, toml_key,
};

/// The variable with a client's token for Fanlight.
const VARIABLE: &str = "FANLIGHT_TOKEN";
/// The placeholder for a token if a client reads no variables.
const PLACEHOLDER: &str = "YOUR_TOKEN";

/// A client's way to Fanlight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Over HTTP.
    Http {
        /// The URL of the endpoint.
        url: String,
        /// The credential that the endpoint requires.
        credential: Credential,
    },
    /// The client starts Fanlight.
    Stdio {
        /// The program.
        command: String,
        /// The arguments.
        args: Vec<String>,
    },
}

/// The credential that an endpoint requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Nothing.
    None,
    /// A token that this machine does not know.
    Unknown,
    /// A token that this machine knows.
    Token(String),
}

/// The entry for Fanlight in a client's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    client: Client,
    /// The name among the servers.
    pub name: String,
    /// The entry.
    pub value: Json,
    reach: Option<Reach>,
}

/// An entry with its surroundings, to be pasted by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    /// The notation.
    pub language: Language,
    /// The text.
    pub text: String,
    /// The client's command that adds the entry, if there is one.
    pub command: Option<String>,
}

impl Entry {
    /// The entry of a client; the client must support `reach`.
    pub fn new(client: Client, name: &str, reach: Reach) -> Self {
        let value = match &reach {
            Reach::Http { url, credential } => url_entry(client, name, url, credential),
            Reach::Stdio { command, args } => command_entry(client, name, command, args),
        };
        Self {
            client,
            name: name.to_owned(),
            value,
            reach: Some(reach),
        }
    }

    /// An entry from a file.
    pub fn from_file(client: Client, name: &str, value: Json) -> Self {
        Self {
            client,
            name: name.to_owned(),
            value,
            reach: None,
        }
    }

    /// Whether the user must insert a token by hand, since the client reads no variables.
    pub fn needs_token(&self) -> bool {
        self.wants_token() && variable(self.client).is_none()
    }

    /// The variable with the client's token.
    pub fn variable(&self) -> Option<&'static str> {
        (self.wants_token() && variable(self.client).is_some()).then_some(VARIABLE)
    }

    fn wants_token(&self) -> bool {
        matches!(
            &self.reach,
            Some(Reach::Http {
                credential: Credential::Unknown,
                ..
            })
        )
    }

    /// The entry with its surroundings.
    pub fn snippet(&self) -> Snippet {
        let Self {
            client,
            name,
            value,
            ..
        } = self;
        let section = client.section();
        let text = match client.language() {
            Language::Json => to_json(&json!({ section: { name: value } }), "", "  ") + "\n",
            Language::Toml => format!("[{section}.{}]\n{}", toml_key(name), to_toml(value)),
            Language::Yaml if *client == Client::Continue => {
                format!("{section}:\n{}", to_yaml_item(value, "  "))
            }
            Language::Yaml => to_yaml(&json!({ section: { name: value } }), ""),
        };
        Snippet {
            language: client.language(),
            text,
            command: self.command(),
        }
    }

    /// The client's command that adds the entry.
    fn command(&self) -> Option<String> {
        let Some(Reach::Http { url, credential }) = &self.reach else {
            return None;
        };
        let (name, url) = (for_shell(&self.name), for_shell(url));
        let header =
            authorization(self.client, credential).map(|value| format!("Authorization: {value}"));
        let header = header.map_or_else(String::new, |header| {
            format!(" --header {}", for_shell(&header))
        });
        match self.client {
            Client::ClaudeCode => Some(format!(
                "claude mcp add --transport http {name} {url}{header}"
            )),
            Client::Gemini => Some(format!(
                "gemini mcp add --transport http {name} {url}{header}"
            )),
            Client::Codex => {
                let token = match credential {
                    Credential::None => String::new(),
                    _ => format!(" --bearer-token-env-var {VARIABLE}"),
                };
                Some(format!("codex mcp add {name} --url {url}{token}"))
            }
            Client::VsCode => {
                let Json::Object(mut members) = self.value.clone() else {
                    return None;
                };
                members.shift_insert(0, "name".to_owned(), json!(self.name));
                Some(format!(
                    "code --add-mcp {}",
                    for_shell(&to_flow(&Json::Object(members)))
                ))
            }
            _ => None,
        }
    }
}

/// A word for a shell, quoted if necessary.
pub fn for_shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn url_entry(client: Client, name: &str, url: &str, credential: &Credential) -> Json {
    let mut entry = match client {
        Client::ClaudeCode | Client::VsCode => json!({ "type": "http", "url": url }),
        Client::Windsurf => json!({ "serverUrl": url }),
        Client::Cline => json!({ "type": "streamableHttp", "url": url }),
        Client::Roo => json!({ "type": "streamable-http", "url": url }),
        Client::Gemini => json!({ "httpUrl": url }),
        Client::OpenCode => json!({ "type": "remote", "url": url, "enabled": true }),
        Client::Continue => json!({ "name": name, "type": "streamable-http", "url": url }),
        Client::Goose => goose_entry(name, "streamable_http", &json!({ "uri": url })),
        Client::ClaudeDesktop | Client::Cursor | Client::Codex | Client::Zed | Client::LmStudio => {
            json!({ "url": url })
        }
    };
    if let (Client::Codex, Credential::Unknown) = (client, credential) {
        entry["bearer_token_env_var"] = json!(VARIABLE);
        return entry;
    }
    let Some(value) = authorization(client, credential) else {
        return entry;
    };
    let headers = json!({ "Authorization": value });
    match client {
        Client::Codex => entry["http_headers"] = headers,
        Client::Continue => entry["requestOptions"] = json!({ "headers": headers }),
        _ => {
            if client == Client::Goose && *credential == Credential::Unknown {
                entry["env_keys"] = json!([VARIABLE]);
            }
            entry["headers"] = headers;
        }
    }
    entry
}

fn command_entry(client: Client, name: &str, command: &str, args: &[String]) -> Json {
    match client {
        Client::OpenCode => {
            let words = [&[command.to_owned()][..], args].concat();
            json!({ "type": "local", "command": words, "enabled": true })
        }
        Client::Goose => goose_entry(name, "stdio", &json!({ "cmd": command, "args": args })),
        Client::Continue => json!({ "name": name, "command": command, "args": args }),
        Client::VsCode | Client::ClaudeCode => {
            json!({ "type": "stdio", "command": command, "args": args })
        }
        _ => json!({ "command": command, "args": args }),
    }
}

/// The members that Goose itself writes into each entry, merged with one kind of entry's members.
fn goose_entry(name: &str, kind: &str, members: &Json) -> Json {
    let mut entry = json!({ "enabled": true, "type": kind, "name": name });
    for (key, value) in members.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    entry["description"] = json!("Fanlight");
    entry["timeout"] = json!(300);
    entry
}

/// The value of the header `Authorization`.
fn authorization(client: Client, credential: &Credential) -> Option<String> {
    let token = match credential {
        Credential::None => return None,
        Credential::Token(token) => token.clone(),
        Credential::Unknown => variable(client).unwrap_or_else(|| PLACEHOLDER.to_owned()),
    };
    Some(format!("Bearer {token}"))
}

/// A client's notation for the variable in its file, if it reads variables there.
fn variable(client: Client) -> Option<String> {
    Some(match client {
        Client::ClaudeCode | Client::Goose | Client::Gemini => format!("${{{VARIABLE}}}"),
        Client::Cursor | Client::VsCode | Client::Windsurf | Client::Roo => {
            format!("${{env:{VARIABLE}}}")
        }
        Client::OpenCode => format!("{{env:{VARIABLE}}}"),
        Client::Continue => format!("${{{{ secrets.{VARIABLE} }}}}"),
        Client::Codex => VARIABLE.to_owned(),
        Client::ClaudeDesktop | Client::Cline | Client::Zed | Client::LmStudio => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(client: Client, credential: Credential) -> Snippet {
        let url = "http://127.0.0.1:8080/mcp".to_owned();
        Entry::new(client, "fanlight", Reach::Http { url, credential }).snippet()
    }

    #[test]
    fn snippet_is_in_the_notation_of_each_client() {
        let none = |client| http(client, Credential::None).text;
        assert_eq!(
            none(Client::Windsurf),
            "{\n  \"mcpServers\": {\n    \"fanlight\": {\n      \"serverUrl\": \"http://127.0.0.1:8080/mcp\"\n    }\n  }\n}\n"
        );
        assert_eq!(
            none(Client::Codex),
            "[mcp_servers.fanlight]\nurl = \"http://127.0.0.1:8080/mcp\"\n"
        );
        assert_eq!(
            none(Client::Continue),
            "mcpServers:\n  - name: fanlight\n    type: streamable-http\n    url: \"http://127.0.0.1:8080/mcp\"\n"
        );
        assert!(none(Client::Goose).starts_with(
            "extensions:\n  fanlight:\n    enabled: true\n    type: streamable_http\n"
        ));
    }

    #[test]
    fn token_is_a_variable_where_the_client_reads_variables() {
        let unknown = |client| http(client, Credential::Unknown);
        assert!(
            unknown(Client::Cursor)
                .text
                .contains("\"Bearer ${env:FANLIGHT_TOKEN}\"")
        );
        assert!(
            unknown(Client::Codex)
                .text
                .contains("bearer_token_env_var = \"FANLIGHT_TOKEN\"")
        );
        assert!(unknown(Client::Zed).text.contains("\"Bearer YOUR_TOKEN\""));
        let command = unknown(Client::ClaudeCode).command.unwrap();
        assert_eq!(
            command,
            "claude mcp add --transport http fanlight http://127.0.0.1:8080/mcp --header 'Authorization: Bearer \
             ${FANLIGHT_TOKEN}'"
        );
        let known = http(Client::Cline, Credential::Token("abc".to_owned()));
        assert!(known.text.contains("\"Bearer abc\""));
    }

    #[test]
    fn command_quotes_what_a_shell_would_read() {
        assert_eq!(for_shell("it's"), "'it'\\''s'");
        assert_eq!(for_shell("http://h:1/mcp"), "http://h:1/mcp");
    }
}
