//! The command line.
//!
//! Must not know: what the commands do.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A transparent, aggregating MCP proxy: one endpoint in front of several MCP servers.
///
/// Without a command it runs the HTTP front. Without --config it reads fanlight.yaml or mcp.json in
/// this folder; if there is neither, it shows itself with two small servers of its own.
#[derive(Debug, Parser)]
#[command(name = "fanlight", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) run: RunArgs,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve over HTTP (the default command)
    Run(RunArgs),
    /// Serve over standard input and output, as one server of a desktop client
    Stdio(StdioArgs),
    /// Check the configuration, connect to every backend, and say what is found
    Check,
    /// Show the merged catalogue
    List {
        /// What to list; everything if left out
        what: Option<Listed>,
        /// Print JSON, entries as clients get them
        #[arg(long)]
        json: bool,
    },
    /// Call one tool and print its result; exit status 1 if it is an error
    Call(CallArgs),
    /// Make the same call directly and through the gateway, and compare the results byte by byte
    Diff(CallArgs),
    /// Make a call with a known `traceparent` and show hop by hop whether it was carried
    TraceTest(TraceTestArgs),
    /// How a running gateway and its backends are doing; exit status 1 if it is not ready
    Status(StatusArgs),
    /// The last traces of a running gateway, or one of them as a waterfall
    Traces(TracesArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// One of the two servers that show Fanlight where there is no configuration
    #[command(hide = true)]
    DemoServer { era: DemoEra },
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where operators look: /ui, /api, /metrics, /healthz, /readyz; or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<Admin>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StdioArgs {
    /// Where operators look: /ui, /api, /metrics, /healthz, /readyz; or `off`. Port 0 takes any that is
    /// free and logs which [default: `admin.listen` if the configuration has it, else off]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<Admin>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TraceArgs {
    /// Print each finished trace to standard error
    #[arg(long)]
    pub(crate) trace_console: bool,
    /// Append traces to this file, as lines of OTLP-JSON
    #[arg(long, value_name = "PATH")]
    pub(crate) trace_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// The configuration: fanlight.yaml, or an mcp.json as desktop clients have it
    #[arg(long, short, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// What to log to standard error, as in RUST_LOG: `info`, `fanlight_backend=debug`, …
    #[arg(long, value_name = "FILTER", global = true)]
    pub(crate) log: Option<String>,
    /// How to log
    #[arg(long, value_enum, default_value_t, global = true)]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The tool, by the name clients know
    pub(crate) tool: String,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin listener of the running gateway; its token comes from FANLIGHT_ADMIN_TOKEN
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub(crate) admin: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the API's answer
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TracesArgs {
    /// The trace to show, by its id, the beginning of that, or a `traceparent` of it
    pub(crate) trace_id: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Those that went to this backend
    #[arg(long, value_name = "NAME", conflicts_with = "trace_id")]
    pub(crate) backend: Option<String>,
    /// Those that called this tool, by either name
    #[arg(long, value_name = "NAME", conflicts_with = "trace_id")]
    pub(crate) tool: Option<String>,
    /// Those in which something failed
    #[arg(long, conflicts_with = "trace_id")]
    pub(crate) error: bool,
    /// Those with this text in their id, or in a name or attribute of a span
    #[arg(long, value_name = "TEXT", conflicts_with = "trace_id")]
    pub(crate) text: Option<String>,
    /// Most traces to show
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(crate) limit: u16,
    /// Print the API's answer: a list, or one trace as OTLP-JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceTestArgs {
    /// The tool to call, by the name clients know; without one, the first that says it only reads and
    /// needs no arguments
    pub(crate) tool: Option<String>,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}")]
    arguments: String,
    /// The same, by name
    #[arg(long = "args", value_name = "JSON", conflicts_with = "arguments", requires = "tool")]
    named_arguments: Option<String>,
    /// The endpoint of a running gateway; without one a gateway is started for the test
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the trace as OTLP-JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl TraceTestArgs {
    /// The arguments as given, in either way.
    pub(crate) fn arguments(&self) -> &str {
        self.named_arguments.as_deref().unwrap_or(&self.arguments)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Admin {
    At(SocketAddr),
    Off,
}

impl std::str::FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            address => address.parse().map(Self::At).map_err(|_| "an address such as 127.0.0.1:8081, or `off`".into()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    Tools,
    Resources,
    Prompts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoEra {
    Legacy,
    Modern,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON otherwise
    #[default]
    Auto,
    Text,
    Json,
}
