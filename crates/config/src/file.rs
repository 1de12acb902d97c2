//! The top level of the file: a tree becomes a [`Config`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use url::Url;

use crate::config::{Config, SealKey, Secret};
use crate::fields::Section;
use crate::limits::{LIMITS, TIMEOUTS};
use crate::problem::Finding;
use crate::reader::{Fields, Reader, Text};
use crate::server::{self, Context};
use crate::source::Span;
use crate::telemetry;
use crate::tree::{Entry, Node};

/// Reads the whole file. The result is complete only if no error was reported.
pub(crate) fn read(reader: &mut Reader<'_>, root: &Node, folder: &Path) -> Config {
    let mut config = Config::default();
    let Some(fields) = Fields::open(reader, Section::Top, "the file", root) else {
        return config;
    };
    if let Some(entry) = fields.take("listen")
        && let Some(address) = address(reader, entry)
    {
        config.listen = address;
    }
    if let Some(entry) = fields.take("path")
        && let Some(path) = endpoint_path(reader, entry)
    {
        config.path = path;
    }
    if let Some(entry) = fields.take_or_null("ssePath") {
        if is_off(entry) {
            config.sse_path = None;
        } else if let Some(path) = endpoint_path(reader, entry) {
            config.sse_path = Some(path);
        }
    }
    if let Some(entry) = fields.take("admin") {
        read_admin(reader, &mut config, entry);
    }
    config.allowed_origins = each(reader, fields.take("allowedOrigins"), origin);
    config.allowed_hosts = each(reader, fields.take("allowedHosts"), host);
    config.keys = each(reader, fields.take("keys"), key);
    if let Some(entry) = fields.take("telemetry") {
        telemetry::read(reader, &mut config.telemetry, entry);
    }
    if let Some(entry) = fields.take("limits") {
        read_limits(reader, &mut config, entry);
    }
    if let Some(entry) = fields.take("timeouts") {
        read_timeouts(reader, &mut config, entry);
    }
    check_addresses(reader, &config, &fields);
    check_paths(reader, &mut config, &fields);
    read_servers(reader, &mut config, &fields, root, folder);
    config
}

fn read_admin(reader: &mut Reader<'_>, config: &mut Config, entry: &Entry) {
    let Some(fields) = Fields::open(reader, Section::Admin, "`admin`", &entry.value) else {
        return;
    };
    config.admin.token = fields.take("token").and_then(|entry| token(reader, entry));
    let Some(listen) = fields.take_or_null("listen") else {
        return;
    };
    config.admin.is_default = false;
    if is_off(listen) {
        config.admin.listen = None;
    } else if let Some(address) = address(reader, listen) {
        config.admin.listen = Some(address);
    }
}

/// Whether a value says that there is to be none.
fn is_off(entry: &Entry) -> bool {
    entry.value.is_null() || matches!(&entry.value.value, crate::tree::Value::String(text) if text == "off")
}

fn read_limits(reader: &mut Reader<'_>, config: &mut Config, entry: &Entry) {
    let Some(fields) = Fields::open(reader, Section::Limits, "`limits`", &entry.value) else {
        return;
    };
    for limit in LIMITS {
        if let Some(entry) = fields.take(limit.name)
            && let Some(value) = reader.limit(entry, limit)
        {
            *(limit.slot)(&mut config.limits) = value;
        }
    }
}

fn read_timeouts(reader: &mut Reader<'_>, config: &mut Config, entry: &Entry) {
    let Some(fields) = Fields::open(reader, Section::Timeouts, "`timeouts`", &entry.value) else {
        return;
    };
    for timeout in TIMEOUTS {
        if let Some(entry) = fields.take(timeout.name)
            && let Some(value) = reader.duration(entry, timeout)
        {
            *(timeout.slot)(&mut config.timeouts) = value;
        }
    }
}

fn read_servers(reader: &mut Reader<'_>, config: &mut Config, fields: &Fields<'_>, root: &Node, folder: &Path) {
    let help = "name each backend under `mcpServers`, with its `command` or `url`";
    let standard = fields.take_or_null("mcpServers");
    let vs_code = fields.take_or_null("servers");
    if let (Some(first), Some(second)) = (standard, vs_code) {
        reader.findings.push(
            Finding::error(second.key_span, "both `mcpServers` and `servers` are given")
                .help("move all servers under one of the two")
                .first_at(first.key_span),
        );
    }
    if standard.is_none() && vs_code.is_none() {
        let start = Span::new(root.span.start, root.span.start);
        reader.error(start, "the file names no servers: `mcpServers` is missing", help);
        return;
    }
    let context = Context { folder, call_timeout: config.timeouts.call, concurrency: config.limits.concurrency };
    for entry in [standard, vs_code].into_iter().flatten() {
        let servers = server::read_all(reader, entry, &context);
        config.servers.extend(servers);
        if config.servers.iter().all(|server| !server.enabled) {
            reader.warn(entry.key_span, "no server is enabled", help);
        }
    }
}

/// Reports paths of which one hides the other. The default gives way.
fn check_paths(reader: &mut Reader<'_>, config: &mut Config, fields: &Fields<'_>) {
    let Some(base) = config.sse_path.as_deref().map(|path| path.trim_end_matches('/')) else { return };
    let path = config.path.trim_end_matches('/');
    if path != base && path.strip_prefix(base) != Some("/message") {
        return;
    }
    match fields.take("ssePath") {
        Some(entry) => reader.error(
            entry.value.span,
            "`path` and `ssePath` are in each other's way",
            "give one of them another path, or switch the old transport off: `ssePath: null`",
        ),
        None => config.sse_path = None,
    }
}

/// Reports listeners that contradict each other or the rest.
fn check_addresses(reader: &mut Reader<'_>, config: &Config, fields: &Fields<'_>) {
    let span = |name| fields.take(name).map(|entry| entry.value.span);
    let same = config.admin.listen == Some(config.listen) && config.listen.port() != 0;
    if same && let Some(span) = span("admin").or(span("listen")) {
        reader.error(
            span,
            "`listen` and `admin.listen` are the same address",
            "give the admin listener another port, or switch it off: `listen: null` in `admin`",
        );
    }
    let has_token = || fields.take("admin").is_some_and(|entry| has_field(&entry.value, "token"));
    if let (Some(address), Some(span)) = (config.admin.listen, span("admin"))
        && !config.admin.may_listen(address)
        && !has_token()
    {
        reader.error(
            span,
            "the admin listener is reached from other machines, and has no token",
            "set `token`, such as `token: ${FANLIGHT_ADMIN_TOKEN}`, or let it listen on `127.0.0.1:8081`",
        );
    }
    if config.listen.ip().is_unspecified()
        && config.allowed_hosts.is_empty()
        && let Some(span) = span("listen")
    {
        reader.warn(
            span,
            "this listens on every interface, but only requests to loopback names are answered",
            "set `allowedHosts` to the names clients use",
        );
    }
}

fn address(reader: &mut Reader<'_>, entry: &Entry) -> Option<SocketAddr> {
    let text = reader.text(entry)?;
    let parsed = match text.value.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        None => text.value.parse().ok(),
    };
    if parsed.is_none() {
        let message = format!("{} is not an address with a port", text.shown());
        let help = "write an IP address and a port, such as `127.0.0.1:8080`, `0.0.0.0:8080` or `[::1]:8080`";
        reader.error(text.span, message, help);
    }
    parsed
}

fn endpoint_path(reader: &mut Reader<'_>, entry: &Entry) -> Option<String> {
    let text = reader.text(entry)?;
    let allowed = |c: char| c.is_ascii_graphic() && !"?#%\"<>\\^`{|}".contains(c);
    if text.value.starts_with('/') && text.value.chars().all(allowed) {
        return Some(text.value);
    }
    let message = format!("{} is not the path of an endpoint", text.shown());
    let help = "write a path that starts with `/`, such as `/mcp`, without query, spaces or `%`";
    reader.error(text.span, message, help);
    None
}

/// Every entry of a list, checked and brought to one form.
fn each<T>(reader: &mut Reader<'_>, entry: Option<&Entry>, check: fn(&mut Reader<'_>, &Text) -> Option<T>) -> Vec<T> {
    let texts = entry.and_then(|entry| reader.strings(entry));
    texts.unwrap_or_default().iter().filter_map(|text| check(reader, text)).collect()
}

fn origin(reader: &mut Reader<'_>, text: &Text) -> Option<String> {
    if text.value == "*" {
        return Some(text.value.clone());
    }
    let origin = Url::parse(&text.value).ok().filter(|url| {
        matches!(url.path(), "" | "/")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    });
    let Some(url) = origin else {
        let message = format!("{} is not an origin", text.shown());
        let help = "write scheme and host without a path, such as `https://app.example.com`, or `*` for any";
        reader.error(text.span, message, help);
        return None;
    };
    // Not `Url::origin`: that one is opaque for schemes such as `vscode-webview:`.
    let port = url.port().map(|port| format!(":{port}"));
    let host = url.host_str().unwrap_or_default();
    Some(format!("{}://{host}{}", url.scheme(), port.unwrap_or_default()))
}

fn host(reader: &mut Reader<'_>, text: &Text) -> Option<String> {
    let lower = text.value.to_ascii_lowercase();
    if lower == "*" {
        return Some(lower);
    }
    let is_host = !lower.contains(['/', '?', '#', '@', '\\'])
        && !lower.ends_with(':')
        && Url::parse(&format!("http://{lower}")).is_ok_and(|url| url.has_host());
    if is_host {
        return Some(lower);
    }
    let message = format!("{} is not a host", text.shown());
    let help =
        "write a host with or without a port, such as `mcp.example.com` or `mcp.example.com:8080`, or `*` for any";
    reader.error(text.span, message, help);
    None
}

/// The shortest token: what is shorter can be guessed.
const SHORTEST_TOKEN: usize = 16;

fn token(reader: &mut Reader<'_>, entry: &Entry) -> Option<Secret> {
    let text = reader.text(entry)?;
    if text.value.len() >= SHORTEST_TOKEN && text.value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(Secret::new(text.value));
    }
    let help = "write 16 visible ASCII characters or more; `openssl rand -hex 32` makes a token";
    reader.error(text.span, "this is not a token that nobody can guess", help);
    None
}

/// Whether a mapping has a field with a value.
fn has_field(node: &Node, name: &str) -> bool {
    match &node.value {
        crate::tree::Value::Map(entries) => entries.iter().any(|entry| entry.key == name && !entry.value.is_null()),
        _ => false,
    }
}

fn key(reader: &mut Reader<'_>, text: &Text) -> Option<SealKey> {
    let key = decode_key(&text.value);
    if key.is_none() {
        let help = "write 32 bytes as base64 or as 64 hexadecimal digits; `openssl rand -base64 32` makes a key";
        reader.error(text.span, "this is not a key of 32 bytes".to_owned(), help);
    }
    key.map(SealKey::new)
}

fn decode_key(text: &str) -> Option<[u8; 32]> {
    if text.len() == 64 {
        return decode_hex(text);
    }
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    [&alphabet::STANDARD, &alphabet::URL_SAFE]
        .into_iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, config).decode(text).ok())
        .and_then(|bytes| bytes.try_into().ok())
}

fn decode_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}
