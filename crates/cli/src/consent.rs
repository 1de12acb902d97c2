//! Consent to starting servers from a configuration that was only found in the current folder.
//! Others may have written that folder, and most commands start servers.

use std::cell::Cell;
use std::io::{BufRead as _, IsTerminal as _};

use fanlight_config::settings::is_loopback;
use fanlight_config::{Config, Environment, Loaded, Server, Transport, load_usable};
use fanlight_protocol::visible::plain;
use itertools::Itertools as _;
use url::Url;

use crate::{Result, complain};

/// The limit of characters shown of a command or of a server's address.
const SHOWN: usize = 1000;

/// Asks the user for consent to a configuration that was found. Returns false if none is needed,
/// since it only connects to servers: it starts no process, refers to no variable or secret that it
/// could send elsewhere, and names no file to write.
pub fn ask(loaded: &Loaded) -> Result<bool> {
    if stays_here(&loaded.config) {
        return Ok(false);
    }
    let actions = actions(loaded);
    if actions.as_deref() == Some("") {
        return Ok(false);
    }
    let path = loaded.path.display();
    let how = format!("read it, then name it with `--config {path}`, or add `--yes`");
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let Some(actions) = actions.filter(|_| is_terminal) else {
        let enabled = loaded.config.servers.iter().filter(|server| server.enabled);
        let names = enabled.map(|server| plain(&server.name, 60)).join(", ");
        return Err(usage!(
            "not starting servers from {path} without your consent ({names}): {how}"
        ));
    };
    complain(&format!(
        "{path} was found in this folder. With it, this command would\n{actions}Go on? [y/N] "
    ));
    let mut line = String::new();
    let is_read = std::io::stdin().lock().read_line(&mut line).is_ok();
    match line.trim() {
        "y" | "Y" | "yes" if is_read => Ok(true),
        _ => Err(failure!("nothing was started")),
    }
}

/// A line for each action that needs consent, with variables and secrets unexpanded; `None` if the
/// configuration cannot be read that way.
fn actions(loaded: &Loaded) -> Option<String> {
    let refers = Cell::new(false);
    let written = |name: &str| {
        // Every reading looks for the user's folder.
        refers.set(refers.get() || name != "HOME");
        Some(format!("${{{name}}}"))
    };
    let environment = Environment {
        secret: &|_| Ok(written("secret").unwrap_or_default()),
        ..Environment::from_variables(&written)
    };
    let config = load_usable(std::slice::from_ref(&loaded.path), environment)
        .ok()?
        .config;
    let own = own_files(&config)
        .into_iter()
        .flatten()
        .map(|file| ("Fanlight", format!("write {file}")));
    let enabled = loaded.config.servers.iter().filter(|known| known.enabled);
    let is_enabled = |server: &&Server| enabled.clone().any(|known| known.name == server.name);
    let of_servers = config
        .servers
        .iter()
        .filter(is_enabled)
        .filter_map(|server| {
            let sent = server
                .auth
                .as_ref()
                .and_then(|auth| auth.token_file.as_ref());
            let action = match &server.transport {
                Transport::Stdio { command, args, .. } => {
                    let words = std::iter::once(command).chain(args).join(" ");
                    format!("start {words}")
                }
                _ if refers.get() || sent.is_some() => {
                    let origins = server.urls().map(fanlight_config::origin_of).unique();
                    format!(
                        "connect to {}, and may send values of variables and files",
                        origins.format(", ")
                    )
                }
                _ => return None,
            };
            Some((&*server.name, action))
        });
    let line = |(name, action): (&str, String)| {
        format!("  {}: {}\n", plain(name, 60), plain(&action, SHOWN))
    };
    Some(own.chain(of_servers).map(line).collect())
}

/// The files and folders that Fanlight writes, if the configuration names them.
fn own_files(config: &Config) -> [&Option<String>; 3] {
    [&config.state_dir, &config.audit.file, &config.pins.file]
}

/// Whether nothing is started or written, and nobody else can get a value.
fn stays_here(config: &Config) -> bool {
    config.hooks.is_empty()
        && config.notify.is_empty()
        && config.auth.methods().is_none()
        && config.replicas.is_none()
        && config.telemetry.endpoint.is_none()
        && own_files(config).into_iter().all(Option::is_none)
        && !config.servers.iter().any(|server| {
            let is_process = matches!(server.transport, Transport::Stdio { .. });
            server.enabled && (is_process || is_elsewhere(server))
        })
}

/// Whether a server, or the place of its credentials, may be on another machine.
fn is_elsewhere(server: &Server) -> bool {
    let is_of_this_machine =
        |url| Url::parse(url).is_ok_and(|url| is_loopback(url.host_str().unwrap_or_default()));
    server.auth.is_some() || !server.urls().all(is_of_this_machine)
}
