//! The server that is tested.

use std::time::Duration;

use fanlight_config::{Config, Secret, Server, SessionPolicy, Transport};

use crate::cli::ReplayArgs;
use crate::failure::Failure;
use crate::judge::{Mask, Target};

/// The environment variable with the key or access token for `--url`.
const TOKEN: &str = "FANLIGHT_TOKEN";
/// The time limit for an answer of a server without a configuration.
const ANSWER: Duration = Duration::from_secs(60);

/// The server that the command line names. `loaded` is the configuration for `--server`.
pub(super) fn find_server(args: &ReplayArgs, loaded: Option<&Config>) -> Result<Server, Failure> {
    let server = match (loaded, &args.server, &args.url, args.command.split_first()) {
        (Some(config), Some(name), ..) => {
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
        (_, _, Some(url), _) => {
            let (url, headers) = (url.clone(), headers(args)?);
            of_command_line(Transport::Http { url, headers })
        }
        (.., Some((command, arguments))) => of_command_line(Transport::Stdio {
            command: command.clone(),
            args: arguments.to_vec(),
            env: Vec::new(),
            cwd: None,
        }),
        _ => {
            let usage =
                "name the server to test: --server NAME, --url URL, or its command behind `--`";
            return Err(Failure::usage(usage));
        }
    };
    // Further sessions show what differs between processes.
    let session = match server.session {
        SessionPolicy::Auto => SessionPolicy::PerClient,
        other => other,
    };
    Ok(Server { session, ..server })
}

/// A server that the command line describes. A command inherits the environment.
fn of_command_line(transport: Transport) -> Server {
    Server {
        timeout: ANSWER,
        inherit_env: vec!["*".to_owned()],
        ..Server::new("server", transport)
    }
}

fn headers(args: &ReplayArgs) -> Result<Vec<(String, Secret)>, Failure> {
    // The text may be secret, so the message does not repeat it.
    let wrong = || Failure::usage("write a header as in `--header 'X-Tenant: a'`");
    let given = args.header.iter().map(|header| {
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        Ok((name.trim().to_ascii_lowercase(), Secret::new(value.trim())))
    });
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let bearer = token.map(|token| {
        (
            "authorization".to_owned(),
            Secret::new(format!("Bearer {token}")),
        )
    });
    given.chain(bearer.map(Ok)).collect()
}

/// Hides the secrets of a server's configuration.
pub(super) fn mask(server: &Server) -> Mask {
    let target = match &server.transport {
        Transport::Stdio {
            command, args, env, ..
        } => {
            let env = env
                .iter()
                .map(|(name, value)| format!("{name}={}", value.expose()));
            Target::Command {
                program: command.clone(),
                arguments: args.iter().cloned().chain(env).collect(),
            }
        }
        other => {
            let headers = other.headers().unwrap_or_default().iter();
            let headers = headers.map(|(name, value)| (name.clone(), value.expose().to_owned()));
            Target::Url {
                url: server.urls().next().unwrap_or_default().to_owned(),
                headers: headers.collect(),
            }
        }
    };
    Mask::of(&target)
}
