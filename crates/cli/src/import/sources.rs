//! The sources of servers: the files of clients on this machine, and the command line's arguments.

use std::iter::repeat;
use std::path::{Path, PathBuf};

use fanlight_config::client_files::{Client, ClientFile, Places, server_json};
use fanlight_config::document::{Node, Source as Text, Syntax};
use fanlight_config::settings::read_bounded;
use fanlight_config::{MAX_FILE_SIZE, is_server_option};
use itertools::Itertools as _;
use serde_json::Value;

use crate::connect::absolute;
use crate::failure::Failure;

/// A file and its servers.
#[derive(Default)]
pub(super) struct Source {
    /// The name of the client, or of the kind of file.
    pub(super) title: &'static str,
    pub(super) client: Option<Client>,
    pub(super) path: PathBuf,
    pub(super) servers: Vec<(String, Value)>,
    /// The parts that are not imported, with reasons.
    pub(super) left_out: Vec<String>,
    /// The variables that a package needs, with descriptions.
    pub(super) variables: Vec<(String, String)>,
}

/// Every file of a known client, both the user's and this folder's project's. An
/// unreadable file counts as one without servers.
pub(super) fn machine_sources(places: Option<&Places>) -> Vec<Source> {
    let clients = Client::ALL.into_iter().flat_map(|client| {
        files_of(client, places)
            .into_iter()
            .zip(repeat(Some(client)))
    });
    let others = places.map(|places| places.other_files(&absolute(Path::new(""))));
    let files = clients.chain(others.into_iter().flatten().zip(repeat(None)));
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut sources = Vec::new();
    for (path, client) in files.filter(|(path, _)| path.is_file()) {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&real) {
            continue;
        }
        seen.push(real);
        let source = match client {
            Some(client) => client_source(client, &path, places),
            None => read_source(&path, places),
        };
        sources.push(source.unwrap_or_else(|reason| Source {
            title: client.map_or("", Client::title),
            client,
            path,
            left_out: vec![reason],
            ..Source::default()
        }));
    }
    sources
}

fn files_of(client: Client, places: Option<&Places>) -> Vec<PathBuf> {
    let of_user = places
        .map(|places| places.user_files(client))
        .unwrap_or_default();
    let of_project = client
        .project_files()
        .iter()
        .map(|file| absolute(Path::new(file)));
    let mut files: Vec<PathBuf> = of_user.into_iter().chain(of_project).collect();
    if client == Client::Continue {
        let home = places.map(|places| places.home().to_owned());
        let folders = home.into_iter().chain([absolute(Path::new(""))]);
        for folder in folders.map(|folder| folder.join(".continue/mcpServers")) {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            found.retain(|path| {
                path.extension()
                    .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
            });
            found.sort();
            files.extend(found);
        }
    }
    files
}

/// The sources that an argument of the command line names: a file, or a client with all its files.
pub(super) fn find(from: &str, places: Option<&Places>) -> Result<Vec<Source>, Failure> {
    let path = Path::new(from);
    if path.is_file() {
        return Ok(vec![
            read_source(&absolute(path), places).map_err(Failure::usage)?,
        ]);
    }
    let Some(client) = Client::from_name(from) else {
        let ids = Client::ALL.into_iter().map(Client::as_str).join(", ");
        return Err(usage!(
            "{from} is neither a file nor a known client; clients: {ids}"
        ));
    };
    let files = files_of(client, places);
    let found = files.iter().filter(|path| path.is_file()).collect_vec();
    if found.is_empty() {
        let looked = files
            .iter()
            .map(|path| path.display().to_string())
            .join(", ");
        return Err(usage!(
            "{} has no file on this machine: {looked}",
            client.title()
        ));
    }
    found
        .into_iter()
        .map(|path| client_source(client, path, places).map_err(Failure::usage))
        .collect()
}

/// The source in a file: a package or some client's file.
fn read_source(path: &Path, places: Option<&Places>) -> Result<Source, String> {
    let root = tree(path)?;
    let has = |key: &str| root.field(key).is_some();
    if has("packages")
        || has("remotes")
        || root
            .field("server")
            .is_some_and(|server| server.field("name").is_some())
    {
        let server = server_json(&root).map_err(|reason| describe_place(path, &reason))?;
        return Ok(Source {
            title: "server.json",
            path: path.to_owned(),
            servers: vec![(server.name, server.value)],
            left_out: server.notes,
            variables: server.variables,
            ..Source::default()
        });
    }
    // A file of Fanlight's own is read in the notation that most clients share.
    let file = ClientFile::read(path, &root)
        .unwrap_or_else(|| ClientFile::read_as(Client::Cursor, path, &root));
    Ok(taken(path, places, file))
}

fn client_source(client: Client, path: &Path, places: Option<&Places>) -> Result<Source, String> {
    let root = tree(path)?;
    let file = ClientFile::read_as(client, path, &root);
    Ok(taken(path, places, file))
}

fn taken(path: &Path, places: Option<&Places>, mut file: ClientFile) -> Source {
    // Entries in the user's home folder apply to all projects.
    file.project = file
        .project
        .filter(|project| places.is_none_or(|places| places.home() != project));
    let (servers, mut left_out) = file.own_entries(path, &is_server_option);
    left_out.extend(file.notes.iter().map(|note| note.message.clone()));
    Source {
        title: file.title,
        client: file.client,
        path: path.to_owned(),
        servers,
        left_out,
        ..Source::default()
    }
}

/// The tree of a file; an empty tree if the file is empty.
fn tree(path: &Path) -> Result<Node, String> {
    let bytes = read_bounded(path, MAX_FILE_SIZE)
        .map_err(|error| describe_place(path, &format!("cannot be read: {error}")))?;
    if bytes.len() > MAX_FILE_SIZE {
        return Err(describe_place(path, "is too large for a configuration"));
    }
    let text = String::from_utf8(bytes).map_err(|_| describe_place(path, "is not UTF-8 text"))?;
    let source = Text::new(&text);
    let syntax = Syntax::detect(path, source.text());
    match fanlight_config::document::parse(&source, syntax) {
        Ok(Some(root)) => Ok(root),
        Ok(None) => Ok(Node {
            span: fanlight_config::document::Span::new(0, 0),
            value: fanlight_config::document::Value::Map(Vec::new()),
        }),
        Err(error) => Err(format!(
            "{}:{}: {}",
            path.display(),
            source.position(error.span.start).line,
            error.message
        )),
    }
}

fn describe_place(path: &Path, reason: &str) -> String {
    format!("{}: {reason}", path.display())
}
