//! The gateway between the perfect server and the perfect client: what it gets in its command, and
//! its start.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fanlight_config::ListenAddress;
use fanlight_http::ListeningSocket;
use fanlight_protocol::Era;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::cases::SECOND;
use super::client::{Closed, PerfectClient};
use super::comparison::text_at;
use super::server::PerfectServer;
use crate::cli::WitnessArgs;
use crate::judge::peer::stdio::Process;
use crate::{Failure, Result, mock};

/// The time in which a gateway that answers has to know this era.
const GRACE: Duration = Duration::from_secs(5);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// The paths at which gateways listen.
const PATHS: [&str; 3] = ["/mcp", "/mcp/", "/"];
/// The credentials of a client without FANLIGHT_TOKEN. A gateway should keep them.
pub(super) const TOKEN: &str = "witness-credentials";

/// The transport between the gateway and its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    Stdio,
}

/// One start of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) era: Era,
    pub(super) transport: Transport,
    pub(super) servers: usize,
}

impl Run {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let eras = [Era::Legacy, Era::Modern].into_iter();
        eras.flat_map(|era| {
            [Transport::Http, Transport::Stdio]
                .into_iter()
                .flat_map(move |transport| {
                    [1, 2].map(|servers| Self {
                        era,
                        transport,
                        servers,
                    })
                })
        })
    }

    /// Whether the gateway can be given these servers.
    pub(super) fn is_tried(self, args: &WitnessArgs) -> bool {
        let has = |placeholder: &str| args.command.iter().any(|word| word.contains(placeholder));
        let (one, two) = match self.transport {
            Transport::Http => ("{url}", "{url2}"),
            Transport::Stdio => ("{command}", "{command2}"),
        };
        match &args.url {
            Some(_) => self.transport == Transport::Http && self.servers == 1,
            None => has("{config}") || has(one) && has(two) == (self.servers == 2),
        }
    }
}

/// The gateway and the servers behind it. Dropping it ends them.
pub(super) struct Stage {
    run: Run,
    pub(super) servers: Vec<Arc<PerfectServer>>,
    /// The URLs at which the gateway may listen; none if it speaks over stdio.
    urls: Vec<String>,
    process: Option<Process>,
    token: String,
    _folder: TempDir,
    serving: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Stage {
    /// Starts servers, and the gateway.
    pub(super) fn set(run: Run, args: &WitnessArgs) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (mut serving, shutdown) = (JoinSet::new(), CancellationToken::new());
        let servers: Vec<_> = (0..run.servers)
            .map(|index| Arc::new(PerfectServer::new(index == 1)))
            .collect();
        let mut words = args.command.clone();
        let port = free_port()?;
        let mut replace = |placeholder: &str, with: &str| {
            let words = words.iter_mut();
            words.for_each(|word| *word = word.replace(placeholder, with));
        };
        let mut entries = serde_json::Map::new();
        for (server, suffix) in servers.iter().zip(["", "2"]) {
            let entry = match run.transport {
                Transport::Http => {
                    let (address, served) = serve(server, run, args.upstream, shutdown.clone())?;
                    serving.spawn(served);
                    let url = format!("http://{address}/mcp");
                    replace(&format!("{{url{suffix}}}"), &url);
                    json!({ "type": "http", "url": url })
                }
                Transport::Stdio => {
                    let name = format!("server{suffix}");
                    let path = folder.path().join(name);
                    write_script(&path, run.era, server.is_second)?;
                    let path = path.display().to_string();
                    replace(&format!("{{command{suffix}}}"), &path);
                    json!({ "command": path, "args": [] })
                }
            };
            entries.insert(format!("witness{suffix}"), entry);
        }
        let config = folder.path().join("mcp.json");
        std::fs::write(
            &config,
            json!({ "mcpServers": Value::Object(entries) }).to_string(),
        )?;
        replace("{config}", &config.display().to_string());
        replace("{port}", &port.to_string());
        let (urls, mut process) = match (&args.url, words.split_first()) {
            (Some(url), _) => (vec![url.clone()], None),
            (None, Some((program, arguments))) => {
                let process = Process::start(program, arguments).map_err(Failure::usage)?;
                let listens = args.command.iter().any(|word| word.contains("{port}"));
                let urls = PATHS.map(|path| format!("http://127.0.0.1:{port}{path}"));
                (
                    if listens { urls.to_vec() } else { Vec::new() },
                    Some(process),
                )
            }
            (None, None) => return Err(usage!("name the command of the gateway")),
        };
        if let Some(process) = process.as_mut().filter(|_| !urls.is_empty()) {
            // Its output must not stop it. The task ends with the process.
            let mut lines = process.take_lines();
            tokio::spawn(async move { while lines.recv().await.is_some() {} });
        }
        let token = std::env::var("FANLIGHT_TOKEN").ok();
        Ok(Self {
            run,
            servers,
            urls,
            process,
            token: token.unwrap_or_else(|| TOKEN.to_owned()),
            _folder: folder,
            serving,
            shutdown,
        })
    }

    /// Ends the gateway and the servers, so that their ports are free again.
    pub(super) async fn end(mut self) {
        drop(self.process.take());
        self.shutdown.cancel();
        let ended = async { while self.serving.join_next().await.is_some() {} };
        // Dropping the rest ends it.
        let _ = timeout(GRACE, ended).await;
    }

    /// Whether two clients can use this gateway.
    pub(super) fn has_listener(&self) -> bool {
        !self.urls.is_empty()
    }

    /// A client, once the gateway offers the servers' tools to it.
    pub(super) async fn client(&mut self, ready: Duration) -> Result<PerfectClient, String> {
        let until = Instant::now() + ready;
        let mut client = match self.urls.is_empty() {
            true => self.open_stdio(until).await?,
            false => self.open_http(until).await?,
        };
        client.end = until;
        loop {
            let list = client.list("tools/list", "tools").await;
            let (why, entries) = match list {
                Ok(list) => (
                    "it does not list the servers' tools".to_owned(),
                    list.entries,
                ),
                Err(error) => (format!("it lists no tools: {error}"), Vec::new()),
            };
            let names = || entries.iter().filter_map(|it| text_at(it, "/name"));
            let has = |name: &str| known_as(names(), name).is_some();
            if has("definition") && (self.run.servers == 1 || has(SECOND)) {
                return Ok(client);
            }
            if Instant::now() >= until {
                return Err(why);
            }
            client.forget("tools/list");
            sleep(PAUSE).await;
        }
    }

    async fn open_stdio(&mut self, until: Instant) -> Result<PerfectClient, String> {
        let process = self.process.take().ok_or("it is not running")?;
        let mut client = PerfectClient::over_stdio(process, self.run.era, until);
        match client.open().await {
            Ok(()) => Ok(client),
            Err(closed) => Err(with_words(&closed.why, &client.last_words())),
        }
    }

    async fn open_http(&mut self, mut until: Instant) -> Result<PerfectClient, String> {
        let mut has_answered = false;
        loop {
            let mut closed = Vec::new();
            for url in self.urls.clone() {
                match self.open_at(&url, until).await {
                    Ok(client) => {
                        self.urls = vec![url];
                        return Ok(client);
                    }
                    Err(error) => closed.push(error),
                }
            }
            if !has_answered && closed.iter().any(|it| it.is_answer) {
                has_answered = true;
                until = until.min(Instant::now() + GRACE);
            }
            // A reason in words is worth more than the status of a wrong path.
            closed.sort_by_key(|it| !it.is_answer);
            let why = closed.first().map_or("", |it| it.why.as_str());
            let has_ended = self.process.as_mut().is_some_and(Process::has_ended);
            if has_ended || Instant::now() >= until {
                let words = self.process.as_ref().map(Process::last_words);
                return Err(with_words(why, &words.unwrap_or_default()));
            }
            sleep(PAUSE).await;
        }
    }

    async fn open_at(&self, url: &str, until: Instant) -> Result<PerfectClient, Closed> {
        let mut client = PerfectClient::over_http(url, &self.token, self.run.era, until)?;
        client.open().await.map(|()| client)
    }

    /// A second client of a gateway that listens.
    pub(super) async fn twin(&self, end: Instant) -> Result<PerfectClient, String> {
        let url = self.urls.first().ok_or("it has one client")?;
        self.open_at(url, end).await.map_err(|closed| closed.why)
    }
}

fn with_words(why: &str, words: &[String]) -> String {
    match words.last() {
        Some(last) => format!("{why}; its last words: {last}"),
        None => why.to_owned(),
    }
}

/// A server over HTTP, for clients of this era. A gateway that runs already gets both eras.
fn serve(
    server: &Arc<PerfectServer>,
    run: Run,
    port: Option<u16>,
    shutdown: CancellationToken,
) -> Result<(SocketAddr, impl Future<Output = ()> + use<>)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
    let bound = ListeningSocket::bind(&ListenAddress::Ip(address));
    let socket = bound.map_err(|error| failure!("{address}: {error}"))?;
    let address = socket.address()?.ip();
    let address = address.ok_or_else(|| failure!("the server has no port"))?;
    let only = port.is_none().then_some(run.era);
    let served = mock::serve_author(server.clone(), only, socket, shutdown);
    Ok((address, served))
}

fn free_port() -> std::io::Result<u16> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Writes a program that serves over stdio. It needs no arguments, so that its path is both one
/// word and a whole command line.
fn write_script(path: &Path, era: Era, is_second: bool) -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let program = program.display().to_string().replace('\'', r"'\''");
    let second = if is_second { " --second" } else { "" };
    let text = format!("#!/bin/sh\nexec '{program}' witness-server {era}{second}\n");
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

/// The shortest of `names` that ends with `name`, if only letters and digits count: gateways add
/// prefixes and replace separators.
pub(super) fn known_as(names: impl Iterator<Item = String>, name: &str) -> Option<String> {
    let plain = |text: &str| {
        let characters = text.chars().filter(char::is_ascii_alphanumeric);
        characters.collect::<String>().to_ascii_lowercase()
    };
    let wanted = plain(name);
    names
        .filter(|known| plain(known).ends_with(&wanted))
        .min_by_key(String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_found_under_the_name_that_a_gateway_gives_it() {
        let names = || {
            ["s0-text-id", "s0-long-text-id", "other"]
                .map(str::to_owned)
                .into_iter()
        };
        assert_eq!(known_as(names(), "text_id").as_deref(), Some("s0-text-id"));
        assert_eq!(known_as(names(), "nothing"), None);
    }
}
