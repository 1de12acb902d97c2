//! `fanlight connect`: adds this gateway to a client's file.

mod file;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use fanlight_config::client_files::{Client, Credential, Entry, Places, Reach, System};
use fanlight_config::{Config, ListenAddress, scheme};
use itertools::Itertools as _;
use serde_json::{Value, json};

use crate::cli::{CommonArgs, ConnectArgs, NAME};
use crate::observe::columns::render_rows;
use crate::{Failure, Result, complain, configuration, out, say};
use file::{ClientFile, Undone};

/// Lists the clients of this machine, or writes to the file of one.
pub fn connect(args: &ConnectArgs, common: &CommonArgs) -> Result {
    let places = machine_places();
    let Some(name) = &args.client else {
        return list(args, places.as_ref());
    };
    let client = Client::from_name(name).ok_or_else(|| unknown_client(name))?;
    let mut file = ClientFile::new(client, find(client, args, places.as_ref())?);
    if args.project {
        file.project = Some(std::env::current_dir().unwrap_or_default());
    }
    let shown = shown_path(places.as_ref(), &file.path);
    if args.undo {
        let (action, text) = match file.undo(&args.name)? {
            Undone::Restored => (
                "restored",
                format!("{shown} has its previous content again"),
            ),
            Undone::Deleted => (
                "deleted",
                format!("{shown} existed only for Fanlight and is removed"),
            ),
            Undone::Removed => (
                "removed",
                format!("the entry is removed from {shown}; other changes stay"),
            ),
        };
        return report(args, client, &file.path, action, &text);
    }
    let target = target_of(args, common)?;
    let token = std::env::var("FANLIGHT_TOKEN")
        .ok()
        .filter(|_| args.write_token);
    if args.write_token && token.is_none() {
        return Err(usage!(
            "--write-token writes the token in FANLIGHT_TOKEN, which is not set",
        ));
    }
    let entry = target.entry(client, &args.name, token.as_deref());
    if args.print {
        return print(args, client, &shown, &entry);
    }
    let backup = file.add(&entry)?;
    let mut text = format!(
        "{} is connected: the entry `{}` is in {shown}",
        client.title(),
        args.name
    );
    if let Some(backup) = &backup {
        text += &format!("\nbackup of the previous file: {}", backup.display());
    }
    text += &format!(
        "\nto undo: fanlight connect {} --undo{}",
        client.as_str(),
        file_options(args)
    );
    if entry.needs_token() {
        text += "\nreplace YOUR_TOKEN with a token; `fanlight keys new` creates one";
    }
    if let Some(variable) = entry.variable() {
        text += &format!(
            "\n{} takes the token from the environment variable {variable}",
            client.title()
        );
    }
    report(args, client, &file.path, "added", &text)
}

/// The options that select the same file again.
fn file_options(args: &ConnectArgs) -> String {
    let mut options = String::new();
    if args.project {
        options += " --project";
    }
    if let Some(file) = &args.file {
        options += &format!(" --file {}", file.display());
    }
    if args.name != NAME {
        options += &format!(" --name {}", args.name);
    }
    options
}

fn unknown_client(name: &str) -> Failure {
    let ids = Client::ALL.into_iter().map(Client::as_str).join(", ");
    usage!("unknown client {name:?}; known clients: {ids}")
}

/// The file to write to.
fn find(client: Client, args: &ConnectArgs, places: Option<&Places>) -> Result<PathBuf> {
    if let Some(path) = &args.file {
        return Ok(path.clone());
    }
    let found = if args.project {
        let files = client.project_files();
        let existing = files
            .iter()
            .find(|file| Path::new(file).is_file())
            .or(files.first());
        existing.map(|file| absolute(Path::new(file)))
    } else {
        places
            .map(|places| places.user_files(client))
            .and_then(|files| {
                let exists = |file: &&PathBuf| file.is_file();
                // Several editors match: prefer an installed one.
                let is_installed =
                    |file: &&PathBuf| file.ancestors().skip(1).take(3).any(Path::is_dir);
                files
                    .iter()
                    .find(exists)
                    .or_else(|| files.iter().find(is_installed))
                    .or(files.first())
                    .cloned()
            })
    };
    found.ok_or_else(|| {
        let why = if args.project {
            "has no file for projects"
        } else {
            "has no known file: HOME is not set"
        };
        usage!("{} {why}; name one with --file", client.title())
    })
}

/// How clients reach the gateway with this configuration.
fn target_of(args: &ConnectArgs, common: &CommonArgs) -> Result<Target> {
    let config = configuration::paths(common).unwrap_or_default();
    if let Some(url) = args.url.as_ref().filter(|_| !args.stdio) {
        return Ok(Target {
            url: Some(url.clone()),
            needs_token: false,
            config,
        });
    }
    let loaded = match config.is_empty() {
        true => Config::default(),
        false => match fanlight_config::load_all(&config, &configuration::variable) {
            Ok(loaded) => loaded.config,
            // The values of missing variables are not needed here.
            Err(errors) => errors
                .without_missing_variables()
                .map_or(Ok(Config::default()), Err)?,
        },
    };
    let url = endpoint_url(&loaded, &loaded.listen).filter(|_| !args.stdio);
    Ok(Target {
        url,
        needs_token: loaded.auth.methods().is_some(),
        config,
    })
}

/// The URL of the endpoint that clients are connected to at this address, if it is reached over TCP.
pub fn endpoint_url(config: &Config, listen: &ListenAddress) -> Option<String> {
    let base = match (&config.public_url, listen) {
        (Some(url), _) => url.clone(),
        (None, ListenAddress::Ip(address)) => format!("{}://{address}", scheme(&config.tls)),
        (None, ListenAddress::Unix(_)) => return None,
    };
    Some(base + config.shown_path())
}

/// The longest name that an entry for this gateway has in a client's file, and the client.
pub fn longest_entry(config: &Config) -> Option<(Client, String)> {
    let places = machine_places()?;
    let url = endpoint_url(config, &config.listen);
    let names = |client: Client| {
        let project = client.project_files().iter().map(PathBuf::from);
        let files = places.user_files(client).into_iter().chain(project);
        let names = files.flat_map(|path| ClientFile::new(client, path).own_names(url.as_deref()));
        names.map(move |name| (client, name)).collect_vec()
    };
    let all = Client::ALL.into_iter().flat_map(names);
    all.max_by_key(|(_, name)| name.len())
}

fn print(args: &ConnectArgs, client: Client, file: &str, entry: &Entry) -> Result {
    if args.json {
        out::pretty(&entry_json(client, Some(file), entry));
        return Ok(());
    }
    if std::io::stdout().is_terminal() {
        complain(&format!("into {file}:\n"));
    }
    say!("{}", entry.snippet().text.trim_end());
    Ok(())
}

/// A client's entry, with the file that it belongs into.
fn entry_json(client: Client, file: Option<&str>, entry: &Entry) -> Value {
    let snippet = entry.snippet();
    json!({
        "client": client.as_str(),
        "title": client.title(),
        "file": file,
        "language": snippet.language.as_str(),
        "text": snippet.text,
        "command": snippet.command,
        "variable": entry.variable(),
    })
}

fn report(args: &ConnectArgs, client: Client, file: &Path, action: &str, text: &str) -> Result {
    if args.json {
        let answer = json!({"client": client.as_str(), "file": file.display().to_string(), "action": action});
        out::pretty(&answer);
    } else {
        say!("{text}");
    }
    Ok(())
}

/// Whether a client seems to be installed: its file or a folder of its own exists.
fn is_here(client: Client, path: &Path) -> bool {
    let is_for_all = |folder: &Path| {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        home.as_deref() == Some(folder)
            || std::env::current_dir().is_ok_and(|current| current == folder)
    };
    let has_folder = path
        .parent()
        .is_some_and(|folder| folder.is_dir() && !is_for_all(folder));
    // Claude Code has its file beside its folder.
    let has_other = client == Client::ClaudeCode && path.with_file_name(".claude").is_dir();
    path.is_file() || has_folder || has_other
}

/// Prints the clients, and whether they are installed and connected.
fn list(args: &ConnectArgs, places: Option<&Places>) -> Result {
    let mut rows = Vec::new();
    let mut answer = Vec::new();
    for client in Client::ALL {
        let path = find(client, args, places)?;
        let shown = shown_path(places, &path);
        let is_here = is_here(client, &path);
        let is_connected = path.is_file()
            && ClientFile::new(client, path)
                .has(&args.name)
                .unwrap_or(false);
        let state = match (is_connected, is_here) {
            (true, _) => "connected",
            (false, true) => "found",
            (false, false) => "",
        };
        answer.push(
            json!({"client": client.as_str(), "title": client.title(), "file": shown, "found": is_here,
            "connected": is_connected}),
        );
        rows.push([client.as_str(), client.title(), state, &shown].map(str::to_owned));
    }
    if args.json {
        out::pretty(&Value::from(answer));
        return Ok(());
    }
    say!("{}", render_rows(["CLIENT", "", "HERE", "FILE"], &rows));
    say!("fanlight connect <client> writes the entry; --print shows it, --undo removes it");
    Ok(())
}

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
        let places = machine_places();
        let entry = |client: Client| {
            let file = places
                .as_ref()
                .and_then(|places| Some(places.abbreviate(places.user_files(client).first()?)));
            entry_json(client, file.as_deref(), &self.entry(client, NAME, None))
        };
        Client::ALL.into_iter().map(entry).collect()
    }
}

/// The files of clients on this machine; `None` if the user's home folder is unknown.
pub fn machine_places() -> Option<Places> {
    Places::new(System::current(), &configuration::variable)
}

/// A path as people read it.
pub fn shown_path(places: Option<&Places>, path: &Path) -> String {
    places.map_or_else(
        || path.display().to_string(),
        |places| places.abbreviate(path),
    )
}

/// The path from the root, without `.` and `..`.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
