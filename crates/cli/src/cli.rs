//! The command line.

#![expect(
    missing_docs,
    reason = "clap shows the documentation of these types to users; names and fields say the rest"
)]

mod groups;
mod policy;
mod trace_filters;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fanlight_canonical::comparison::Severity;
use fanlight_config::ListenAddress;
use fanlight_protocol::Era;

use crate::failure;
pub use groups::{GROUPS, command};
pub use policy::{ExplainArgs, PolicyCommand};
pub use trace_filters::TraceFilters;

/// The default name of the gateway's entry in a client's file.
pub const NAME: &str = "fanlight";

/// A transparent, aggregating MCP proxy: one endpoint in front of several MCP servers.
///
/// Without a command it serves over HTTP. Without --config it reads fanlight.yaml, mcp.json,
/// .mcp.json or .cursor/mcp.json in this folder. If there is none, it runs a demo with two small
/// servers of its own.
#[derive(Debug, Parser)]
#[command(name = "fanlight", version, after_help = failure::STATUSES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve over HTTP (the default command)
    Run(RunCommand),
    /// Serve over standard input and output, as a server that a desktop client starts
    Stdio(StdioArgs),
    /// Serve the demo (two small built-in servers) over HTTP, even if the folder has a
    /// configuration
    Demo(RunArgs),
    /// Check the configuration files without connecting to any server
    Validate(ValidateArgs),
    /// Check the configuration and connect to every server; or check one server without a
    /// configuration
    Check(CheckArgs),
    /// List the merged tools, resources and prompts of the running gateway; without one, start the
    /// servers for this command
    List {
        /// Tools, resources or prompts [default: all]. Also accepts a configuration file, as
        /// --config does
        #[arg(value_name = "WHAT|FILE", num_args = 0..=2)]
        what: Vec<ListTarget>,
        /// Print JSON, with the entries as clients receive them
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        endpoint: EndpointArgs,
        /// The endpoint of a gateway, called as a client does, with the key or access token in
        /// FANLIGHT_TOKEN; without one, you sign in if the gateway asks for it
        #[arg(long, value_name = "URL", conflicts_with_all = ["admin", "endpoint"])]
        url: Option<String>,
        /// Open no browser for the sign-in; print the URL to open on this machine
        #[arg(long, requires = "url")]
        no_browser: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Show which tools a search in a lean list finds, and why; or check a file of expected results.
    /// Starts the servers for this command
    Find(FindArgs),
    /// Call one tool and print its result; exit status 1 if it is an error. Uses the running
    /// gateway; without one, starts the servers for this command
    Call(CallCommand),
    /// Make the same call directly and through the gateway, and compare the results byte by byte
    Diff(CallArgs),
    /// Call a tool with a known `traceparent`, and show at which hops it arrived
    TraceTest(TraceTestArgs),
    /// Answer as a server that was recorded with `fanlight record`
    Mock(MockArgs),
    /// Send the safe requests of a recording to a server, and compare its answers and definitions;
    /// exit status 1 if they differ, 2 if nothing could be compared
    Replay(Box<ReplayArgs>),
    /// Stand on both sides of any gateway, and report what does not arrive as sent; exit status 1
    /// if something does not, 2 if nothing could be judged
    Witness(WitnessArgs),
    /// Add a server to the configuration: `add NAME -- COMMAND` or `add NAME --url URL`
    Add(AddArgs),
    /// Add this gateway to a client's file, such as cursor's or claude-code's; without a
    /// client, list the clients on this machine
    Connect(ConnectArgs),
    /// Import the servers of the clients on this machine into a Fanlight configuration
    Import(ImportArgs),
    /// Create, list and revoke client keys in the file that `auth.keys` names
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Sign in to servers whose users sign in, or store your key for them; for `fanlight stdio`, or
    /// a gateway without `auth`
    Login(LoginArgs),
    /// Sign out of one server, or of all
    Logout(LogoutArgs),
    /// Show where you are signed in, since when and with which scopes; for `fanlight stdio`, or a
    /// gateway without `auth`
    Connections(ConnectionsArgs),
    /// Show or remove what `stateDir` stores about users and servers
    State {
        #[command(subcommand)]
        command: StateCommand,
    },
    /// Query and verify the audit log (the gateway need not run)
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// Suggest a lean list of tools for an endpoint
    Lean {
        #[command(subcommand)]
        command: LeanCommand,
    },
    /// Approve the current definitions of tools, prompts and templates, and write them to the file
    /// of `pins`
    Pin(PinArgs),
    /// Show, explain and test the policies that decide what clients may do
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// List calls of a running gateway that wait for approval, and approve or refuse one
    Approvals(ApprovalsArgs),
    /// Show the state of a running gateway and its servers; exit status 1 if it is not ready
    Status(StatusArgs),
    /// List the latest traces of a running gateway, or show one as a waterfall
    Traces(TracesArgs),
    /// Show what the servers of a running gateway wrote to their standard error
    Logs(LogsArgs),
    /// Record the messages on both sides of a running gateway in a file, until Ctrl-C
    Record(RecordArgs),
    /// Make a running gateway reload its configuration; exit status 1 if it has errors
    Reload(StatusArgs),
    /// Switch a server of a running gateway on, until the gateway restarts
    Enable(ServerArgs),
    /// Switch a server of a running gateway off, until the gateway restarts
    Disable(ServerArgs),
    /// Restart a server of a running gateway
    Restart(ServerArgs),
    /// End a client's session at a running gateway
    EndSession(SessionArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print shell completions, for use as in `source <(fanlight completions bash)`
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write a page for each command into a folder
    Man {
        /// The folder, created if it does not exist
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Run one of the two servers of the demo
    #[command(hide = true)]
    DemoServer { era: Era },
    /// Run a server behind a gateway that `witness` judges
    #[command(hide = true)]
    WitnessServer {
        era: Era,
        #[arg(long)]
        second: bool,
    },
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A configuration file, as for --config; or the URL of one server to check without a
    /// configuration. For a command, write it after `--`
    #[arg(value_name = "FILE|URL")]
    pub url: Option<String>,
    /// A header to send to that URL, such as 'Authorization: Bearer …'
    #[arg(long, value_name = "HEADER", requires = "url")]
    pub header: Vec<String>,
    /// Open no browser for the sign-in; print the URL to open on this machine
    #[arg(long, requires = "url")]
    pub no_browser: bool,
    /// Write the report about this server as an HTML page to share
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The command that starts the server to check without a configuration, such as `-- node
    /// server.js`
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "url")]
    pub command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum LeanCommand {
    /// Suggest the tools to list always: those that clients have called, by the audit log
    Suggest(LeanSuggestArgs),
}

#[derive(Debug, Args)]
pub struct LeanSuggestArgs {
    /// Path of the endpoint
    #[arg(long, value_name = "PATH", default_value = "/mcp")]
    pub endpoint: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub admin: AdminArgs,
}

#[derive(Debug, Args)]
pub struct MockArgs {
    /// The recording
    pub file: PathBuf,
    /// Answer as this recorded server did [default: as the gateway did]
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Serve one client over standard input and output (the default)
    #[arg(long, conflicts_with = "listen")]
    pub stdio: bool,
    /// Serve over HTTP at this address of this machine, such as 8090 or unix:PATH
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<ListenAddress>,
    /// The era of clients to serve. Clients of another era than the recorded one get what the
    /// gateway makes of the recording
    #[arg(long, value_enum, default_value_t)]
    pub era: MockEra,
    /// Answer without the recorded waits
    #[arg(long)]
    pub fast: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MockEra {
    /// Both
    #[default]
    Auto,
    Legacy,
    Modern,
}

#[derive(Debug, Args)]
pub struct ValidateArgs {
    #[command(flatten)]
    pub file: FileArgs,
    /// Accept unset variables, for example in a pipeline without the secrets
    #[arg(long)]
    pub allow_missing_env: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AddArgs {
    /// The server's name
    pub name: String,
    /// The URL of the server
    #[arg(long, value_name = "URL", required_unless_present = "command")]
    pub url: Option<String>,
    /// A header to send to that URL, such as 'Authorization: Bearer ${TOKEN}'
    #[arg(long, value_name = "HEADER", requires = "url")]
    pub header: Vec<String>,
    /// An environment variable for the command
    #[arg(long, value_name = "NAME=VALUE", requires = "command")]
    pub env: Vec<String>,
    /// The command that starts the server, such as `-- npx -y PACKAGE`
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "url")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// The client, such as cursor, claude-code, vscode or codex
    pub client: Option<String>,
    /// Remove the entry; restores the file byte for byte if nothing else in it has changed
    #[arg(long, requires = "client")]
    pub undo: bool,
    /// Print the entry without changing a file
    #[arg(long, requires = "client", conflicts_with = "undo")]
    pub print: bool,
    /// Write to the project's file in this folder instead of the user's file
    #[arg(long, conflicts_with = "file")]
    pub project: bool,
    /// The client's file [default: its usual place]
    #[arg(long, value_name = "PATH", requires = "client")]
    pub file: Option<PathBuf>,
    /// The URL for the client to use [default: `publicUrl`, else the address of `listen`]
    #[arg(long, value_name = "URL", conflicts_with = "stdio")]
    pub url: Option<String>,
    /// Let the client start a gateway of its own: `fanlight stdio` with this configuration
    #[arg(long)]
    pub stdio: bool,
    /// Write the token from FANLIGHT_TOKEN into the file instead of a reference to that variable
    #[arg(long)]
    pub write_token: bool,
    /// The name of the entry
    #[arg(long, value_name = "NAME", default_value = NAME)]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A file or client to import servers from; can be repeated. The file can be a client's or a
    /// server.json of the MCP registry [default: all clients on this machine and in this project]
    #[arg(long, value_name = "FILE|CLIENT")]
    pub from: Vec<String>,
    /// The file to write, or - for standard output
    #[arg(long, short, value_name = "PATH", default_value = "fanlight.yaml")]
    pub output: PathBuf,
    /// Show what would be imported, without writing it
    #[arg(long)]
    pub dry_run: bool,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
    /// How to treat secrets written out in the files [default: env-file]
    #[arg(long, value_enum)]
    pub secrets: Option<Secrets>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Secrets {
    /// Move them to a file of variables beside the configuration, such as fanlight.env, readable
    /// only by its owner
    EnvFile,
    /// Leave them out: the configuration names variables that you set
    Variables,
    /// Copy them into the configuration as they are
    Keep,
}

#[derive(Debug, Args)]
pub struct LoginArgs {
    /// A server of the configuration, or the URL of any other [default: all servers you are not
    /// signed in to]
    #[arg(value_name = "SERVER|URL")]
    pub server: Option<String>,
    /// Open no browser; print the URL to open on this machine
    #[arg(long)]
    pub no_browser: bool,
}

#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// A server of the configuration, or the URL of any other [default: all]
    #[arg(value_name = "SERVER|URL")]
    pub server: Option<String>,
}

#[derive(Debug, Args)]
pub struct ConnectionsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Print stored data about users as JSON, without tokens and keys, and name the servers whose
    /// lists are stored
    Export,
    /// Remove all stored data about users and the stored lists of servers; all users have to sign
    /// in again
    Purge {
        /// Remove only what users have granted for this server or authorization server (its URL), and
        /// the clients registered there
        server: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create a key, print it once on standard output, and add its digest to the file; a running
    /// gateway accepts it at once
    New(NewKeyArgs),
    /// List the keys in the file
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: KeyFileArgs,
    },
    /// Revoke the keys with this name; a running gateway ends their clients' streams and calls
    Revoke {
        /// The name of the keys
        name: String,
        /// Only keys whose digest begins with these digits, for example after replacing a key
        #[arg(long, value_name = "DIGITS")]
        sha256: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: KeyFileArgs,
    },
}

#[derive(Debug, Args)]
pub struct NewKeyArgs {
    /// The name of the key's clients; several keys can share a name
    pub name: String,
    /// The clients' groups
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',')]
    pub groups: Vec<String>,
    /// The clients' scopes [default: all]
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',')]
    pub scopes: Vec<String>,
    /// When the key expires: after a time such as 90d or 12h, on a day in UTC such as 2027-01-31,
    /// or never
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// Paths of the endpoints that the key is good for, such as /mcp/readers [default: all]
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    pub endpoints: Vec<String>,
    /// Print the entry on standard error without changing a file
    #[arg(long, conflicts_with = "file")]
    pub print: bool,
    /// Print the key and its entry as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub file: KeyFileArgs,
}

/// The option that names the file with keys.
#[derive(Debug, Args)]
pub struct KeyFileArgs {
    /// The file with keys [default: `auth.keys.file` of the configuration]
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
}

/// A configuration file named without `--config`.
#[derive(Clone, Debug, Default, Args)]
pub struct FileArgs {
    /// A configuration file, as for --config
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RunCommand {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Address to listen on: 0.0.0.0:8080 for all interfaces; 8080, :8080 or localhost:8080 for
    /// this machine only; or unix:PATH [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<ListenAddress>,
    /// Address for operators (/ui, /api, /metrics, /healthz, /readyz), in the forms of --listen, or
    /// `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Admin>,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub reload: ReloadArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub struct StdioArgs {
    #[command(flatten)]
    pub file: FileArgs,
    /// Path of the endpoint that the client uses [default: the default endpoint]
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// Address for operators (/ui, /api, /metrics, /healthz, /readyz), or `off`. Port 0 takes a
    /// free port and logs it [default: `admin.listen` of the configuration, else off]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Admin>,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub reload: ReloadArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub struct ReloadArgs {
    /// Do not watch the configuration files; SIGHUP and `fanlight reload` still reload them
    #[arg(long)]
    pub no_watch: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct TraceArgs {
    /// Print each finished trace to standard error
    #[arg(long)]
    pub trace_console: bool,
    /// Append traces to this file as lines of OTLP-JSON
    #[arg(long, value_name = "PATH")]
    pub trace_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CommonArgs {
    /// The configuration: fanlight.yaml, or a desktop client's mcp.json. Can be repeated: options
    /// come from the first file, servers from all
    #[arg(long, short, value_name = "FILE", global = true)]
    pub config: Vec<PathBuf>,
    /// Use the demo instead of a configuration
    #[arg(long, global = true)]
    pub demo: bool,
    /// Start servers from a configuration found in this folder without asking
    #[arg(long, global = true)]
    pub yes: bool,
    /// Log filter, as in RUST_LOG: `info`, `fanlight_backend=debug`, …
    #[arg(long, value_name = "FILTER", global = true)]
    pub log: Option<String>,
    /// Log format
    #[arg(long, value_enum, default_value_t, global = true)]
    pub log_format: LogFormat,
}

impl CommonArgs {
    /// Whether the user allowed starting the configured servers, with `--config` or `--yes`.
    pub fn may_act(&self) -> bool {
        !self.config.is_empty() || self.yes
    }
}

#[derive(Debug, Args)]
pub struct CallCommand {
    #[command(flatten)]
    pub call: CallArgs,
    /// The endpoint of a gateway, called as a client does, with the key or access token in
    /// FANLIGHT_TOKEN; without one, you sign in if the gateway asks for it
    #[arg(long, value_name = "URL", conflicts_with_all = ["admin", "endpoint"])]
    pub url: Option<String>,
    /// Open no browser for the sign-in; print the URL to open on this machine
    #[arg(long, requires = "url")]
    pub no_browser: bool,
    #[command(flatten)]
    pub admin: AdminArgs,
}

#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool, by the name that clients see
    pub tool: String,
    /// The tool's arguments: `key=value` pairs, with values of the types that the tool declares, or
    /// a JSON object
    #[arg(value_name = "KEY=VALUE|JSON")]
    pub arguments: Vec<String>,
    /// Print JSON, also on a terminal
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub endpoint: EndpointArgs,
}

/// The endpoint whose catalogue and policies a command uses.
#[derive(Clone, Debug, Default, Args)]
pub struct EndpointArgs {
    /// Path of an endpoint of the configuration, such as /mcp/readers [default: every server]
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
}

impl EndpointArgs {
    /// The path, if the user gave one.
    pub fn path(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }
}

#[derive(Debug, Args)]
pub struct FindArgs {
    /// The task of the tool, in a few words
    #[arg(required_unless_present = "expect")]
    pub query: Option<String>,
    /// JSON lines such as {"query": "send a mail", "expect": ["mail__send"], "within": 5}; exit
    /// status 1 if a tool is missing
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    pub expect: Option<PathBuf>,
    /// The number of tools to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    #[command(flatten)]
    pub endpoint: EndpointArgs,
}

#[derive(Debug, Default, Args)]
pub struct AdminArgs {
    /// The running gateway's admin listener: a URL, an address or port such as 8081, or unix:PATH.
    /// The token comes from FANLIGHT_ADMIN_TOKEN, else from the configuration [default:
    /// `admin.listen` of the configuration]
    #[arg(long, value_name = "URL")]
    pub admin: Option<String>,
    /// PEM file with the client certificate for an admin listener with `clientAuth`
    #[arg(long, value_name = "PATH", requires = "admin_key")]
    pub admin_cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate, not encrypted
    #[arg(long, value_name = "PATH", requires = "admin_cert")]
    pub admin_key: Option<PathBuf>,
    /// PEM file with certificate authorities to trust for the admin listener, besides the system's
    #[arg(long, value_name = "PATH")]
    pub admin_ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The server, by its name in the configuration
    pub server: String,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The digest of the session's id, as shown by `/api/sessions` and the page
    pub digest: String,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print the API's JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PinArgs {
    #[command(subcommand)]
    pub command: Option<PinCommand>,
    /// Only these servers [default: all]
    #[arg(long, value_name = "NAME")]
    pub server: Vec<String>,
    /// Write nothing; exit status 1 if a definition differs from the approved one
    #[arg(long)]
    pub check: bool,
    /// Print JSON
    #[arg(long, requires = "check")]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum PinCommand {
    /// Approve the current state of some definitions, and print what changed; a running gateway
    /// takes it over at once
    Approve {
        /// The definitions, as server/name, with the name that the server uses
        #[arg(required = true, value_name = "SERVER/NAME")]
        items: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// Let the call run once, with the arguments shown
    Approve(AnswerArgs),
    /// Refuse the call
    Refuse(AnswerArgs),
}

#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The approval's id, as shown by `fanlight approvals` and the page
    pub id: String,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print the API's JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print the API's JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The server, by its name in the configuration [default: all]
    pub server: Option<String>,
    /// Keep printing new lines as they come
    #[arg(long, short)]
    pub follow: bool,
    /// How many of the latest lines to print first
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100)]
    pub lines: usize,
    /// Print the API's JSON, one object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub admin: AdminArgs,
}

#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The file to write, readable only by you
    pub file: PathBuf,
    /// Record only this server, and all messages of clients; can be repeated
    #[arg(long, value_name = "NAME")]
    pub server: Vec<String>,
    /// Record only the clients of this endpoint, and the messages of servers that they cause
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// How long to record, such as 10m [default: until Ctrl-C, at most a day]
    #[arg(long, value_name = "DURATION")]
    pub r#for: Option<String>,
    /// The largest size of the file, at most 1GiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub max_bytes: usize,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub admin: AdminArgs,
}

fn parse_size(text: &str) -> Result<usize, &'static str> {
    fanlight_config::parse_size(text).ok_or("write it as 64MiB, 500KB or a number of bytes")
}

#[derive(Debug, Args)]
pub struct TracesArgs {
    /// The trace to show: its id, the beginning of its id, or a `traceparent`
    pub trace_id: Option<String>,
    #[command(flatten)]
    pub admin: AdminArgs,
    #[command(flatten)]
    pub filters: TraceFilters,
    /// How many traces to list at most
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub limit: u16,
    /// Print a line for each call that ends, until Ctrl-C
    #[arg(long, conflicts_with_all = ["trace_id", "limit", "since", "sort"])]
    pub follow: bool,
    /// Print the API's JSON: a list, one trace as OTLP-JSON, or a line for each call
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TraceTestArgs {
    /// The tool to call, by the name that clients see [default: the first that has `readOnlyHint`
    /// and requires no arguments]
    pub tool: Option<String>,
    /// The tool's arguments, a JSON object
    #[arg(default_value = "{}")]
    arguments: String,
    /// The tool's arguments, given as an option
    #[arg(
        long = "args",
        value_name = "JSON",
        conflicts_with = "arguments",
        requires = "tool"
    )]
    named_arguments: Option<String>,
    /// The endpoint of a running gateway, with the key or access token in FANLIGHT_TOKEN; without
    /// it, the test starts a gateway
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print the trace as OTLP-JSON
    #[arg(long)]
    pub json: bool,
}

impl TraceTestArgs {
    /// The arguments, given by position or as an option.
    pub fn arguments(&self) -> &str {
        self.named_arguments.as_deref().unwrap_or(&self.arguments)
    }
}

#[derive(Clone, Debug)]
pub enum Admin {
    At(ListenAddress),
    Off,
}

impl std::str::FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            address => {
                let wrong = "write an address such as 127.0.0.1:8081, a port of this machine such as 8081, a Unix socket such as \
                             unix:/run/admin.sock, or `off`";
                address.parse().map(Self::At).map_err(|_| wrong.into())
            }
        }
    }
}

/// A kind of thing to list, or a configuration file.
#[derive(Clone, Debug)]
pub enum ListTarget {
    Kind(Listed),
    File(PathBuf),
}

impl std::str::FromStr for ListTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Listed::from_str(text, false) {
            Ok(kind) => Ok(Self::Kind(kind)),
            Err(_) if is_file_name(text) => Ok(Self::File(text.into())),
            Err(_) => {
                Err("write tools, resources or prompts, or a file such as mcp.json".to_owned())
            }
        }
    }
}

impl Cli {
    /// Reads the command line; ends the process if it is wrong or asks for help.
    pub fn read() -> Self {
        let matches = command().get_matches();
        <Self as clap::FromArgMatches>::from_arg_matches(&matches)
            .unwrap_or_else(|error| error.exit())
    }

    /// Moves a configuration file that was named without `--config` to the front of `--config`'s
    /// list.
    pub fn take_file(&mut self) {
        let file = match &mut self.command {
            Some(Command::Run(args)) => args.file.file.take(),
            Some(Command::Stdio(args)) => args.file.file.take(),
            Some(Command::Validate(args)) => args.file.file.take(),
            Some(Command::Check(args)) => args
                .url
                .take_if(|text| is_file_name(text))
                .map(PathBuf::from),
            Some(Command::List { what, .. }) => what.iter().find_map(|target| match target {
                ListTarget::File(path) => Some(path.clone()),
                ListTarget::Kind(_) => None,
            }),
            _ => None,
        };
        if let Some(file) = file {
            self.common.config.insert(0, file);
        }
    }
}

/// Whether the text names a configuration file, existing or not.
fn is_file_name(text: &str) -> bool {
    let is_of_configuration = |end: &str| ["json", "jsonc", "yaml", "yml", "toml"].contains(&end);
    let path = std::path::Path::new(text);
    !text.contains("://")
        && (path.is_file()
            || path
                .extension()
                .and_then(|end| end.to_str())
                .is_some_and(is_of_configuration))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    Tools,
    Resources,
    Prompts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise
    #[default]
    Auto,
    Text,
    Json,
}

#[derive(Debug, Args)]
pub struct WitnessArgs {
    /// The URL of a running gateway, which gets the key or access token in FANLIGHT_TOKEN
    #[arg(long, value_name = "URL", requires = "upstream")]
    pub url: Option<String>,
    /// The port of this machine at which that gateway expects its server, at the path /mcp
    #[arg(long, value_name = "PORT", requires = "url")]
    pub upstream: Option<u16>,
    /// The time to wait until a gateway is ready
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = trace_filters::duration)]
    pub ready: Duration,
    /// Write a badge with the result, as SVG, to this file
    #[arg(long, value_name = "FILE")]
    pub badge: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The command that starts the gateway. {url}, {url2}, {command} and {command2} stand for the
    /// servers behind it, {config} for an mcp.json with them, {port} for the port to listen on.
    /// Without {port}, the gateway speaks over its standard input and output
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "url",
        conflicts_with = "url"
    )]
    pub command: Vec<String>,
}

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

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Show who called what, newest first
    Query(AuditQueryArgs),
    /// Show how often each client used each tool, by day, principal and the name that the client
    /// declares
    Usage(AuditFilterArgs),
    /// Verify that the audit log is unchanged; otherwise exit status 1 and the first changed line
    Verify {
        /// Checkpoints stored elsewhere, in addition to those beside the audit log
        #[arg(long, value_name = "FILE")]
        checkpoint: Vec<PathBuf>,
        /// The public key of the checkpoints, as `fanlight audit key` printed it [default: the key
        /// beside the audit log]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the public key of the checkpoints; store it elsewhere
    Key,
}

#[derive(Debug, Args)]
pub struct AuditFilterArgs {
    /// Part of the client's principal or name
    #[arg(long)]
    pub principal: Option<String>,
    /// The tool, prompt or resource, as server/name or just the server's own name for it; * matches
    /// any characters
    #[arg(long, value_name = "PATTERN")]
    pub tool: Option<String>,
    /// The server
    #[arg(long)]
    pub server: Option<String>,
    /// Start: a time ago such as 24h or 7d, or a UTC day or time such as 2027-01-31 or
    /// 2027-01-31T08:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// End, in the same forms
    #[arg(long, value_name = "WHEN")]
    pub until: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditQueryArgs {
    #[command(flatten)]
    pub filter: AuditFilterArgs,
    /// The method, such as tools/call; or an event of users' grants: signIn, keyDeposit, signOut,
    /// grantEnd
    #[arg(long, value_name = "METHOD")]
    pub action: Option<String>,
    /// The outcome: ok, tool_error, error, refused, cancelled, not_run, decided; for approvals
    /// asked, approved, refused
    #[arg(long)]
    pub outcome: Option<String>,
    /// A task's id: the call that started the task, and later requests about it
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// How many lines to print at most
    #[arg(long, default_value_t = 50)]
    pub limit: u16,
}
