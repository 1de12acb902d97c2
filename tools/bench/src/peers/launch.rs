//! Starts a gateway in front of a server.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::install::{Installed, run_in};
use super::roster::{CONTEXT_FORGE_SECRET, CONTEXT_FORGE_USER, Peer, Recipe, Source};
use crate::access::Access;
use crate::era::Era;
use crate::error::{BenchError, Doing, Result, within};
use crate::load::connection::Connection;
use crate::load::head::post;
use crate::load::request::excerpt;
use crate::system::{Bench, FanlightConfig, Kind, Process, Surroundings, System, free_address};
use crate::usage::Usage;

/// The server behind the gateways.
#[derive(Clone, Debug)]
pub(super) enum Server {
    Http(SocketAddr),
    /// The words of the server's command.
    Stdio(Vec<String>),
}

/// A gateway that listens.
pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    pub(super) access: Access,
    running: Running,
    /// The folder in which it was started; `None` for a system of this program.
    _folder: Option<TempDir>,
}

enum Running {
    System(System),
    Process(Process),
}

/// The time-out from the start until it listens, and from then until it knows the server.
const PATIENCE: u64 = 180;

impl Gateway {
    pub(super) async fn start(
        bench: &Bench,
        peer: &Peer,
        installed: Option<&Installed>,
        server: &Server,
        era: Era,
    ) -> Result<Self> {
        let of_kind = |kind, address| async move {
            System::start(bench, kind, &[address], &FanlightConfig::default())
                .await
                .map(Self::new)
        };
        match (&peer.source, server) {
            (Source::Direct, Server::Http(address)) => of_kind(Kind::Direct, *address).await,
            (Source::Nginx, Server::Http(address)) => of_kind(Kind::Nginx, *address).await,
            (Source::Fanlight, Server::Http(address)) => of_kind(Kind::Fanlight, *address).await,
            (Source::Fanlight, Server::Stdio(words)) => {
                System::start_fanlight_over_stdio(bench, words)
                    .await
                    .map(Self::new)
            }
            _ => match peer.recipe(era) {
                Some(recipe) => Self::start_process(bench, peer, installed, server, &recipe).await,
                None => Err(BenchError::Unsupported(format!(
                    "{} has no such servers",
                    peer.name
                ))),
            },
        }
    }

    fn new(system: System) -> Self {
        let (address, access) = (system.address, system.access.clone());
        Self {
            address,
            access,
            running: Running::System(system),
            _folder: None,
        }
    }

    async fn start_process(
        bench: &Bench,
        peer: &Peer,
        installed: Option<&Installed>,
        server: &Server,
        recipe: &Recipe,
    ) -> Result<Self> {
        let address = free_address()?;
        let folder = tempfile::tempdir().doing("making a temporary folder")?;
        if let Some((name, text)) = recipe.file {
            std::fs::write(folder.path().join(name), filled(text, server, address))
                .doing("writing a configuration")?;
        }
        let mut words = all_filled(recipe, server, address).into_iter();
        let first = words.next().unwrap_or_default();
        let program = installed.map_or_else(
            || Path::new(&first).to_owned(),
            |installed| installed.programs.join(&first),
        );
        let args: Vec<OsString> = words.map(OsString::from).collect();
        let variables = recipe
            .variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let surroundings = Surroundings {
            folder: Some(folder.path().to_owned()),
            variables,
        };
        let mut process =
            Process::start_in(&peer.name, &program, &args, bench.gateway, &surroundings)?;
        within(
            &format!("{} to listen", peer.name),
            PATIENCE,
            listening(&mut process, address),
        )
        .await?;
        let mut access = Access::default();
        if let (Source::ContextForge, Some(installed), Server::Http(server)) =
            (&peer.source, installed, server)
        {
            let token = context_forge_token(installed, &surroundings).await?;
            let registering = register_at_context_forge(address, *server, &token);
            within("the server to be registered", PATIENCE, registering).await?;
            access.token = Some(token);
        }
        Ok(Self {
            address,
            access,
            running: Running::Process(process),
            _folder: Some(folder),
        })
    }

    /// The resources that it and its descendants have used.
    pub(super) fn usage(&self) -> Result<Usage> {
        match &self.running {
            Running::System(system) => system.usage(),
            Running::Process(process) => Usage::of_tree(process.pid()),
        }
    }

    pub(super) async fn stop(self) -> Result<()> {
        match self.running {
            Running::System(system) => system.stop().await,
            Running::Process(process) => process.stop().await,
        }
    }
}

async fn listening(process: &mut Process, address: SocketAddr) -> Result<()> {
    while TcpStream::connect(address).await.is_err() {
        process.check_alive()?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn all_filled(recipe: &Recipe, server: &Server, address: SocketAddr) -> Vec<String> {
    let mut words = Vec::new();
    for word in &recipe.words {
        match (word.as_str(), server) {
            ("{words}", Server::Stdio(command)) => words.extend(command.iter().cloned()),
            _ => words.push(filled(word, server, address)),
        }
    }
    words
}

/// `text` with its placeholders replaced.
fn filled(text: &str, server: &Server, address: SocketAddr) -> String {
    let text = text.replace("{port}", &address.port().to_string());
    match server {
        Server::Http(server) => text.replace("{url}", &format!("http://{server}/mcp")),
        Server::Stdio(words) => {
            let (command, args) = words
                .split_first()
                .map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
            let object = json!({"command": command, "args": args}).to_string();
            text.replace("{command-json}", &object)
                .replace("{command}", &words.join(" "))
        }
    }
}

/// An administrator's token, made by the gateway's own program.
pub(super) async fn context_forge_token(
    installed: &Installed,
    surroundings: &Surroundings,
) -> Result<String> {
    let python = installed.programs.join("python");
    let args = [
        "-m",
        "mcpgateway.utils.create_jwt_token",
        "--username",
        CONTEXT_FORGE_USER,
        "--exp",
        "600",
    ];
    let args = [&args[..], &["--secret", CONTEXT_FORGE_SECRET]].concat();
    let lines = run_in("create_jwt_token", &python, &args, surroundings).await?;
    let token = lines.into_iter().find(|line| line.starts_with("eyJ"));
    token.ok_or_else(|| BenchError::Other("create_jwt_token made no token".into()))
}

/// Registers a server's tools at the gateway.
async fn register_at_context_forge(
    address: SocketAddr,
    server: SocketAddr,
    token: &str,
) -> Result<()> {
    let url = format!("http://{server}/mcp");
    let body = json!({"name": "s0", "url": url, "transport": "STREAMABLEHTTP"}).to_string();
    let mut connection = Connection::open(address, None).await?;
    let request = post("/v1/gateways", Era::Legacy, &body, None, Some(token), &[]);
    let head = connection.send(&request).await?;
    let answer = connection.body(&head).await?;
    if matches!(head.status, 200 | 201) {
        return Ok(());
    }
    Err(BenchError::Unsupported(format!(
        "the server was not accepted: HTTP {}: {}",
        head.status,
        excerpt(&answer)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        let address: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let stdio = Server::Stdio(["echo", "--era=modern"].map(str::to_owned).to_vec());
        let recipe = Recipe {
            words: ["p", "{port}", "{words}"].map(str::to_owned).to_vec(),
            ..Recipe::default()
        };
        assert_eq!(
            all_filled(&recipe, &stdio, address),
            ["p", "7", "echo", "--era=modern"]
        );
        assert_eq!(
            filled("'{command}'", &stdio, address),
            "'echo --era=modern'"
        );
        assert_eq!(
            filled("{command-json}", &stdio, address),
            r#"{"command":"echo","args":["--era=modern"]}"#
        );
        assert_eq!(
            filled("{url}", &Server::Http(address), address),
            "http://127.0.0.1:7/mcp"
        );
    }
}
