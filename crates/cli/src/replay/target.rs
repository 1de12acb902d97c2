//! The server that is tested.

use std::time::Duration;

use fanlight_config::{Config, Secret, Server, SessionPolicy, Transport};

use crate::cli::ReplayArgs;
use crate::failure::Failure;
use crate::judge_command::named_transport;

/// The environment variable with the key or access token for `--url`.
const TOKEN: &str = "FANLIGHT_TOKEN";
/// The time limit for an answer of a server without a configuration.
const ANSWER: Duration = Duration::from_secs(60);

/// The server that the command line names. `loaded` is the configuration for `--server`.
pub(super) fn find_server(args: &ReplayArgs, loaded: Option<&Config>) -> Result<Server, Failure> {
    let server = match loaded.zip(args.server.as_ref()) {
        Some((config, name)) => {
            let known = config.servers.iter().find(|known| known.name == *name);
            let unknown = || Failure::usage(format!("no server is called {name:?}"));
            let known = known.ok_or_else(unknown)?.clone();
            let (canary, mirror) = (None, None);
            Server {
                enabled: true,
                canary,
                mirror,
                ..known
            }
        }
        None => of_command_line(args)?,
    };
    // Further sessions show what differs between processes.
    let session = match server.session {
        SessionPolicy::Auto => SessionPolicy::PerClient,
        other => other,
    };
    Ok(Server { session, ..server })
}

/// A server that the command line describes. A command inherits the environment.
fn of_command_line(args: &ReplayArgs) -> Result<Server, Failure> {
    let usage = "name the server to test: --server NAME, --url URL, or its command behind `--`";
    let transport = named_transport(args.url.as_ref(), &args.header, &args.command)?;
    let mut transport = transport.ok_or_else(|| Failure::usage(usage))?;
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    if let (Transport::Http { headers, .. }, Some(token)) = (&mut transport, token) {
        let shown = Secret::new(format!("Bearer {token}"));
        headers.push(("authorization".to_owned(), shown));
    }
    Ok(Server {
        timeout: ANSWER,
        inherit_env: vec!["*".to_owned()],
        ..Server::new("server", transport)
    })
}
