//! The part of `fanlight check` about the authentication of clients, with warnings about likely
//! mistakes.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use fanlight_canonical::DEFAULT_PATH;
use fanlight_config::{Auth, AuthChoice, Config, Key, SessionPolicy, Tls, written_moment};

use crate::out::counted;
use crate::users::auth_of_users;

/// The time before a key's expiry in which a warning appears.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// The authentication of clients, one line per fact.
pub(super) fn describe(config: &Config) -> Vec<String> {
    let auth = match &config.auth {
        AuthChoice::Required(auth) => auth,
        AuthChoice::Open => {
            return vec![
                "no authentication (`auth: none`): every client can call every tool".to_owned(),
            ];
        }
        AuthChoice::Unset => {
            return vec![
                "no authentication: anyone who can reach this address can call every tool"
                    .to_owned(),
            ];
        }
    };
    let mut lines = vec![
        "a client over HTTP is authenticated by the first of these that its request has:"
            .to_owned(),
    ];
    lines.extend(
        methods(auth)
            .into_iter()
            .map(|method| format!("  {method}")),
    );
    if !auth.oauth.is_empty() {
        let root = config
            .public_url
            .as_deref()
            .unwrap_or("http://<host of the request>")
            .trim_end_matches('/');
        let metadata = |path: &str| {
            format!(
                "  {root}/.well-known/oauth-protected-resource{}",
                path.trim_end_matches('/')
            )
        };
        lines.push("public metadata that tells clients where to get access tokens:".to_owned());
        match config.endpoints.is_empty() {
            true => lines.push(metadata(DEFAULT_PATH)),
            false => lines.extend(config.endpoints.iter().map(|(path, _)| metadata(path))),
        }
    }
    lines.push("a client over standard input and output is not authenticated".to_owned());
    lines
}

/// The authentication methods in the order of their use.
fn methods(auth: &Auth) -> Vec<String> {
    let mut methods = Vec::new();
    if let Some(file) = &auth.keys {
        let names: BTreeSet<&str> = file.keys.iter().map(|key| key.name.as_str()).collect();
        let (keys, names) = (
            counted(file.keys.len(), "key"),
            counted(names.len(), "name"),
        );
        methods.push(format!(
            "`Authorization: Bearer` with a key in {}: {keys} of {names}",
            file.file
        ));
    }
    for issuer in &auth.oauth {
        let how = if issuer.introspection.is_some() {
            ", which Fanlight asks about each token"
        } else {
            ""
        };
        methods.push(format!(
            "`Authorization: Bearer` with an access token of {}{how}",
            issuer.issuer
        ));
    }
    if auth.certificates {
        methods.push("the TLS certificate of the client".to_owned());
    }
    if let Some(proxy) = &auth.proxy {
        let from: Vec<_> = proxy.from.iter().map(ToString::to_string).collect();
        methods.push(format!(
            "the header {} on connections from {}",
            proxy.header,
            from.join(", ")
        ));
    }
    if auth.socket {
        methods.push("the local user at the other end of a Unix socket".to_owned());
    }
    methods
}

/// Warnings about reasons why users could not sign in to servers.
fn about_signing_in(config: &Config) -> Vec<String> {
    let of_users = || {
        config
            .servers
            .iter()
            .filter(|server| server.enabled && auth_of_users(server).is_some())
    };
    let names: Vec<_> = of_users()
        .map(|server| format!("{:?}", server.name))
        .collect();
    if names.is_empty() || config.listen.is_local() {
        return Vec::new();
    }
    let names = names.join(", ");
    let mut warnings = Vec::new();
    if config.auth.methods().is_none() {
        warnings.push(format!(
            "{names}: each user signs in, but without `auth` all clients count as one user, who \
             can sign in from this machine only; configure `auth`"
        ));
    }
    let has_sign_in = config
        .auth
        .methods()
        .is_some_and(|auth| auth.oauth.iter().any(|issuer| issuer.sign_in.is_some()));
    let exchanged = of_users()
        .filter(|server| auth_of_users(server).is_some_and(|auth| auth.kind.is_exchange()));
    for name in exchanged
        .filter(|_| !has_sign_in)
        .map(|server| &server.name)
    {
        let help = "set `signIn` of the issuer in `auth.oauth`, or a `tokenFile`";
        warnings.push(format!("{name:?}: users cannot sign in to it: {help}"));
    }
    if config.public_url.is_none() {
        warnings.push(format!(
            "{names}: users get no sign-in links without `publicUrl`"
        ));
    }
    warnings
}

/// Warnings about likely mistakes in the configuration.
pub(in crate::inspect) fn warnings(config: &Config, now: SystemTime) -> Vec<String> {
    let mut warnings = about_signing_in(config);
    let Some(auth) = config.auth.methods() else {
        return warnings;
    };
    for server in config
        .servers
        .iter()
        .filter(|server| server.enabled && server.session == SessionPolicy::Shared)
    {
        let name = &server.name;
        warnings.push(format!(
            "all clients share one session with {name:?} (`session: shared`): one client may see \
             what the server stores for another"
        ));
    }
    for key in auth.keys.iter().flat_map(|file| &file.keys) {
        warnings.extend(about_key(key, config, now));
    }
    if auth.certificates && config.tls.as_ref().and_then(Tls::client_ca).is_none() {
        warnings.push(
            "`auth.certificates` has no effect, since the listener requests no client \
             certificates; set `tls.clientCa` to the file with the authorities that sign them"
                .to_owned(),
        );
    }
    if auth.socket && config.listen.ip().is_some() {
        warnings.push(format!(
            "`auth.socket` has no effect, since {} (`listen`) is not a Unix socket; listen on one, \
             such as `listen: unix:/run/fanlight.sock`",
            config.listen
        ));
    }
    for network in auth
        .proxy
        .iter()
        .flat_map(|proxy| &proxy.from)
        .filter(|network| network.prefix_len() <= 1)
    {
        warnings.push(format!(
            "`auth.proxy.from` has {network}: nearly anyone can claim to be any user"
        ));
    }
    let is_encrypted = config
        .public_url
        .as_deref()
        .is_some_and(|url| url.starts_with("https://"));
    if !is_encrypted && !auth.oauth.is_empty() {
        warnings.push(
            "`auth.oauth` needs an https URL in `publicUrl`: clients must not send tokens \
             unencrypted, and cannot trust the metadata"
                .to_owned(),
        );
    }
    warnings
}

/// Warnings about a key.
fn about_key(key: &Key, config: &Config, now: SystemTime) -> Vec<String> {
    let Key {
        name,
        expires,
        endpoints,
        ..
    } = key;
    let mut warnings = Vec::new();
    match expires {
        Some(expires) if *expires <= now => {
            warnings.push(format!(
                "the key of {name} expired at {}: `fanlight keys revoke {name}`",
                written_moment(*expires)
            ));
        }
        Some(expires) if *expires <= now + SOON => {
            let when = written_moment(*expires);
            warnings.push(format!(
                "the key of {name} expires at {when}: `fanlight keys new {name}` creates another"
            ));
        }
        _ => {}
    }
    let is_there = |path: &str| match config.endpoints.is_empty() {
        true => path == DEFAULT_PATH,
        false => config.endpoints.iter().any(|(known, _)| known == path),
    };
    for path in endpoints.iter().flatten().filter(|path| !is_there(path)) {
        warnings.push(format!(
            "the key of {name} is for the endpoint {path}, which does not exist"
        ));
    }
    warnings
}

/// A note about a server that has a process for each principal.
pub(super) fn about_processes(config: &Config, name: &str) -> Option<String> {
    let is_apart = config
        .servers
        .iter()
        .any(|server| server.name == name && server.keeps_principals_apart());
    let text = "each principal has a process of its own, besides one for lists";
    (config.auth.methods().is_some() && is_apart).then(|| text.to_owned())
}
