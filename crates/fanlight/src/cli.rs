//! The command line.

mod audit;
mod policy;
mod trace_filters;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fanlight_config::ListenAddress;

pub(crate) use audit::{AuditCommand, AuditFilterArgs, AuditQueryArgs};
pub(crate) use policy::{ExplainArgs, PolicyCommand};
pub(crate) use trace_filters::TraceFilters;

use crate::failure;

/// The name of the entry for this gateway in the files of clients.
pub(crate) const NAME: &str = "fanlight";

/// A transparent, aggregating MCP proxy: one endpoint in front of several MCP servers.
///
/// Without a command it serves over HTTP. Without --config it reads fanlight.yaml, mcp.json, .mcp.json or
/// .cursor/mcp.json in this folder; if there is none of them, it runs a demo with two small servers of its own.
#[derive(Debug, Parser)]
#[command(name = "fanlight", version, after_help = failure::STATUSES, max_term_width = 100)]
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
    Run(RunCommand),
    /// Serve over standard input and output, as one server of a desktop client
    Stdio(StdioArgs),
    /// Serve the demo over HTTP, two small built-in servers, even if the folder has a configuration
    Demo(RunArgs),
    /// Check the configuration files without connecting to any server
    Validate(ValidateArgs),
    /// Check the configuration, connect to every server and report the results; or check one server without a configuration
    Check(CheckArgs),
    /// Show the merged catalogue: of the running gateway with the configuration; if there is none, the servers are started for it
    List {
        /// What to list: tools, resources or prompts; everything if left out. Also a file of the configuration, as --config
        /// names it
        #[arg(value_name = "WHAT|FILE", num_args = 0..=2)]
        what: Vec<ListTarget>,
        /// Print JSON, with the entries as clients receive them
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        endpoint: EndpointArgs,
        /// The endpoint of a gateway, which is asked as its clients are, with the key or access token in FANLIGHT_TOKEN; without
        /// one, you sign in to it if it asks for that
        #[arg(long, value_name = "URL", conflicts_with_all = ["admin", "endpoint"])]
        url: Option<String>,
        /// Open no browser for signing in: print the address that has to be opened in one on this machine
        #[arg(long, requires = "url")]
        no_browser: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Call one tool and print its result; exit status 1 if it is an error. The running gateway with the configuration makes the
    /// call; if there is none, the servers are started for it
    Call(CallCommand),
    /// Make the same call directly and through the gateway, and compare the results byte by byte
    Diff(CallArgs),
    /// Make a call with a known `traceparent` and show, hop by hop, whether it arrived
    TraceTest(TraceTestArgs),
    /// Write the entry for this gateway into the file of a client, such as cursor or claude-code; without a client, show those
    /// of this machine
    Connect(ConnectArgs),
    /// Import the servers of the clients on this machine into a configuration of Fanlight
    Import(ImportArgs),
    /// Make, list and revoke keys of clients, in the file that `auth.keys` names
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Sign in to servers that each user signs in to, or deposit a key for those that want one: as the only user of `fanlight
    /// stdio`, or of a gateway that does not ask its clients who they are
    Login(LoginArgs),
    /// Sign out of a server, or of all of them
    Logout(LogoutArgs),
    /// Show where the only user is signed in, since when, and with which scopes
    Connections(ConnectionsArgs),
    /// Show or remove what is kept in `stateDir` of all users, and of servers
    State {
        #[command(subcommand)]
        command: StateCommand,
    },
    /// Who called what, how much, and whether the record is as it was written; whether or not the gateway runs
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// Approve what servers say of their tools, prompts and templates as it is now: writes the file of `pins`
    Pin(PinArgs),
    /// What clients may do: the schema of policies, the policies in force, why something is decided so, and cases for CI
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Show the calls of a running gateway that wait for approval, and approve or refuse one
    Approvals(ApprovalsArgs),
    /// Show the state of a running gateway and its backends; exit status 1 if it is not ready
    Status(StatusArgs),
    /// Show the last traces of a running gateway, or one of them as a waterfall
    Traces(TracesArgs),
    /// Show what the servers of a running gateway write to their standard error
    Logs(LogsArgs),
    /// Make a running gateway reload its configuration; exit status 1 if it has errors
    Reload(ReloadRequestArgs),
    /// Switch a server of a running gateway on, until the gateway restarts
    Enable(ServerArgs),
    /// Switch a server of a running gateway off, until the gateway restarts
    Disable(ServerArgs),
    /// Restart a server of a running gateway
    Restart(ServerArgs),
    /// End the session of a client of a running gateway
    EndSession(SessionArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print the completions of a shell, such as `source <(fanlight completions bash)`
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write the pages of all commands into a folder
    Man {
        /// The folder; created if it does not exist
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Run one of the two servers of the demo
    #[command(hide = true)]
    DemoServer { era: DemoEra },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A file of the configuration, as --config names it; or the URL of one server to check without a configuration. Write a
    /// command after `--` instead
    #[arg(value_name = "FILE|URL")]
    pub(crate) url: Option<String>,
    /// A header for the server at that URL, such as 'Authorization: Bearer …'
    #[arg(long, value_name = "HEADER", requires = "url")]
    pub(crate) header: Vec<String>,
    /// Open no browser for signing in: print the address that has to be opened in one on this machine
    #[arg(long, requires = "url")]
    pub(crate) no_browser: bool,
    /// Write the report about this one server as an HTML page that can be shared
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The command of one server to check without a configuration, such as `-- node server.js`
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "url")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Accept variables that are not set, for example in a pipeline without the secrets
    #[arg(long)]
    pub(crate) allow_missing_env: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The client, such as cursor, claude-code, vscode or codex
    pub(crate) client: Option<String>,
    /// Remove the entry again; the file gets its previous bytes if nothing else in it was changed
    #[arg(long, requires = "client")]
    pub(crate) undo: bool,
    /// Print the entry and change no file
    #[arg(long, requires = "client", conflicts_with = "undo")]
    pub(crate) print: bool,
    /// Write into the file of the project in this folder instead of that of the user
    #[arg(long, conflicts_with = "file")]
    pub(crate) project: bool,
    /// The client's file [default: the client's usual file]
    #[arg(long, value_name = "PATH", requires = "client")]
    pub(crate) file: Option<PathBuf>,
    /// The URL that the client uses [default: `publicUrl`, else the address of `listen`]
    #[arg(long, value_name = "URL", conflicts_with = "stdio")]
    pub(crate) url: Option<String>,
    /// Let the client start its own gateway: `fanlight stdio` with this configuration
    #[arg(long)]
    pub(crate) stdio: bool,
    /// Write the token in FANLIGHT_TOKEN into the file, instead of a reference to that variable
    #[arg(long)]
    pub(crate) write_token: bool,
    /// The name of the entry
    #[arg(long, value_name = "NAME", default_value = NAME)]
    pub(crate) name: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// A file or client to import servers from; can be repeated. A file may be that of a client, a server.json of the MCP
    /// registry, or an .mcpb bundle [default: all clients on this machine, and of the project in this folder]
    #[arg(long, value_name = "FILE|CLIENT")]
    pub(crate) from: Vec<String>,
    /// The file to write, or - for standard output
    #[arg(long, short, value_name = "PATH", default_value = "fanlight.yaml")]
    pub(crate) output: PathBuf,
    /// Show what would be imported and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,
    /// What to do with secrets that are written out in the files [default: env-file]
    #[arg(long, value_enum)]
    pub(crate) secrets: Option<Secrets>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Secrets {
    /// They are moved into a file of variables beside the configuration, such as fanlight.env, which only its owner can read
    EnvFile,
    /// They are left out: the configuration names variables, which you set
    Variables,
    /// They stay as they are, in the configuration
    Keep,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The name of the server, or the URL of one that is in no configuration [default: all of the configuration where the user
    /// is not signed in]
    #[arg(value_name = "SERVER|URL")]
    pub(crate) server: Option<String>,
    /// Open no browser: print the address that has to be opened in one on this machine
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The name of the server, or the URL of one that is in no configuration [default: all of them]
    #[arg(value_name = "SERVER|URL")]
    pub(crate) server: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectionsArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Print what is kept of users as JSON, without tokens and keys, and of which servers lists are kept
    Export,
    /// Remove everything that is kept of users and the lists of servers; all users have to sign in again
    Purge,
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
    /// Remove the keys of a name; a running gateway ends their clients' streams and calls
    Revoke {
        /// The name of the keys
        name: String,
        /// Only keys whose digest begins with these digits, for example after a renewal
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
    /// Paths of the endpoints that it is limited to, such as /mcp/readers [default: all]
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    pub(crate) endpoints: Vec<String>,
    /// Print the entry on standard error and change no file
    #[arg(long, conflicts_with = "file")]
    pub(crate) print: bool,
    /// Print the key and its entry as JSON
    #[arg(long)]
    pub(crate) json: bool,
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

/// A file of the configuration that is named without `--config`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FileArgs {
    /// The configuration, as --config names it
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Address to listen on, such as 0.0.0.0:8080 for all addresses, a port of this machine alone, such as 8080, :8080 or
    /// localhost:8080, or unix:PATH [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<ListenAddress>,
    /// Address for operators (/ui, /api, /metrics, /healthz, /readyz), as for --listen, or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<Admin>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) reload: ReloadArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StdioArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
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
    /// The configuration: fanlight.yaml, or an mcp.json of a desktop client. Can be repeated: the first file has the
    /// options, all of them have servers
    #[arg(long, short, value_name = "FILE", global = true)]
    pub(crate) config: Vec<PathBuf>,
    /// Use the demo instead of a configuration
    #[arg(long, global = true)]
    pub(crate) demo: bool,
    /// Start what a configuration names that was found in this folder, without asking
    #[arg(long, global = true)]
    pub(crate) yes: bool,
    /// Filter of the log on standard error, as in RUST_LOG: `info`, `fanlight_backend=debug`, …
    #[arg(long, value_name = "FILTER", global = true)]
    pub(crate) log: Option<String>,
    /// Format of the log
    #[arg(long, value_enum, default_value_t, global = true)]
    pub(crate) log_format: LogFormat,
}

impl CommonArgs {
    /// Whether the user has said that what the configuration names may be started: by naming it, or in so many words.
    pub(crate) fn may_act(&self) -> bool {
        !self.config.is_empty() || self.yes
    }
}

#[derive(Debug, Args)]
pub(crate) struct CallCommand {
    #[command(flatten)]
    pub(crate) call: CallArgs,
    /// The endpoint of a gateway, which is called as its clients do, with the key or access token in FANLIGHT_TOKEN; without
    /// one, you sign in to it if it asks for that
    #[arg(long, value_name = "URL", conflicts_with_all = ["admin", "endpoint"])]
    pub(crate) url: Option<String>,
    /// Open no browser for signing in: print the address that has to be opened in one on this machine
    #[arg(long, requires = "url")]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The tool, by the name that clients see
    pub(crate) tool: String,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
    /// Print JSON, also on a terminal
    #[arg(long)]
    pub(crate) json: bool,
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
}

#[derive(Debug, Default, Args)]
pub(crate) struct AdminArgs {
    /// The admin listener of the running gateway: a URL, an address or port such as 8081, or unix:PATH. Its token comes from
    /// FANLIGHT_ADMIN_TOKEN, else from the configuration [default: `admin.listen` of the configuration]
    #[arg(long, value_name = "URL")]
    pub(crate) admin: Option<String>,
    /// The file with the certificate to show to it, in PEM form, where it asks for one (`clientAuth`)
    #[arg(long, value_name = "PATH", requires = "admin_key")]
    pub(crate) admin_cert: Option<PathBuf>,
    /// The file with the private key of that certificate, in PEM form, not encrypted
    #[arg(long, value_name = "PATH", requires = "admin_cert")]
    pub(crate) admin_key: Option<PathBuf>,
    /// The file with the authorities, in PEM form, that its own certificate may come from, besides those of this machine
    #[arg(long, value_name = "PATH")]
    pub(crate) admin_ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReloadRequestArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the API's JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server, by its name in the configuration
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The digest of the session's id, as `/api/sessions` and the page show it
    pub(crate) digest: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ApprovalsCommand>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the API's JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PinArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PinCommand>,
    /// Only these servers [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Vec<String>,
    /// Write nothing; exit status 1 if anything is not as approved
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON
    #[arg(long, requires = "check")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PinCommand {
    /// Approve some definitions as they are now, and say what has changed in them; a running gateway takes the file at once
    Approve {
        /// The definitions, as server/name with the server's own name
        #[arg(required = true, value_name = "SERVER/NAME")]
        items: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Let a call run, once and with the arguments that are shown
    Approve(AnswerArgs),
    /// Do not let a call run
    Refuse(AnswerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The id, as `fanlight approvals` and the page show it
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the API's JSON
    #[arg(long)]
    pub(crate) json: bool,
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
pub(crate) struct LogsArgs {
    /// The server, by its name in the configuration [default: all]
    pub(crate) server: Option<String>,
    /// Keep printing new lines
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// How many of the last lines to print first
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100)]
    pub(crate) lines: usize,
    /// Print the API's JSON, one line each
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TracesArgs {
    /// The trace to show: its id, the beginning of its id, or a `traceparent`
    pub(crate) trace_id: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    #[command(flatten)]
    pub(crate) filters: TraceFilters,
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
    #[arg(
        long = "args",
        value_name = "JSON",
        conflicts_with = "arguments",
        requires = "tool"
    )]
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
                let wrong = "write an address such as 127.0.0.1:8081, a port of this machine such as 8081, a Unix socket such as \
                             unix:/run/admin.sock, or `off`";
                address.parse().map(Self::At).map_err(|_| wrong.into())
            }
        }
    }
}

/// What is to be listed, or a file of the configuration.
#[derive(Clone, Debug)]
pub(crate) enum ListTarget {
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
    /// Has a file that is named without `--config` be the first of the configuration.
    pub(crate) fn take_file(&mut self) {
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

/// Whether this names a file of a configuration, be it there or not.
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
