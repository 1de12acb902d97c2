//! Consent to starting servers from a configuration that was only found in the current folder.
//! Others may have written that folder, and most commands start servers.

use std::io::{BufRead as _, IsTerminal as _};

use fanlight_config::settings::is_loopback;
use fanlight_config::{Environment, Loaded, Server, Transport, load_usable};
use fanlight_protocol::visible::plain;
use itertools::Itertools as _;
use url::Url;

use crate::failure::Result;
use crate::out::complain;

/// The limit of characters shown of a command or of a server's address.
const SHOWN: usize = 1000;

/// Asks the user for consent to a configuration that was found. Returns false if none is needed,
/// since it neither starts a process nor sends a variable to another machine.
pub fn ask(loaded: &Loaded) -> Result<bool> {
    let enabled = || loaded.config.servers.iter().filter(|server| server.enabled);
    if enabled().all(|server| !is_process(server)) && !may_send_variables(loaded) {
        return Ok(false);
    }
    let path = loaded.path.display();
    let how = format!("read it, then name it with `--config {path}`, or add `--yes`");
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let Some(actions) = actions(loaded).filter(|_| is_terminal) else {
        let names = enabled().map(|server| plain(&server.name, 60)).join(", ");
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

fn is_process(server: &Server) -> bool {
    matches!(server.transport, Transport::Stdio { .. })
}

/// The configuration with its variables unexpanded.
fn as_written(loaded: &Loaded) -> Option<Loaded> {
    let environment = Environment {
        secret: &|_| Ok("${secret}".to_owned()),
        ..Environment::from_variables(&|name| Some(format!("${{{name}}}")))
    };
    load_usable(std::slice::from_ref(&loaded.path), environment).ok()
}

/// Whether a server on another machine may receive the value of a variable.
fn may_send_variables(loaded: &Loaded) -> bool {
    let is_elsewhere = |server: &&Server| server.enabled && !is_local(server);
    if !loaded
        .config
        .servers
        .iter()
        .any(|server| is_elsewhere(&server))
    {
        return false;
    }
    // If the unexpanded configuration cannot be read, assume the worst.
    as_written(loaded).is_none_or(|written| {
        written
            .config
            .servers
            .iter()
            .filter(is_elsewhere)
            .any(is_sent_variables)
    })
}

fn is_local(server: &Server) -> bool {
    let is_of_this_machine =
        |url| Url::parse(url).is_ok_and(|url| is_loopback(url.host_str().unwrap_or_default()));
    server.urls().all(is_of_this_machine)
}

fn is_sent_variables(server: &Server) -> bool {
    let headers = server.transport.headers().unwrap_or_default();
    server.urls().any(is_written_with_variables)
        || headers
            .iter()
            .any(|(_, value)| is_written_with_variables(value.expose()))
}

fn is_written_with_variables(text: &str) -> bool {
    text.contains("${") || text.contains("$%7B")
}

/// A line for each action of the command, with variables unexpanded; `None` if the configuration
/// cannot be read that way.
fn actions(loaded: &Loaded) -> Option<String> {
    let written = as_written(loaded)?;
    let lines = written
        .config
        .servers
        .iter()
        .filter(|server| server.enabled)
        .filter_map(|server| {
            let action = match &server.transport {
                Transport::Stdio { command, args, .. } => {
                    let words = std::iter::once(command.as_str())
                        .chain(args.iter().map(String::as_str))
                        .join(" ");
                    format!("start {words}")
                }
                Transport::Http { .. } | Transport::Sse { .. }
                    if is_sent_variables(server) && !is_local(server) =>
                {
                    let mut origins = server.urls().map(fanlight_config::origin_of).collect_vec();
                    origins.dedup();
                    format!("send values of variables to {}", origins.join(", "))
                }
                _ => return None,
            };
            Some(format!(
                "  {}: {}\n",
                plain(&server.name, 60),
                plain(&action, SHOWN)
            ))
        });
    Some(lines.collect())
}
