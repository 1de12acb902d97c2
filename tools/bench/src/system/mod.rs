//! The compared systems: nothing in between (`direct`), nginx, and Fanlight with one and with ten
//! servers.

mod fanlight;
mod nginx;
pub(crate) mod process;

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;
use tempfile::TempDir;
use tokio::task::JoinSet;

pub(crate) use fanlight::{FILTERED, FanlightConfig};
pub(crate) use process::{Cores, Process, Surroundings};

use crate::access::{Access, Issuer};
use crate::era::Era;
use crate::error::{BenchError, Doing, Result};
use crate::fake::{self, FakeArgs};
use crate::usage::Usage;

/// A system between a client and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Direct,
    Nginx,
    /// With one server.
    Fanlight,
    /// With ten servers.
    Fanlight10,
    /// With one server, without an audit log.
    FanlightNoRecord,
    /// With one server, recording no spans.
    FanlightNoSpans,
    /// With one server, keeping no content of calls.
    FanlightNoContent,
    /// With one server, exporting all spans to the fake server, which is the collector too.
    FanlightExporting,
    /// With ten servers and ten endpoints, and with changed names, definitions and arguments of
    /// tools.
    FanlightRewriting,
    /// With one server, and `results` of the endpoint.
    FanlightResults,
    /// With one server that has `results`.
    FanlightServerResults,
    /// With one server, for clients with a token.
    FanlightTokens,
    /// With one server, over TLS.
    FanlightTls,
    /// With one server that gets the same header in each message.
    FanlightHeader,
    /// With one server that gets the calling user's deposited credential.
    FanlightGrant,
}

impl Kind {
    /// The compared systems; the others only show the cost of tracing, rewriting, tokens, TLS and
    /// credentials for servers.
    pub(crate) const COMPARED: [Self; 4] =
        [Self::Direct, Self::Nginx, Self::Fanlight, Self::Fanlight10];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Fanlight => "fanlight",
            Self::Fanlight10 => "fanlight10",
            Self::FanlightNoRecord => "no record",
            Self::FanlightNoSpans => "no spans",
            Self::FanlightNoContent => "no content",
            Self::FanlightExporting => "exporting",
            Self::FanlightRewriting => "rewriting",
            Self::FanlightResults => "results",
            Self::FanlightServerResults => "results of the server",
            Self::FanlightTokens => "tokens",
            Self::FanlightTls => "TLS",
            Self::FanlightHeader => "header",
            Self::FanlightGrant => "grant",
        }
    }

    pub(crate) fn backends(self) -> usize {
        if matches!(self, Self::Fanlight10 | Self::FanlightRewriting) {
            10
        } else {
            1
        }
    }
}

/// The programs, and the processors on which they run.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) fanlight: PathBuf,
    /// A program with arguments that runs Fanlight; none if empty.
    pub(crate) runner: &'static [&'static str],
    /// The processors of the system under test.
    pub(crate) gateway: Cores,
    /// The processors of the fake server and of this process, which makes the load.
    pub(crate) load: Cores,
}

/// A running system under test.
pub(crate) struct System {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) access: Access,
    /// The prefix of tool names, for each server.
    prefixes: Vec<String>,
    process: Option<Process>,
    /// The folder of its configuration.
    _folder: Option<TempDir>,
    _issuer: Option<Issuer>,
}

impl System {
    /// Starts a system in front of `fakes`. Returns [`BenchError::Missing`] if its program is not
    /// on this machine.
    pub(crate) async fn start(
        bench: &Bench,
        kind: Kind,
        fakes: &[SocketAddr],
        config: &FanlightConfig,
    ) -> Result<Self> {
        let fakes = fakes.get(..kind.backends()).unwrap_or(fakes);
        let first = *fakes
            .first()
            .ok_or_else(|| BenchError::Other("no fake server".into()))?;
        match kind {
            Kind::Direct => Ok(Self::open(kind, first)),
            Kind::Nginx => nginx::start(bench, first).await,
            _ => fanlight::start(bench, kind, fakes, config).await,
        }
    }

    /// An open server at `address`, without prefixes and without a process in between.
    fn open(kind: Kind, address: SocketAddr) -> Self {
        let (access, prefixes) = (Access::default(), vec![String::new()]);
        Self {
            kind,
            address,
            access,
            prefixes,
            process: None,
            _folder: None,
            _issuer: None,
        }
    }

    /// Starts Fanlight in front of all of `fakes`.
    pub(crate) async fn start_fanlight(
        bench: &Bench,
        fakes: &[SocketAddr],
        config: &FanlightConfig,
    ) -> Result<Self> {
        fanlight::start(bench, Kind::Fanlight, fakes, config).await
    }

    /// Starts Fanlight in front of one stdio server.
    pub(crate) async fn start_fanlight_over_stdio(
        bench: &Bench,
        command: &[String],
    ) -> Result<Self> {
        fanlight::start_over_stdio(bench, command).await
    }

    /// The client-side names of a tool: one for each server.
    pub(crate) fn names(&self, tool: &str) -> Vec<String> {
        self.prefixes
            .iter()
            .map(|prefix| format!("{prefix}{tool}"))
            .collect()
    }

    pub(crate) fn backends(&self) -> usize {
        self.prefixes.len()
    }

    /// The system's usage so far; zero without a process in between.
    pub(crate) fn usage(&self) -> Result<Usage> {
        self.process
            .as_ref()
            .map_or(Ok(Usage::default()), |process| {
                Usage::of_tree(process.pid())
            })
    }

    /// Ends the process and returns the text after `part` in the last lines of its output.
    pub(crate) async fn stop_and_read(mut self, part: &str) -> Result<String> {
        let process = self
            .process
            .as_mut()
            .ok_or_else(|| BenchError::Other("no process".into()))?;
        process.terminate();
        let found = process.line_after(part).await?;
        self.stop().await?;
        Ok(found)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        stop(self.process).await
    }
}

/// Fake servers of one era in one process.
#[derive(Debug)]
pub(crate) struct Fakes {
    pub(crate) addresses: Vec<SocketAddr>,
    /// The process of the servers, or `None` for a task of this process that ends with this value.
    process: Option<Process>,
    _task: JoinSet<Result<()>>,
}

impl Fakes {
    /// Starts `servers` fake servers with 50 tools each, or with `tools`.
    pub(crate) async fn start(
        bench: &Bench,
        era: Era,
        servers: usize,
        tools: usize,
        delay_ms: u64,
    ) -> Result<Self> {
        Self::start_with(
            bench,
            era,
            &[
                ("servers", servers as u64),
                ("tools", tools as u64),
                ("delay-ms", delay_ms),
            ],
        )
        .await
    }

    /// Starts ten fake servers, of which another one restarts each second.
    pub(crate) async fn bouncing(bench: &Bench, era: Era) -> Result<Self> {
        Self::start_with(
            bench,
            era,
            &[("servers", 10), ("tools", 50), ("bounce-ms", 1000)],
        )
        .await
    }

    async fn start_with(bench: &Bench, era: Era, options: &[(&str, u64)]) -> Result<Self> {
        let program = this_program()?;
        let options = options
            .iter()
            .map(|(name, value)| format!("--{name}={value}"));
        let args = ["serve".to_owned(), format!("--era={}", era.as_str())]
            .into_iter()
            .chain(options);
        let args: Vec<OsString> = args.map(OsString::from).collect();
        let mut process = Process::start("the fake server", &program, &args, bench.load)?;
        let said = process.line_after(fake::LISTENING).await?;
        let parse = |word: &str| {
            word.parse()
                .map_err(|_| BenchError::Other(format!("no address: {word}")))
        };
        let addresses: Vec<SocketAddr> =
            said.split_whitespace().map(parse).collect::<Result<_>>()?;
        Ok(Self {
            addresses,
            process: Some(process),
            _task: JoinSet::new(),
        })
    }

    /// Starts the servers in this process, on the thread that makes the load. If two threads shared
    /// a processor, one would wait for the other's time slice, which takes milliseconds.
    pub(crate) async fn here(args: FakeArgs) -> Result<Self> {
        let (listeners, addresses) = fake::listen(args.servers).await?;
        let mut task = JoinSet::new();
        task.spawn(async move { fake::run(&args, listeners).await });
        Ok(Self {
            addresses,
            process: None,
            _task: task,
        })
    }

    /// The first server, which may be the only one.
    pub(crate) fn first(&self) -> Result<SocketAddr> {
        self.addresses
            .first()
            .copied()
            .ok_or_else(|| BenchError::Other("no fake server".into()))
    }

    pub(crate) async fn stop(self) -> Result<()> {
        stop(self.process).await
    }
}

async fn stop(process: Option<Process>) -> Result<()> {
    match process {
        Some(process) => process.stop().await,
        None => Ok(()),
    }
}

/// This program, which is also the fake server.
pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().doing("finding this program")
}

/// An address of this machine whose port is free.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let reserved = TcpListener::bind("127.0.0.1:0").doing("finding a free port")?;
    reserved.local_addr().doing("finding a free port")
}

/// A temporary folder with one file; also the file's path.
pub(crate) fn folder_with(name: &str, text: &str) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().doing("making a temporary folder")?;
    let file = folder.path().join(name);
    std::fs::write(&file, text).doing("writing a configuration")?;
    Ok((folder, file))
}
