//! The command line of `fanlight policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fanlight_canonical::PolicyKind;

use super::AdminArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print the Cedar schema of policies, with what a running gateway lists
    Schema {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Print all policies, with those that `allow` in the configuration means
    Show,
    /// Say whether a client may do something, and by which policies
    Explain(Box<ExplainArgs>),
    /// Ask the questions of a file, and compare the answers with those that are expected; exit status 1 if one differs
    Test {
        /// The file: a list of cases in YAML or JSON (docs/policy.md)
        cases: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The client: its issuer, `#` and its subject, such as key#ci or an https URL and a subject [default: one that is not
    /// authenticated]
    #[arg(
        long,
        value_name = "ISSUER#SUBJECT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) principal: String,
    /// Groups of the client [default: those of its key]
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',')]
    pub(crate) groups: Option<Vec<String>>,
    /// Scopes of the client [default: those of its key, else all]
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',')]
    pub(crate) scopes: Option<Vec<String>>,
    /// A claim of the client's token
    #[arg(long = "claim", value_name = "NAME=VALUE,…")]
    pub(crate) claims: Vec<String>,
    /// The path of the endpoint that it asks [default: that of the default endpoint]
    #[arg(long, value_name = "PATH")]
    pub(crate) endpoint: Option<String>,
    #[command(flatten)]
    about: ExplainedItem,
    /// The arguments of the call
    #[arg(long = "args", value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// What the tool says of itself, in place of what a running gateway lists
    #[arg(long, value_name = "JSON")]
    pub(crate) annotations: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ExplainedItem {
    /// A tool, by its server and that one's own name
    #[arg(long, value_name = "SERVER/NAME")]
    tool: Option<String>,
    /// A prompt
    #[arg(long, value_name = "SERVER/NAME")]
    prompt: Option<String>,
    /// A resource
    #[arg(long, value_name = "SERVER/URI")]
    resource: Option<String>,
    /// A template of resources
    #[arg(long, value_name = "SERVER/TEMPLATE")]
    template: Option<String>,
    /// A skill
    #[arg(long, value_name = "SERVER/URI")]
    skill: Option<String>,
    /// Signing in at a server
    #[arg(long, value_name = "SERVER")]
    server: Option<String>,
}

impl ExplainArgs {
    /// What the question is about.
    pub(crate) fn item(&self) -> Option<(PolicyKind, String)> {
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
