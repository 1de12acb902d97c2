//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::era::Era;
use crate::fake::FakeArgs;
use crate::scenario::Group;
use crate::system::Kind;

/// Measures Fanlight in comparison with a plain reverse proxy.
#[derive(Debug, Parser)]
#[command(name = "fanlight-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure, print the tables, and write everything to a JSON file
    Run(Box<RunArgs>),
    /// Count instructions per call under valgrind, and fail if there are more than the budget
    /// allows
    Check(CheckArgs),
    /// Be a fake MCP server over HTTP
    Serve(FakeArgs),
    /// Be a fake MCP server over stdio
    Echo {
        /// The era it speaks
        #[arg(long, value_enum, default_value = "modern")]
        era: Era,
        /// Tools in its list
        #[arg(long, default_value_t = 50)]
        tools: usize,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// One short round of everything: to see that it works, not to compare
    #[arg(long)]
    pub(crate) quick: bool,
    /// The groups to measure [default: everything]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Group>,
    /// The systems to compare [default: all that are installed]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) systems: Vec<Kind>,
    /// The eras to speak [default: both]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) eras: Vec<Era>,
    /// Rounds; results are their medians [default: 3]
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Seconds of one measurement of one system [default: 2]
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
    /// Connections of the closed loop
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub(crate) connections: usize,
    /// Idle streams [default: 10000, or as many as the limit on open files allows]
    #[arg(long, value_name = "N")]
    pub(crate) streams: Option<usize>,
    /// Seconds of churn: sessions that are opened and closed [default: 15]
    #[arg(long, value_name = "S")]
    pub(crate) churn_seconds: Option<u64>,
    /// The Fanlight to measure [default: the profile dist, which is built if cargo runs this]
    #[arg(long, value_name = "FILE")]
    pub(crate) fanlight: Option<PathBuf>,
    /// The processor of the system under test
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) gateway_core: usize,
    /// The processor of load and servers
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) load_core: usize,
    /// The file for the results [default: bench-results.json in the target folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) peers: PeersArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    /// Compare with other gateways instead, installed from their registries into the target folder
    #[arg(long, conflicts_with_all = ["only", "systems", "streams", "churn_seconds"])]
    pub(crate) peers: bool,
    /// Another gateway: a command for `sh` that serves MCP at http://127.0.0.1:{port}/mcp, in front
    /// of the server at {url} or of the stdio server that {command} starts
    #[arg(long, value_name = "NAME=COMMAND", requires = "peers")]
    pub(crate) peer: Vec<String>,
    /// The gateways to compare [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "peers")]
    pub(crate) only_peers: Vec<String>,
    /// Idle sessions per gateway [default: 100]
    #[arg(long, value_name = "N", requires = "peers")]
    pub(crate) sessions: Option<usize>,
    /// Calls a second of the fixed rate
    #[arg(long, value_name = "N", default_value_t = 50.0, requires = "peers")]
    pub(crate) rate: f64,
    /// Write the page with method and tables to this file
    #[arg(long, value_name = "FILE", requires = "peers")]
    pub(crate) write: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The Fanlight to measure [default: the profile dist, which is built if cargo runs this]
    #[arg(long, value_name = "FILE")]
    pub(crate) fanlight: Option<PathBuf>,
    /// The budget
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/budget.json"))]
    pub(crate) budget: PathBuf,
    /// Write the counts as the new budget
    #[arg(long)]
    pub(crate) update: bool,
    /// Count only the cost of spans (none, in the ring, exported), and do not compare with the
    /// budget
    #[arg(long, conflicts_with = "update")]
    pub(crate) only_tracing: bool,
    /// Count only the cost of a token, of TLS and of users' grants, and do not compare with the
    /// budget
    #[arg(long, conflicts_with_all = ["update", "only_tracing"])]
    pub(crate) only_access: bool,
    /// Count only the cost of `results` for small calls and lists, and do not compare with the
    /// budget
    #[arg(long, conflicts_with_all = ["update", "only_tracing", "only_access"])]
    pub(crate) only_results: bool,
}
