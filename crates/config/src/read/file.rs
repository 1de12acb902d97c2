//! The top level of the file: its options, options that depend on each other, and the servers.

use std::path::Path;

use crate::{AllowedClients, Auth, AuthChoice, ListenAddress};

use crate::model::life::resolve;
use crate::model::listener::check_tls;
use crate::model::replicas::check_replicas;
use crate::model::{Config, DEFAULT_PATH};
use crate::option::{Fields, Options as _, Reader};
use crate::read::server::{self, Context};
use crate::read::versions::{WrongEndpoint, WrongVersion};
use crate::report::problem::quoted;
use crate::syntax::{Node, Span, Value};

/// Reads the whole file. The result is complete only without reported errors. `has_further` says
/// whether other files may have servers, too.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    root: &Node,
    folder: &Path,
    has_further: bool,
) -> Config {
    let Some(fields) = Fields::open(reader, Config::SECTION, "the file", root) else {
        return Config::default();
    };
    let mut config: Config = fields.read(reader);
    let admin = fields.get("admin").map(|entry| &entry.value);
    config.admin.is_default = admin.is_none_or(|admin| admin.field("listen").is_none());
    let in_folder = |path: &mut String| resolve(path, folder);
    config
        .state_dir
        .iter_mut()
        .chain(&mut config.audit.file)
        .chain(config.hooks.iter_mut().flat_map(|hook| &mut hook.ca_file))
        .for_each(in_folder);
    if let AuthChoice::Required(auth) = &mut config.auth {
        let keys = auth.keys.iter_mut().map(|keys| &mut keys.file);
        let issuers = auth.oauth.iter_mut();
        keys.chain(issuers.flat_map(|issuer| &mut issuer.ca_file))
            .for_each(in_folder);
    }
    check_given(reader, &fields, "hooks", &["url"]);
    check_given(reader, &fields, "notify", &["url", "secret"]);
    resolve_listeners(reader, &mut config, &fields, folder);
    resolve_replicas(reader, &mut config, &fields, folder);
    check_addresses(reader, &config, &fields, admin);
    check_paths(reader, &mut config, &fields);
    if let Some(entry) = fields.get("naming") {
        config.naming.check(reader, &entry.value);
    }
    let has_further = has_further || !config.include.is_empty();
    read_servers(reader, &mut config, &fields, root, folder, has_further);
    if !has_further {
        check_endpoints(reader, &config, &fields);
        check_versions(reader, &config, &fields);
    }
    config
}

/// Reports entries of the list `option` that lack one of these keys.
fn check_given(reader: &mut Reader<'_>, fields: &Fields<'_>, option: &'static str, keys: &[&str]) {
    let Some(Value::List(items)) = fields.get(option).map(|entry| &entry.value.value) else {
        return;
    };
    for item in items {
        for key in keys.iter().filter(|key| item.given_field(key).is_none()) {
            let message = format!("`{key}` is missing in an entry of `{option}`");
            reader.error(item.span, message, "add it");
        }
    }
}

/// Makes the paths of listeners' files relative to `folder`, and checks the listeners' options.
fn resolve_listeners(
    reader: &mut Reader<'_>,
    config: &mut Config,
    fields: &Fields<'_>,
    folder: &Path,
) {
    for address in std::iter::once(&mut config.listen).chain(&mut config.admin.listen) {
        if let ListenAddress::Unix(path) = address {
            *path = folder.join(&*path);
        }
    }
    let of_clients = fields.get("tls").map(|entry| &entry.value);
    let of_admin = fields
        .get("admin")
        .and_then(|entry| entry.value.field("tls"));
    for (tls, node) in [
        (&mut config.tls, of_clients),
        (&mut config.admin.tls, of_admin),
    ] {
        if let (Some(tls), Some(node)) = (tls, node) {
            check_tls(reader, node, tls);
            tls.resolve(folder);
        }
    }
}

/// Makes the paths in `replicas` relative to `folder`, and checks its options.
fn resolve_replicas(
    reader: &mut Reader<'_>,
    config: &mut Config,
    fields: &Fields<'_>,
    folder: &Path,
) {
    let (Some(replicas), Some(entry)) = (&mut config.replicas, fields.get("replicas")) else {
        return;
    };
    check_replicas(reader, &entry.value, replicas, fields.get("keys").is_some());
    if let (Some(tls), Some(node)) = (&replicas.tls, entry.value.field("tls")) {
        check_tls(reader, node, tls);
    }
    replicas.resolve(folder);
}

/// Reports names of servers that an endpoint cannot show, since it would show less than its author
/// thinks.
fn check_endpoints(reader: &mut Reader<'_>, config: &Config, fields: &Fields<'_>) {
    let Some(endpoints) = fields.get("endpoints") else {
        return;
    };
    for WrongEndpoint {
        path,
        message,
        help,
    } in config.wrong_endpoints()
    {
        let endpoint = endpoints.value.field(&path);
        let node = endpoint.and_then(|endpoint| endpoint.field("servers"));
        let span = node.map_or(endpoints.key_span, |node| node.span);
        reader.error(span, message, &help);
    }
}

/// A server's options about the clients' view and rights.
const OF_CLIENTS: [&str; 9] = [
    "prefix",
    "tools",
    "allow",
    "allowTools",
    "tags",
    "approval",
    "rename",
    "override",
    "arguments",
];

/// Reports impossible versions of servers, and options without effect on one.
fn check_versions(reader: &mut Reader<'_>, config: &Config, fields: &Fields<'_>) {
    let servers = || {
        ["mcpServers", "servers"]
            .into_iter()
            .filter_map(|key| fields.get_or_null(key))
    };
    let entry = |name: &str| servers().find_map(|entry| entry.value.field(name));
    for WrongVersion {
        server,
        option,
        message,
        help,
    } in config.wrong_versions()
    {
        let option = entry(&server).and_then(|entry| entry.field(option));
        let node = option.map(|option| option.field("server").unwrap_or(option));
        reader.error(
            node.map_or(Span::new(0, 0), |node| node.span),
            message,
            &help,
        );
    }
    for (name, of, option) in config.servers.iter().filter_map(|server| {
        let (option, of) = config.version_of(&server.name)?;
        Some((&server.name, &of.name, option))
    }) {
        let what = format!("{} is the `{option}` of {}", quoted(name), quoted(of));
        for key in OF_CLIENTS {
            if let Some(node) = entry(name).and_then(|entry| entry.given_field(key)) {
                let help = format!("set it for {}, and remove it here", quoted(of));
                reader.warn(
                    node.span,
                    format!("`{key}` has no effect here: {what}"),
                    &help,
                );
            }
        }
    }
}

fn read_servers(
    reader: &mut Reader<'_>,
    config: &mut Config,
    fields: &Fields<'_>,
    root: &Node,
    folder: &Path,
    has_further: bool,
) {
    let help = "name each server under `mcpServers`, with its `command` or `url`";
    let standard = fields.get_or_null("mcpServers");
    let vs_code = fields.get_or_null("servers");
    if let (Some(first), Some(second)) = (standard, vs_code) {
        reader.report_both(first, second);
    }
    if standard.is_none() && vs_code.is_none() {
        if has_further {
            return;
        }
        let start = Span::new(root.span.start, root.span.start);
        reader.error(
            start,
            "the file names no servers: `mcpServers` is missing",
            help,
        );
        return;
    }
    let context = Context {
        folder,
        call_timeout: config.timeouts.call,
    };
    for entry in [standard, vs_code].into_iter().flatten() {
        let servers = server::read_all(reader, entry, &context);
        config.servers.extend(servers);
        if !has_further && config.servers.iter().all(|server| !server.enabled) {
            reader.warn(entry.key_span, "no server is enabled", help);
        }
    }
}

/// Reports paths that hide each other. A default `ssePath` is switched off instead.
fn check_paths(reader: &mut Reader<'_>, config: &mut Config, fields: &Fields<'_>) {
    let Some(base) = config
        .sse_path
        .as_deref()
        .map(|path| path.trim_end_matches('/'))
    else {
        return;
    };
    let overlaps = |path: &str| {
        let path = path.trim_end_matches('/');
        path == base || path.strip_prefix(base) == Some("/message")
    };
    let mut paths: Vec<&str> = config.endpoints.iter().map(|(path, _)| &**path).collect();
    if paths.is_empty() {
        paths.push(DEFAULT_PATH);
    }
    let problem = if paths.iter().any(|path| overlaps(path)) {
        "`ssePath` and the path of an endpoint overlap"
    } else if !paths.contains(&DEFAULT_PATH) {
        "`ssePath` is for the default endpoint, and `endpoints` has none at `/mcp`"
    } else {
        return;
    };
    match fields.get("ssePath") {
        Some(entry) => {
            let help = "give one of them another path, or switch the HTTP+SSE transport off: `ssePath: null`";
            reader.error(entry.value.span, problem, help);
        }
        None => config.sse_path = None,
    }
}

/// Reports members of roles whom no method of `auth` can identify.
pub(crate) fn check_roles(reader: &mut Reader<'_>, config: &Config, root: &Node) {
    // An `auth` with an error of its own is not missing.
    if config.auth == AuthChoice::Unset && root.given_field("auth").is_some() {
        return;
    }
    // In such a header a proxy names its users, as credentials do.
    let proxy = config.auth.methods().and_then(|auth| auth.proxy.as_ref());
    let of_proxy = |theirs: &String| {
        proxy.is_some_and(|it| *theirs == it.header || it.groups.as_ref() == Some(theirs))
    };
    let mut forwarded = config.servers.iter().flat_map(|it| &it.forward_headers);
    if let (true, Some(auth)) = (
        forwarded.any(|(it, _)| of_proxy(it)),
        root.given_field("auth"),
    ) {
        let message = "a header of `proxy` is also in `forwardHeaders` of a server";
        reader.error(auth.span, message, "give the server another header");
    }
    let roles = root
        .given_field("admin")
        .and_then(|admin| admin.given_field("roles"));
    for (role, member) in config.admin.roles.members() {
        let Some(problem) = unmatched(member, config.auth.methods()) else {
            continue;
        };
        let span = roles.and_then(|roles| roles.field(role));
        let help = "add the method to `auth`, or remove the member";
        reader.error(
            span.map_or(root.span, |node| node.span),
            format!(
                "{} never has the role: {problem}",
                quoted(&member.to_string())
            ),
            help,
        );
    }
}

/// The reason why `auth` can never identify this member, if there is one.
fn unmatched(member: &AllowedClients, auth: Option<&Auth>) -> Option<String> {
    let Some(auth) = auth else {
        return Some("there is no `auth`".to_owned());
    };
    let is_known = match member {
        AllowedClients::User(name) => {
            let issuer = name.split('#').next().unwrap_or_default();
            let is_known = match issuer {
                "key" => auth.keys.is_some(),
                "certificate" => auth.certificates,
                "proxy" => auth.proxy.is_some(),
                "socket" => auth.socket,
                issuer => auth.oauth.iter().any(|known| known.issuer == issuer),
            };
            return (!is_known).then(|| format!("{} is no issuer of `auth`", quoted(issuer)));
        }
        AllowedClients::Group(_) => {
            !auth.oauth.is_empty()
                || auth.keys.is_some()
                || auth
                    .proxy
                    .as_ref()
                    .is_some_and(|proxy| proxy.groups.is_some())
        }
        AllowedClients::Scope(_) | AllowedClients::Anybody => false,
    };
    (!is_known).then(|| "nothing in `auth` names this group".to_owned())
}

/// Reports listeners that contradict each other or other options.
fn check_addresses(
    reader: &mut Reader<'_>,
    config: &Config,
    fields: &Fields<'_>,
    admin: Option<&Node>,
) {
    let span = |name| fields.get(name).map(|entry| entry.value.span);
    let any_port = config
        .listen
        .ip()
        .is_some_and(|address| address.port() == 0);
    let same = config.admin.listen.as_ref() == Some(&config.listen) && !any_port;
    if same && let Some(span) = span("admin").or(span("listen")) {
        reader.error(
            span,
            "`listen` and `admin.listen` are the same address",
            "give the admin listener another port, or switch it off: `listen: null` in `admin`",
        );
    }
    // An option with its own error is not missing.
    let has_access = || {
        let is_given = |key| admin.is_some_and(|admin| admin.given_field(key).is_some());
        ["token", "roles"].into_iter().any(is_given)
    };
    if let (Some(address), Some(span)) = (&config.admin.listen, span("admin"))
        && !config.admin.may_listen(address)
        && !has_access()
    {
        reader.error(
            span,
            "the admin listener can be reached from other machines, and has no token",
            "set `token`, such as `token: ${FANLIGHT_ADMIN_TOKEN}`, or let it listen on `127.0.0.1:8081`",
        );
    }
    if config
        .listen
        .ip()
        .is_some_and(|address| address.ip().is_unspecified())
        && config.allowed_hosts.is_empty()
        && config.public_url.is_none()
        && let Some(span) = span("listen")
    {
        reader.warn(
            span,
            "this listens on every interface, but only requests to loopback names are answered",
            "set `publicUrl` to the URL that clients use, or `allowedHosts` to their names for it",
        );
    }
}
