//! How clients reach this gateway, and the resulting entry for each client.

use std::path::{Path, PathBuf};

use fanlight_config::client_files::{Client, Credential, Entry, Places, Reach, System};
use serde_json::{Value, json};

use crate::cli::NAME;

/// How clients reach a gateway.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The URL of the endpoint, if it is reached over TCP.
    pub url: Option<String>,
    /// Whether the endpoint requires a token.
    pub needs_token: bool,
    /// The configuration files, for clients that start the gateway themselves; empty for the demo.
    pub config: Vec<PathBuf>,
}

impl Target {
    /// The entry for a client. It contains `token` if the endpoint requires one.
    pub fn entry(&self, client: Client, name: &str, token: Option<&str>) -> Entry {
        Entry::new(client, name, self.reach(client, token))
    }

    fn reach(&self, client: Client, token: Option<&str>) -> Reach {
        match &self.url {
            Some(url) if client.speaks_http() => {
                let credential = match token {
                    Some(token) => Credential::Token(token.to_owned()),
                    None if self.needs_token => Credential::Unknown,
                    None => Credential::None,
                };
                Reach::Http {
                    url: url.clone(),
                    credential,
                }
            }
            _ => self.stdio(),
        }
    }

    /// The command with which a client starts its own gateway with the same configuration.
    fn stdio(&self) -> Reach {
        let command = std::env::current_exe()
            .map_or_else(|_| NAME.to_owned(), |path| path.display().to_string());
        let mut args = vec!["stdio".to_owned()];
        for path in &self.config {
            args.extend(["--config".to_owned(), absolute(path).display().to_string()]);
        }
        Reach::Stdio { command, args }
    }

    /// The entries for all clients, as returned by `/api/connect`.
    pub fn to_json(&self) -> Value {
        let places = Places::new(System::current(), &|name| std::env::var(name).ok());
        let entry = |client: Client| {
            let entry = self.entry(client, NAME, None);
            let snippet = entry.snippet();
            let file = places
                .as_ref()
                .and_then(|places| Some(places.shown(places.of_user(client).first()?)));
            json!({
                "client": client.id(),
                "title": client.title(),
                "file": file,
                "language": snippet.language.name(),
                "text": snippet.text,
                "command": snippet.command,
                "variable": entry.variable(),
            })
        };
        Client::ALL.into_iter().map(entry).collect()
    }
}

/// The path from the root, without `.` and `..`.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
