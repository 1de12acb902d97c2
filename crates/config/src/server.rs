//! One entry of `mcpServers`: a node becomes a [`Server`].

use std::path::Path;
use std::time::Duration;

use crate::config::{EraChoice, Server, SessionChoice, ToolFilter, Transport};
use crate::fields::{ERAS, SESSIONS, Section, TRACE_CONTEXT};
use crate::limits::{CALL, CONCURRENCY};
use crate::problem::quoted;
use crate::reader::{Fields, Reader};
use crate::transport;
use crate::tree::{Entry, Value};

/// Longest name of a server, in characters.
const MAX_NAME: usize = 64;

/// A server's plain number of seconds from which on milliseconds were probably meant.
const SUSPICIOUS_SECONDS: Duration = Duration::from_secs(10_000);

/// What servers take from the rest of the file.
pub(crate) struct Context<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) call_timeout: Duration,
    pub(crate) concurrency: usize,
}

/// All servers in the order of the file; those with errors are left out.
pub(crate) fn read_all(reader: &mut Reader<'_>, entry: &Entry, context: &Context<'_>) -> Vec<Server> {
    match &entry.value.value {
        Value::Null => Vec::new(),
        Value::Map(entries) => {
            let servers: Vec<Server> = entries.iter().filter_map(|entry| read(reader, entry, context)).collect();
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

fn read(reader: &mut Reader<'_>, entry: &Entry, context: &Context<'_>) -> Option<Server> {
    check_name(reader, entry);
    let what = format!("the server {}", quoted(&entry.key));
    let fields = Fields::open(reader, Section::Server, &what, &entry.value)?;
    // Everything is read before anything is given up, so that every problem is found.
    let transport = transport::read(reader, &fields, entry, context.folder);
    let mut server = Server {
        enabled: read_enabled(reader, &fields),
        prefix: read_prefix(reader, &fields),
        era: read_era(reader, &fields),
        session: read_session(reader, &fields),
        timeout: context.call_timeout,
        concurrency: context.concurrency,
        tools: read_tools(reader, &fields),
        forwards_trace_context: fields.take("traceContext").and_then(|entry| reader.choice(entry, TRACE_CONTEXT))
            != Some("omit"),
        records_content: fields.take("recordContent").and_then(|entry| reader.flag(entry)).unwrap_or(false),
        // A stand-in until the transport is known to be good.
        ..Server::new(entry.key.clone(), Transport::Http { url: String::new(), headers: Vec::new() })
    };
    if let Some(entry) = fields.take("timeout") {
        server.timeout = read_timeout(reader, entry).unwrap_or(server.timeout);
    }
    if let Some(entry) = fields.take("concurrency") {
        server.concurrency = reader.limit(entry, &CONCURRENCY).unwrap_or(server.concurrency);
    }
    server.transport = transport?;
    Some(server)
}

fn check_name(reader: &mut Reader<'_>, entry: &Entry) {
    let help = "give the server a short name, such as `github`";
    if entry.key.trim().is_empty() {
        reader.error(entry.key_span, "the name of a server is empty", help);
    } else if entry.key.chars().any(char::is_control) {
        let message = "the name of a server holds a control character";
        reader.error(entry.key_span, message, help);
    } else if entry.key.chars().count() > MAX_NAME {
        let message = format!("the name of a server is longer than {MAX_NAME} characters");
        reader.error(entry.key_span, message, help);
    }
}

/// Names become prefixes of tool names, in which common clients take few characters.
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
                "tool names of this server start with characters some clients refuse",
                "set `prefix` to letters, digits, `_` and `-`",
            );
        }
    }
}

fn read_enabled(reader: &mut Reader<'_>, fields: &Fields<'_>) -> bool {
    let enabled = fields.take("enabled");
    let disabled = fields.take("disabled");
    if let (Some(first), Some(second)) = (enabled, disabled) {
        reader.both(first, second);
    }
    let enabled = enabled.and_then(|entry| reader.flag(entry));
    let disabled = disabled.and_then(|entry| reader.flag(entry));
    enabled.unwrap_or(true) && !disabled.unwrap_or(false)
}

fn read_prefix(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<String> {
    let text = reader.text(fields.take("prefix")?)?;
    if text.value.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let message = format!("{} cannot start the name of a tool", text.shown());
        reader.error(text.span, message, "write letters, digits, `_` and `-` only, or nothing: `\"\"`");
        return None;
    }
    Some(text.value)
}

fn read_era(reader: &mut Reader<'_>, fields: &Fields<'_>) -> EraChoice {
    let choice = fields.take("era").and_then(|entry| reader.choice(entry, ERAS));
    match choice {
        Some("legacy") => EraChoice::Legacy,
        Some("modern") => EraChoice::Modern,
        _ => EraChoice::Auto,
    }
}

fn read_session(reader: &mut Reader<'_>, fields: &Fields<'_>) -> SessionChoice {
    match fields.take("session").and_then(|entry| reader.choice(entry, SESSIONS)) {
        Some("shared") => SessionChoice::Shared,
        _ => SessionChoice::PerClient,
    }
}

fn read_timeout(reader: &mut Reader<'_>, entry: &Entry) -> Option<Duration> {
    let timeout = reader.duration(entry, &CALL)?;
    if matches!(entry.value.value, Value::Number(_)) && timeout >= SUSPICIOUS_SECONDS {
        reader.warn(
            entry.value.span,
            "a plain number is seconds: this is a timeout of hours",
            "if milliseconds are meant, write the unit: `30000ms` or `30s`",
        );
    }
    Some(timeout)
}

fn read_tools(reader: &mut Reader<'_>, fields: &Fields<'_>) -> ToolFilter {
    let tools = fields.take("tools").and_then(|entry| Fields::open(reader, Section::Tools, "`tools`", &entry.value));
    let allow = tools.as_ref().and_then(|tools| tools.take("allow"));
    let deny = tools.as_ref().and_then(|tools| tools.take("deny"));
    let include = fields.take("includeTools");
    if let (Some(first), Some(second)) = (allow, include) {
        reader.both(first, second);
    }
    let denied = [deny, fields.take("disabledTools"), fields.take("excludeTools")];
    ToolFilter {
        allow: allow.or(include).map(|entry| patterns(reader, entry)),
        deny: denied.into_iter().flatten().flat_map(|entry| patterns(reader, entry)).collect(),
    }
}

fn patterns(reader: &mut Reader<'_>, entry: &Entry) -> Vec<String> {
    let mut patterns = Vec::new();
    for text in reader.strings(entry).unwrap_or_default() {
        if text.value.is_empty() {
            let help = "write the name of a tool, or `*` for all";
            reader.error(text.span, "this name of a tool is empty", help);
        }
        patterns.push(text.value);
    }
    patterns
}
