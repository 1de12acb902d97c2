//! The command line of `fanlight replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fanlight_canonical::comparison::Severity;

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The recording
    pub file: PathBuf,
    /// The recorded server whose messages to replay [default: the one called like --server, else
    /// the only one, else what clients of the gateway sent]
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// The server of the configuration to test
    #[arg(long, value_name = "NAME", conflicts_with_all = ["url", "command"])]
    pub server: Option<String>,
    /// The URL of the server to test, which gets the key or access token in FANLIGHT_TOKEN
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub url: Option<String>,
    /// A header to send to that URL, such as 'X-Tenant: a'
    #[arg(long, value_name = "HEADER", requires = "url")]
    pub header: Vec<String>,
    /// Compare only the definitions, and call nothing
    #[arg(long, conflicts_with = "all")]
    pub definitions: bool,
    /// Send also the requests that may change something, once each
    #[arg(long)]
    pub all: bool,
    /// A place that is not compared, as a JSON Pointer; `TOOL:` in front limits it to a tool, `*`
    /// stands for the items of a list
    #[arg(long, value_name = "POINTER")]
    pub ignore: Vec<String>,
    /// The least severity that makes the exit status 1
    #[arg(long, value_enum, default_value_t)]
    pub fail_on: FailOn,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the report in JUnit's XML to this file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// The command that starts the server to test, such as `-- node server.js`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Breaking,
    #[default]
    Look,
    Value,
}

impl FailOn {
    /// The severity.
    pub fn severity(self) -> Severity {
        match self {
            Self::Breaking => Severity::Breaking,
            Self::Look => Severity::Look,
            Self::Value => Severity::Value,
        }
    }
}
