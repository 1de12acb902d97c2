//! The command line of `fanlight audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show who called what, the newest first
    Query(AuditQueryArgs),
    /// Show how much each client used each tool, by day
    Usage(AuditUsageArgs),
    /// Say whether the record is as it was written; exit status 1 and the first line that is not if it was changed
    Verify {
        /// Checkpoints that were kept elsewhere, in addition to those beside the record
        #[arg(long, value_name = "FILE")]
        checkpoint: Vec<PathBuf>,
        /// The key of the checkpoints, as `fanlight audit key` printed it [default: that beside the record]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the public key of the checkpoints, to be kept elsewhere
    Key,
}

#[derive(Debug, Args)]
pub(crate) struct AuditFilterArgs {
    /// A part of the client's principal or name
    #[arg(long)]
    pub(crate) principal: Option<String>,
    /// The tool, prompt or resource, as server/name or name with the server's own name; * stands for any characters
    #[arg(long, value_name = "PATTERN")]
    pub(crate) tool: Option<String>,
    /// The server
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// From when: a time ago such as 24h or 7d, or a day or time in UTC such as 2027-01-31 or 2027-01-31T08:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Until when
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditQueryArgs {
    #[command(flatten)]
    pub(crate) filter: AuditFilterArgs,
    /// The method, such as tools/call; of what users grant signIn, keyDeposit, signOut or grantEnd
    #[arg(long, value_name = "METHOD")]
    pub(crate) action: Option<String>,
    /// How it ended: ok, tool_error, error, refused, cancelled, not_run, decided; of approvals asked, approved, refused
    #[arg(long)]
    pub(crate) outcome: Option<String>,
    /// The call that began the task of this id, and what was asked about it
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// How many lines at most
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
pub(crate) struct AuditUsageArgs {
    #[command(flatten)]
    pub(crate) filter: AuditFilterArgs,
}
