//! One entry of `mcpServers`: a node becomes a [`Server`].

use std::path::Path;
use std::time::Duration;

use crate::settings::{Endpoints, Transport};

use crate::model::life::resolve;
use crate::model::server::{MAX_NAME, Server};
use crate::model::tools::{EntryFilter, PATTERNS};
use crate::option::{Fields, Flag, Kind as _, Options as _, Reader};
use crate::read::transport;
use crate::report::problem::{Finding, quoted};
use crate::syntax::{Entry, Value};

/// A plain number of seconds from which on its author probably meant milliseconds.
const SUSPICIOUS_SECONDS: Duration = Duration::from_secs(10_000);

/// Defaults of servers that come from the rest of the file.
pub(crate) struct Context<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) call_timeout: Duration,
}

/// All servers in the order of the file; those with errors are left out.
pub(crate) fn read_all(
    reader: &mut Reader<'_>,
    entry: &Entry,
    context: &Context<'_>,
) -> Vec<Server> {
    match &entry.value.value {
        Value::Null => Vec::new(),
        Value::Map(entries) => {
            let servers: Vec<Server> = entries
                .iter()
                .filter_map(|entry| read_or_leave_out(reader, entry, context))
                .collect();
            warn_of_prefixes(reader, &servers, entries);
            servers
        }
        _ => {
            reader.wrong_type(
                &quoted(&entry.key),
                &entry.value,
                "a mapping of names to servers",
                "write each server's name as a key, with its `command` or `url` below",
            );
            Vec::new()
        }
    }
}

/// Reads a server, or leaves it out if a value is missing; that is no error of the other servers.
fn read_or_leave_out(
    reader: &mut Reader<'_>,
    entry: &Entry,
    context: &Context<'_>,
) -> Option<Server> {
    let known = reader.findings.errors();
    let server = read(reader, entry, context);
    let missing = if reader.is_lenient {
        reader.findings.take_missing(known)
    } else {
        Vec::new()
    };
    let Some((_, why)) = missing.first() else {
        return server;
    };
    let is_process = entry.value.field("command").is_some();
    let transport = Transport::Incomplete {
        is_process,
        why: why.clone(),
    };
    let server = match server {
        Some(server) => Server {
            transport,
            env_file: None,
            ..server
        },
        // The rest of its entry is not needed.
        None => Server {
            enabled: !is_switched_off(entry),
            ..Server::new(&entry.key, transport)
        },
    };
    for (span, message) in missing.iter().filter(|_| server.enabled) {
        let message = format!("{message}: the server {} is not used", quoted(&entry.key));
        let help = "put it there, or set it and start Fanlight again; the other servers are used meanwhile";
        reader.findings.push(
            Finding::warning(*span, message)
                .help(help)
                .mark_missing_value(),
        );
    }
    Some(server)
}

fn is_switched_off(entry: &Entry) -> bool {
    let flag = |key: &str| match entry.value.field(key)?.value {
        Value::Bool(flag) => Some(flag),
        _ => None,
    };
    flag("enabled") == Some(false) || flag("disabled") == Some(true)
}

fn read(reader: &mut Reader<'_>, entry: &Entry, context: &Context<'_>) -> Option<Server> {
    check_name(reader, entry);
    let what = format!("the server {}", quoted(&entry.key));
    let fields = Fields::open(reader, Server::SECTION, &what, &entry.value)?;
    // Everything is read even with a wrong transport, so that every problem is found.
    let transport = transport::read(reader, &fields, entry, context.folder);
    let mut server: Server = fields.read(reader);
    server.name.clone_from(&entry.key);
    match fields.get("timeout") {
        Some(timeout) => warn_of_milliseconds(reader, timeout, server.timeout),
        None => server.timeout = context.call_timeout,
    }
    server.sandbox.resolve_paths(context.folder);
    let of_auth = server.auth.iter_mut();
    (server.ca_file.iter_mut())
        .chain(of_auth.flat_map(|auth| &mut auth.token_file))
        .for_each(|file| resolve(file, context.folder));
    if let Some(renames) = fields.get("rename") {
        check_new_names(reader, renames, &server.renames);
    }
    read_disabled(reader, &fields, &mut server);
    read_other_filters(reader, &fields, &mut server.tools);
    server.user_env = transport::user_env(&fields);
    server.env_file = transport::read_path(reader, &fields, "envFile", context.folder);
    let (transport, urls) = transport?;
    let set = transport.headers().unwrap_or_default();
    let is_set = |(_, ours): &(String, String)| set.iter().any(|(name, _)| name == ours);
    if let Some(entry) = fields.get("forwardHeaders")
        && server.forward_headers.iter().any(is_set)
    {
        let message = "a header is both in `headers` and in `forwardHeaders`";
        reader.error(entry.key_span, message, "keep one of the two");
    }
    server.transport = transport;
    if fields.get("urls").is_some() || server.resolve.is_some() {
        server.endpoints = Endpoints {
            urls,
            resolve: server.resolve,
        };
    }
    Some(server)
}

fn check_name(reader: &mut Reader<'_>, entry: &Entry) {
    let help = "give the server a short name, such as `github`";
    if entry.key.trim().is_empty() {
        reader.error(entry.key_span, "the name of a server is empty", help);
    } else if entry.key.chars().any(char::is_control) {
        let message = "the name of a server holds a control character";
        reader.error(entry.key_span, message, help);
    } else if entry.key.contains('/') {
        let message = "the name of a server holds a slash, which policies and pins put between a server and its tool";
        reader.error(entry.key_span, message, help);
    } else if entry.key.chars().count() > MAX_NAME {
        let message = format!("the name of a server is longer than {MAX_NAME} characters");
        reader.error(entry.key_span, message, help);
    }
}

/// Reports two tools of a server with one name.
fn check_new_names(reader: &mut Reader<'_>, entry: &Entry, renames: &[(String, String)]) {
    let key_span = |old: &str| {
        entry
            .value
            .entries()
            .iter()
            .find(|entry| entry.key == old)
            .map(|entry| entry.key_span)
    };
    for (at, (old, new)) in renames.iter().enumerate() {
        let first = renames.iter().take(at).find(|(_, other)| other == new);
        if let (Some((first, _)), Some(span)) = (first, key_span(old)) {
            let message = format!("{} and {} get the same name", quoted(first), quoted(old));
            reader.error(span, message, "give each its own");
        }
    }
}

/// Warns of server names that make long prefixes of tool names, which common clients limit to few
/// characters.
fn warn_of_prefixes(reader: &mut Reader<'_>, servers: &[Server], entries: &[Entry]) {
    let enabled = |server: &&Server| server.enabled;
    if servers.iter().filter(enabled).count() < 2 {
        return;
    }
    for server in servers.iter().filter(enabled) {
        let prefix = server.prefix.as_ref().unwrap_or(&server.name);
        let Some(entry) = entries.iter().find(|entry| entry.key == server.name) else {
            continue;
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !prefix.chars().all(fits) {
            reader.warn(
                entry.key_span,
                "tool names of this server start with characters that some clients refuse",
                "set `prefix` to letters, digits, `_` and `-`",
            );
        }
    }
}

fn warn_of_milliseconds(reader: &mut Reader<'_>, entry: &Entry, timeout: Duration) {
    if matches!(entry.value.value, Value::Number(_)) && timeout >= SUSPICIOUS_SECONDS {
        reader.warn(
            entry.value.span,
            "a plain number is seconds: this is a timeout of hours",
            "if milliseconds are meant, write the unit: `30000ms` or `30s`",
        );
    }
}

fn read_disabled(reader: &mut Reader<'_>, fields: &Fields<'_>, server: &mut Server) {
    let Some(disabled) = fields.get("disabled") else {
        return;
    };
    if let Some(enabled) = fields.get("enabled") {
        reader.report_both(enabled, disabled);
    }
    server.enabled &= !Flag.read(reader, disabled).unwrap_or(false);
}

/// Adds other programs' names for `tools.allow` and `tools.deny`.
fn read_other_filters(reader: &mut Reader<'_>, fields: &Fields<'_>, tools: &mut EntryFilter) {
    if let Some(include) = fields.get("includeTools") {
        let own = fields
            .get("tools")
            .map_or(&[][..], |own| own.value.entries());
        let is_allow = |entry: &&Entry| entry.key == "allow" && !entry.value.is_null();
        if let Some(allow) = own.iter().find(is_allow) {
            reader.report_both(allow, include);
        }
        tools.allow = PATTERNS.read(reader, include);
    }
    for entry in ["disabledTools", "excludeTools"]
        .into_iter()
        .filter_map(|key| fields.get(key))
    {
        tools
            .deny
            .extend(PATTERNS.read(reader, entry).unwrap_or_default());
    }
}
