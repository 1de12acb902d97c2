//! Finds and reads the configuration of a command.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use fanlight_canonical::DEFAULT_PATH;
use fanlight_config::settings::read_bounded;
use fanlight_config::{Config, Environment, Input, Loaded, SecretReference, Transport};
use tracing::{info, warn};
use url::Url;

use crate::failure::{Result, Unusable};
use crate::list_state::user_state_folder;
use crate::{CommonArgs, consent, demo, inputs, pins, policy, secrets};

/// The default names of the configuration in the current folder: the first existing file is used.
/// The last two are files of clients, which only list servers.
pub const DEFAULT_FILES: [&str; 4] = ["fanlight.yaml", "mcp.json", ".mcp.json", ".cursor/mcp.json"];

/// Reads the configuration named on the command line, else the folder's, else the demo. If the
/// command `acts`, it starts servers, and asks first if the configuration was only found in the
/// folder; without consent, no program runs and no request is sent for a secret.
pub fn load(args: &CommonArgs, acts: bool) -> Result<Loaded> {
    let Some(paths) = paths(args) else {
        if args.demo && !args.config.is_empty() {
            return Err(usage!(
                "the demo brings its own servers: leave out --config or the demo",
            ));
        }
        return demo::config();
    };
    let has_consent =
        args.may_act() || (acts && consent::ask(&read(&paths, &inputs::ask, &not_asked_for)?)?);
    let secret: &Secrets = if has_consent {
        &secrets::get
    } else {
        &not_asked_for
    };
    let loaded = read(&paths, &inputs::ask, secret)?;
    if args.config.is_empty() {
        info!(
            "no --config: using {} of this folder",
            loaded.path.display()
        );
    }
    for problem in &loaded.warnings {
        let line = problem.position().map(|position| position.line);
        warn!(file = %problem.file().display(), line, "{}", problem.message());
    }
    Ok(loaded)
}

/// The files named on the command line, or the folder's file; `None` for the demo.
pub fn paths(args: &CommonArgs) -> Option<Vec<PathBuf>> {
    if args.demo {
        return None;
    }
    if !args.config.is_empty() {
        return Some(args.config.clone());
    }
    let found = DEFAULT_FILES
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    found.map(|path| vec![path])
}

/// Reads the configuration in these files again, without asking for input values.
pub fn read_again(paths: &[PathBuf]) -> Result<Loaded, Unusable> {
    read(paths, &inputs::remembered_answer, &secrets::get)
}

/// A function that reads secrets from outside the configuration files.
type Secrets = dyn Fn(&SecretReference) -> Result<String, String>;

/// Refuses to read secrets for a configuration that was only found in the folder, since others may
/// have written it.
fn not_asked_for(_: &SecretReference) -> Result<String, String> {
    Err(
        "not used without your consent, since it was only found in this folder: name it with \
         --config, or add --yes"
            .to_owned(),
    )
}

/// The value of an environment variable.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The text of a file that the command line names, up to a length.
pub(crate) fn read_text(path: &Path, longest: usize) -> Result<String> {
    let unreadable = |error: &dyn Display| usage!("{}: cannot be read: {error}", path.display());
    let bytes = read_bounded(path, longest).map_err(|error| unreadable(&error))?;
    String::from_utf8(bytes).map_err(|error| unreadable(&error))
}

/// Reads the configuration in these files. The environment and the answers of `ask` complete it.
fn read(
    paths: &[PathBuf],
    ask: &dyn Fn(&Input) -> Option<String>,
    secret: &Secrets,
) -> Result<Loaded, Unusable> {
    secrets::begin_reading();
    let environment = Environment {
        variable: &variable,
        ask,
        secret,
    };
    let mut loaded = fanlight_config::load_usable(paths, environment).map_err(Unusable::Errors)?;
    leave_out_fanlight(&mut loaded.config, paths);
    policy::load(&loaded.config, None).map_err(Unusable::Other)?;
    if loaded.config.pins.text.is_some() {
        pins::check(&loaded.config).map_err(Unusable::Other)?;
    }
    loaded.config.user_state = user_state_folder(paths);
    if !loaded.config.servers.iter().any(|server| server.enabled) {
        let message = format!(
            "{}: no server is enabled; add one under mcpServers",
            loaded.path.display()
        );
        return Err(Unusable::Other(message));
    }
    Ok(loaded)
}

/// Switches off servers that are this gateway itself. A client's file has an entry for Fanlight
/// once the client uses it; as a server, it would start processes or call itself endlessly.
fn leave_out_fanlight(config: &mut Config, paths: &[PathBuf]) {
    let of_listener = config.listen.ip().map(|address| address.port());
    let public = config.public_url.clone();
    for server in config.servers.iter_mut().filter(|server| server.enabled) {
        let is_fanlight = match &server.transport {
            Transport::Stdio { command, args, .. } => starts_fanlight(command, args, paths),
            Transport::Http { .. } | Transport::Sse { .. } => {
                let is_it = |url: &str| {
                    let of_public = public
                        .as_ref()
                        .is_some_and(|public| url.starts_with(public.as_str()));
                    of_public || of_listener.is_some_and(|port| is_at(url, port, DEFAULT_PATH))
                };
                server.urls().any(is_it)
            }
            Transport::Incomplete { .. } => false,
        };
        if is_fanlight {
            warn!(server = %server.name, "server left out: it is this gateway itself");
            server.enabled = false;
        }
    }
}

/// Whether this command starts `fanlight stdio` with the same configuration, directly or through
/// `npx` or `uvx`.
fn starts_fanlight(command: &str, args: &[String], paths: &[PathBuf]) -> bool {
    let words: Vec<&str> = std::iter::once(command)
        .chain(args.iter().map(String::as_str))
        .collect();
    let is_program = |word: &&str| {
        let name = Path::new(word)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.split('@').next() == Some("fanlight")
    };
    // A runner names the program to run as the first word after its options.
    let is_runner = ["npx", "uvx", "bunx", "pipx", "pnpm"]
        .iter()
        .any(|runner| Path::new(command).ends_with(runner));
    let Some(at) = words
        .iter()
        .position(is_program)
        .filter(|at| *at == 0 || is_runner)
    else {
        return false;
    };
    let rest = words.get(at + 1..).unwrap_or_default();
    if !rest.contains(&"stdio") || rest.contains(&"--demo") {
        return false;
    }
    let mut named = rest
        .iter()
        .zip(rest.iter().skip(1))
        .filter(|(option, _)| ["--config", "-c"].contains(option));
    let same =
        |one: &str, other: &PathBuf| match (Path::new(one).canonicalize(), other.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        };
    let has_other = rest.iter().any(|word| word.starts_with("--config="));
    match named.next() {
        // Without `--config` that process reads the folder's configuration, which may be this one.
        None => !has_other,
        Some((_, path)) => paths.iter().any(|own| same(path, own)),
    }
}

/// Whether `url` has this port and path on this machine.
fn is_at(url: &str, port: u16, path: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default();
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    is_local && url.port_or_known_default() == Some(port) && url.path() == path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_starts_this_gateway_is_recognised() {
        let starts = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            starts_fanlight(&words[0], &words[1..], &[PathBuf::from("Cargo.toml")])
        };
        for line in [
            "fanlight stdio",
            "/usr/bin/fanlight stdio --log debug",
            "npx -y fanlight@0.2.0 stdio",
            "uvx fanlight stdio",
            "fanlight stdio --config Cargo.toml",
            "fanlight --config ./Cargo.toml stdio",
        ] {
            assert!(starts(line), "{line}");
        }
        for line in [
            "fanlight stdio --config src/main.rs",
            "fanlight stdio --config=other.yaml",
            "fanlight stdio --demo",
            "fanlight demo-server modern",
            "node fanlight stdio",
            "npx -y fanlight-something stdio",
        ] {
            assert!(!starts(line), "{line}");
        }
    }

    #[test]
    fn url_of_the_own_listener_is_recognised() {
        for url in [
            "http://127.0.0.1:8080/mcp",
            "http://localhost:8080/mcp?x=1",
            "https://[::1]:8080/mcp",
        ] {
            assert!(is_at(url, 8080, "/mcp"), "{url}");
        }
        for url in [
            "http://127.0.0.1:8081/mcp",
            "http://127.0.0.1:8080/other",
            "http://10.0.0.1:8080/mcp",
            "x",
        ] {
            assert!(!is_at(url, 8080, "/mcp"), "{url}");
        }
    }
}
