//! The command line of `fanlight audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Show who called what, newest first
    Query(AuditQueryArgs),
    /// Show how often each client used each tool, by day, principal and the name that the client
    /// declares
    Usage(AuditUsageArgs),
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

#[derive(Debug, Args)]
pub struct AuditUsageArgs {
    #[command(flatten)]
    pub filter: AuditFilterArgs,
}
