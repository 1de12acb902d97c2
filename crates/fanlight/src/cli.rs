//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fanlight_canonical::Endpoint;
use fanlight_config::ListenAddress;
use fanlight_gateway::Gateway;

use crate::endpoints;
use crate::failure::Failure;

/// A transparent, aggregating MCP proxy: one endpoint in front of several MCP servers.
///
/// Without a command it serves over HTTP. Without --config it reads fanlight.yaml or mcp.json in this
/// folder; if there is neither, it runs a demo with two small servers of its own.
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
    /// Check the files of the configuration, without connecting anywhere
    Validate {
        /// Do not mind variables that are not set, as in a pipeline that does not have the secrets
        #[arg(long)]
        allow_missing_env: bool,
    },
    /// Check the configuration, connect to every backend, and report what was found
    Check,
    /// Show the merged catalogue
    List {
        /// What to list; everything if left out
        what: Option<Listed>,
        /// Print JSON, with the entries as clients receive them
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        endpoint: EndpointArgs,
    },
    /// Call one tool and print its result; exit status 1 if it is an error
    Call(CallArgs),
    /// Make the same call directly and through the gateway, and compare the results byte by byte
    Diff(CallArgs),
    /// Make a call with a known `traceparent` and show hop by hop whether it was carried
    TraceTest(TraceTestArgs),
    /// Make, list and revoke keys of clients, in the file that `auth.keys` names
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Show the state of a running gateway and its backends; exit status 1 if it is not ready
    Status(StatusArgs),
    /// Show the last traces of a running gateway, or one of them as a waterfall
    Traces(TracesArgs),
    /// Have a running gateway read its configuration again; exit status 1 if it cannot be used
    Reload(AdminArgs),
    /// Switch a server of a running gateway on, until the gateway restarts
    Enable(ServerArgs),
    /// Switch a server of a running gateway off, until the gateway restarts
    Disable(ServerArgs),
    /// Start a server of a running gateway anew
    Restart(ServerArgs),
    /// End the session of a client of a running gateway
    EndSession(SessionArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Run one of the two servers of the demo
    #[command(hide = true)]
    DemoServer { era: DemoEra },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key, print it once on standard output, and add its digest to the file; a running gateway accepts it at once
    New(NewKeyArgs),
    /// Show the keys in the file
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: KeyFileArgs,
    },
    /// Remove the keys of a name; a running gateway ends what their clients have open
    Revoke {
        /// The name of the keys
        name: String,
        /// Only those whose digest begins so, as after a renewal
        #[arg(long, value_name = "DIGITS")]
        sha256: Option<String>,
        #[command(flatten)]
        file: KeyFileArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewKeyArgs {
    /// The name of the clients with this key; further keys of the same name are for the same clients
    pub(crate) name: String,
    /// Groups of these clients
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',')]
    pub(crate) groups: Vec<String>,
    /// Scopes of these clients [default: all]
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',')]
    pub(crate) scopes: Vec<String>,
    /// When the key expires: after a time such as 90d or 12h, on a day in UTC such as 2027-01-31, or never
    #[arg(long, value_name = "WHEN")]
    pub(crate) expires: Option<String>,
    /// Paths of the endpoints that it is for, such as /mcp/readers [default: all]
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    pub(crate) endpoints: Vec<String>,
    /// Print the entry on standard error and change no file
    #[arg(long, conflicts_with = "file")]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) file: KeyFileArgs,
}

/// The file with keys.
#[derive(Debug, Args)]
pub(crate) struct KeyFileArgs {
    /// The file with keys [default: `auth.keys.file` of the configuration]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Address to listen on, or unix:PATH [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<ListenAddress>,
    /// Address for operators (/ui, /api, /metrics, /healthz, /readyz), or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<Admin>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) reload: ReloadArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StdioArgs {
    /// Path of the endpoint that the client gets [default: the default endpoint, at `path`]
    #[arg(long, value_name = "PATH")]
    pub(crate) endpoint: Option<String>,
    /// Address for operators (/ui, /api, /metrics, /healthz, /readyz), or `off`. Port 0 takes a free
    /// port and logs it [default: `admin.listen` if the configuration has it, else off]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<Admin>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) reload: ReloadArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReloadArgs {
    /// Do not watch the files of the configuration; SIGHUP and `fanlight reload` still reload it
    #[arg(long)]
    pub(crate) no_watch: bool,
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
    /// The configuration: fanlight.yaml, or an mcp.json of a desktop client. More than once: the first file has the
    /// options, all have servers
    #[arg(long, short, value_name = "FILE", global = true)]
    pub(crate) config: Vec<PathBuf>,
    /// Filter of the log on standard error, as in RUST_LOG: `info`, `fanlight_backend=debug`, …
    #[arg(long, value_name = "FILTER", global = true)]
    pub(crate) log: Option<String>,
    /// Format of the log
    #[arg(long, value_enum, default_value_t, global = true)]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The tool, by the name that clients see
    pub(crate) tool: String,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
}

/// The endpoint that a command looks through.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EndpointArgs {
    /// Path of an endpoint of the configuration, such as /mcp/readers [default: everything]
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
}

impl EndpointArgs {
    /// The path, if one is named.
    pub(crate) fn path(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// The endpoint, or everything if none is named.
    pub(crate) fn find(&self, gateway: &Gateway) -> Result<Endpoint, Failure> {
        self.endpoint.as_deref().map_or(Ok(Endpoint::Everything), |path| endpoints::find(gateway, path))
    }
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin listener of the running gateway; its token comes from FANLIGHT_ADMIN_TOKEN
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub(crate) admin: String,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server, by its name in the configuration
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The digest of the session's id, as `/api/sessions` and the page show it
    pub(crate) digest: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the API's JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TracesArgs {
    /// The trace to show: its id, the beginning of its id, or a `traceparent`
    pub(crate) trace_id: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Only traces that went to this backend
    #[arg(long, value_name = "NAME", conflicts_with = "trace_id")]
    pub(crate) backend: Option<String>,
    /// Only traces that called this tool, by its own or its prefixed name
    #[arg(long, value_name = "NAME", conflicts_with = "trace_id")]
    pub(crate) tool: Option<String>,
    /// Only traces with an error
    #[arg(long, conflicts_with = "trace_id")]
    pub(crate) error: bool,
    /// Only traces with this text in their id, or in a name or attribute of a span
    #[arg(long, value_name = "TEXT", conflicts_with = "trace_id")]
    pub(crate) text: Option<String>,
    /// Most traces to show
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(crate) limit: u16,
    /// Print the API's JSON: a list, or one trace as OTLP-JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceTestArgs {
    /// The tool to call, by the name that clients see; by default the first with `readOnlyHint` that
    /// requires no arguments
    pub(crate) tool: Option<String>,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}")]
    arguments: String,
    /// The arguments as an option
    #[arg(long = "args", value_name = "JSON", conflicts_with = "arguments", requires = "tool")]
    named_arguments: Option<String>,
    /// The endpoint of a running gateway, with the key or access token in FANLIGHT_TOKEN; without one a gateway is started
    /// for the test
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the trace as OTLP-JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl TraceTestArgs {
    /// The arguments, from whichever option was given.
    pub(crate) fn arguments(&self) -> &str {
        self.named_arguments.as_deref().unwrap_or(&self.arguments)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Admin {
    At(ListenAddress),
    Off,
}

impl std::str::FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            address => {
                let wrong = "an address such as 127.0.0.1:8081, a Unix socket such as unix:/run/admin.sock, or `off`";
                address.parse().map(Self::At).map_err(|_| wrong.into())
            }
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
