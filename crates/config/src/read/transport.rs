//! The transport of a server: its `command` or `url` and related options become a [`Transport`].

use std::path::{Path, PathBuf};

use crate::settings::{Secret, Transport};
use url::Url;

use crate::model::headers::Headers;
use crate::model::life::{FOLDER, warn_of_tilde};
use crate::model::server::TYPES;
use crate::option::{Fields, Kind as _, Reader};
use crate::report::problem::quoted;
use crate::syntax::{Entry, Node, Value};

/// The most endpoints of a server.
const MAX_ENDPOINTS: usize = 64;

/// Reads the fields of both transports, of which a server has exactly one, and the URLs of an HTTP
/// server.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    server: &Entry,
    folder: &Path,
) -> Option<(Transport, Vec<String>)> {
    let command = fields.get("command");
    let urls = ["url", "serverUrl", "httpUrl", "urls"].into_iter();
    let urls: Vec<&Entry> = urls.filter_map(|name| fields.get(name)).collect();
    if let [first, others @ ..] = urls.as_slice() {
        for other in others {
            reader.report_both(first, other);
        }
    }
    let kind = fields
        .get("type")
        .and_then(|entry| Some((entry, read_type(reader, entry)?)));
    // Both transports are read in any case, so that a mixed server shows all its problems.
    let stdio = read_stdio(reader, fields, command, folder);
    let http = read_http(reader, fields, urls.first().copied());
    match (command, urls.first()) {
        (Some(command), Some(url)) => reader.report_both(command, url),
        (None, None) => report_neither(reader, server, kind.map(|(_, kind)| kind)),
        (Some(_), None) => {
            // A process can only use users' keys as credentials, which `env` refers to.
            let has_keys = fields
                .get("auth")
                .and_then(|auth| auth.value.field("type"))
                .is_some_and(is_user_key);
            let foreign = ["headers", "caFile", "resolve", "auth"];
            report_foreign(
                reader,
                fields,
                foreign
                    .get(..if has_keys { 3 } else { 4 })
                    .unwrap_or_default(),
                "url",
            );
            if let Some(entry) = fields.get("forwardHeaders") {
                let message = "`forwardHeaders` needs `url`: a process gets no headers";
                reader.error(entry.key_span, message, "remove it");
            }
            check_type(reader, kind, kind.is_none_or(|(_, kind)| kind == "stdio"));
            return Some((stdio?, Vec::new()));
        }
        (None, Some(_)) => {
            report_foreign(
                reader,
                fields,
                &[
                    "args",
                    "env",
                    "envFile",
                    "inheritEnv",
                    "cwd",
                    "start",
                    "idle",
                    "sandbox",
                ],
                "command",
            );
            check_type(reader, kind, kind.is_none_or(|(_, kind)| kind != "stdio"));
            let (urls, headers) = http?;
            let url = urls.first()?.clone();
            let transport = match kind {
                Some((_, "sse")) => Transport::Sse { url, headers },
                _ => Transport::Http { url, headers },
            };
            return Some((transport, urls));
        }
    }
    None
}

fn read_type(reader: &mut Reader<'_>, entry: &Entry) -> Option<&'static str> {
    let text = reader.text(entry)?;
    let found = TYPES.iter().find(|word| **word == text.value).copied();
    if found.is_none() {
        reader.unknown_word(entry, &text, TYPES);
    }
    found
}

fn read_stdio(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    command: Option<&Entry>,
    folder: &Path,
) -> Option<Transport> {
    let env = fields.get("env");
    if let Some(env) = env {
        let pairs = env.value.entries().iter();
        reader.of_process = pairs.map(|pair| pair.key.clone()).collect();
    }
    let args = fields
        .get("args")
        .and_then(|entry| reader.scalars(entry))
        .unwrap_or_default();
    reader.of_process.clear();
    for arg in args.iter().filter(|arg| arg.value.contains('\0')) {
        let help = "remove the null character";
        reader.error(arg.span, "an argument cannot hold a null character", help);
    }
    let env = env.map(|entry| read_env(reader, entry)).unwrap_or_default();
    let cwd = read_path(reader, fields, "cwd", folder);
    Some(Transport::Stdio {
        command: read_command(reader, command?, args.is_empty())?,
        args: args.into_iter().map(|arg| arg.value).collect(),
        env,
        cwd,
    })
}

fn read_command(reader: &mut Reader<'_>, entry: &Entry, no_args: bool) -> Option<String> {
    let text = reader.text(entry)?;
    if text.value.trim().is_empty() || text.value.contains('\0') {
        let message = "`command` is not the name of a program";
        reader.error(text.span, message, "write a program, such as `npx`");
        return None;
    }
    let program = text.value.split_whitespace().next().unwrap_or_default();
    if no_args && program != text.value && !program.contains(['/', '\\']) {
        reader.warn(
            text.span,
            "`command` is the name of one program, spaces included",
            "put the arguments in `args`",
        );
    }
    warn_of_tilde(reader, &text);
    Some(text.value)
}

/// The file or folder that an option names.
pub(crate) fn read_path(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    option: &'static str,
    folder: &Path,
) -> Option<PathBuf> {
    let text = reader.text(fields.get(option)?)?;
    Some(folder.join((FOLDER.parse)(reader, text)?))
}

fn is_user_key(kind: &Node) -> bool {
    matches!(&kind.value, Value::String(word) if word == "userKey")
}

/// The per-user variables in `env`, each with the server whose user credential it holds.
pub(crate) fn user_env(fields: &Fields<'_>) -> Vec<(String, String)> {
    let pairs = fields.get("env");
    let pairs = pairs.map_or(&[][..], |entry| entry.value.entries());
    pairs
        .iter()
        .filter_map(|pair| Some((pair.key.clone(), user_server(pair)?.to_owned())))
        .collect()
}

/// The server that a variable names as `${user:SERVER}`, which must be the whole value.
fn user_server(pair: &Entry) -> Option<&str> {
    let Value::String(text) = &pair.value.value else {
        return None;
    };
    let server = text.strip_prefix("${user:")?.strip_suffix('}')?;
    Some(server).filter(|server| !server.is_empty() && !server.contains(['$', '{', '}']))
}

fn read_env(reader: &mut Reader<'_>, entry: &Entry) -> Vec<(String, Secret)> {
    let mut own = entry.clone();
    if let Value::Map(pairs) = &mut own.value.value {
        pairs.retain(|pair| user_server(pair).is_none());
    }
    let mut env = Vec::new();
    for (pair, text) in reader.pairs(&own) {
        if pair.key.is_empty() || pair.key.contains(['=', '\0']) {
            let message = format!("{} is not the name of a variable", quoted(&pair.key));
            let help = "write a name without `=`";
            reader.error(pair.key_span, message, help);
        } else if text.value.contains('\0') {
            let help = "remove the null character";
            reader.error(text.span, "a variable cannot hold a null character", help);
        }
        env.push((pair.key.clone(), Secret::new(text.value)));
    }
    env
}

/// URLs and their headers.
type Http = (Vec<String>, Vec<(String, Secret)>);

fn read_http(reader: &mut Reader<'_>, fields: &Fields<'_>, urls: Option<&Entry>) -> Option<Http> {
    let headers = fields
        .get("headers")
        .and_then(|entry| Headers.read(reader, entry))
        .unwrap_or_default();
    let urls = urls?;
    let read = match urls.key.as_str() {
        "urls" => read_urls(reader, urls)?,
        key => vec![read_url(reader, &quoted(key), &urls.value)?],
    };
    Some((read, headers))
}

/// A list of URLs.
fn read_urls(reader: &mut Reader<'_>, entry: &Entry) -> Option<Vec<String>> {
    let help = "write a list of URLs";
    let items = reader.items(entry, "a list", help)?;
    if items.is_empty() || items.len() > MAX_ENDPOINTS {
        let message = format!(
            "`urls` has {} entries: at least 1, at most {MAX_ENDPOINTS}",
            items.len()
        );
        reader.error(entry.value.span, message, help);
        return None;
    }
    let read: Vec<_> = items
        .iter()
        .map(|item| read_url(reader, "an entry of `urls`", item))
        .collect();
    let read = read.into_iter().collect::<Option<Vec<String>>>()?;
    for (at, item) in items.iter().enumerate() {
        if read
            .iter()
            .take(at)
            .any(|earlier| read.get(at) == Some(earlier))
        {
            reader.error(
                item.span,
                "this endpoint is given twice",
                "keep one of the two",
            );
        }
    }
    Some(read)
}

fn read_url(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<String> {
    let help = "write an http or https URL with a host, such as `https://example.com/mcp`";
    let text = reader.string(what, node)?;
    // The message does not repeat the URL, which may hold a token.
    match Url::parse(&text.value) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Some(text.value),
        Ok(_) => reader.error(
            text.span,
            format!("{what} is neither an http nor an https URL"),
            help,
        ),
        Err(error) => reader.error(text.span, format!("{what} is not a URL: {error}"), help),
    }
    None
}

fn report_neither(reader: &mut Reader<'_>, server: &Entry, kind: Option<&str>) {
    let (message, help) = match kind {
        Some("stdio") => ("has no `command`", "add the program to start as `command`"),
        Some(_) => ("has no `url`", "add the server's endpoint as `url`"),
        None => (
            "has neither `command` nor `url`",
            "add `command` for a program to start, or `url` for a server to reach over HTTP",
        ),
    };
    let message = format!("the server {} {message}", quoted(&server.key));
    reader.error(server.key_span, message, help);
}

/// Reports fields of the other transport, which would be lost silently.
fn report_foreign(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    names: &[&'static str],
    needed: &str,
) {
    for entry in names.iter().filter_map(|name| fields.get(name)) {
        let empty = match &entry.value.value {
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
            _ => false,
        };
        if !empty {
            let message = format!("{} has no effect without `{needed}`", quoted(&entry.key));
            reader.warn(entry.key_span, message, "remove it");
        }
    }
}

fn check_type(reader: &mut Reader<'_>, kind: Option<(&Entry, &str)>, fits: bool) {
    if let Some((entry, kind)) = kind.filter(|_| !fits) {
        let (given, meant) = if kind == "stdio" {
            ("url", "http")
        } else {
            ("command", "stdio")
        };
        let message = format!("the type `{kind}` does not fit `{given}`");
        reader.error(
            entry.value.span,
            message,
            &format!("write `{meant}`, or leave `type` out"),
        );
    }
}
