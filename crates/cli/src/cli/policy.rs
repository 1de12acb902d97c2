//! The command line of `fanlight policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fanlight_canonical::PolicyKind;

use super::AdminArgs;

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the Cedar schema of the policies, with the items that a running gateway lists
    Schema {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Print all rules about rights, each with its file and line: policies, those made from `allow`, filters,
    /// scopes, approvals and roles
    Show,
    /// Decide whether a client may do something, and name the deciding policies
    Explain(Box<ExplainArgs>),
    /// Run test cases from a file; exit status 1 if a decision differs from the expected one
    Test {
        /// The file: a list of cases in YAML or JSON (docs/policy.md)
        cases: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The client, as issuer#subject, such as key#ci; an issuer can be an https URL [default: a
    /// client without authentication]
    #[arg(
        long,
        value_name = "ISSUER#SUBJECT",
        default_value = "",
        hide_default_value = true
    )]
    pub principal: String,
    /// The client's groups [default: the groups of its key]
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',')]
    pub groups: Option<Vec<String>>,
    /// The client's scopes [default: the scopes of its key, else all]
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',')]
    pub scopes: Option<Vec<String>>,
    /// A claim of the client's token
    #[arg(long = "claim", value_name = "NAME=VALUE,…")]
    pub claims: Vec<String>,
    /// Path of the endpoint that the client uses [default: the default endpoint]
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    #[command(flatten)]
    about: ExplainedItem,
    /// The arguments of the call
    #[arg(long = "args", value_name = "JSON")]
    pub arguments: Option<String>,
    /// The tool's annotations, instead of those that a running gateway lists
    #[arg(long, value_name = "JSON")]
    pub annotations: Option<String>,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ExplainedItem {
    /// A tool, with the server's own name for it
    #[arg(long, value_name = "SERVER/NAME")]
    tool: Option<String>,
    /// A prompt
    #[arg(long, value_name = "SERVER/NAME")]
    prompt: Option<String>,
    /// A resource
    #[arg(long, value_name = "SERVER/URI")]
    resource: Option<String>,
    /// A resource template
    #[arg(long, value_name = "SERVER/TEMPLATE")]
    template: Option<String>,
    /// A skill
    #[arg(long, value_name = "SERVER/URI")]
    skill: Option<String>,
    /// Signing in to a server
    #[arg(long, value_name = "SERVER")]
    server: Option<String>,
}

impl ExplainArgs {
    /// The item that the question is about.
    pub fn item(&self) -> Option<(PolicyKind, String)> {
        let ExplainedItem {
            tool,
            prompt,
            resource,
            template,
            skill,
            server,
        } = &self.about;
        let all = [
            (PolicyKind::Tool, tool),
            (PolicyKind::Prompt, prompt),
            (PolicyKind::Resource, resource),
            (PolicyKind::Template, template),
            (PolicyKind::Skill, skill),
            (PolicyKind::Server, server),
        ];
        all.into_iter()
            .find_map(|(kind, name)| Some((kind, name.clone()?)))
    }
}
