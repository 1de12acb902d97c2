//! The configured changes of names and tools, filters, approvals and canaries, as settings of the
//! gateway core.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use fanlight_canonical::rights::{ItemFilter, ItemKind, NameForm, ServerNames, Servers};
use fanlight_canonical::{ApprovalRule, ApprovedBy, CanaryRule};
use fanlight_config::{
    Approval, ApproverChoice, Argument, Config, EntryFilter, Naming, NamingStyle, OtherVersion,
    Server, ToolOverride, Transport,
};
use fanlight_gateway::{
    ApprovalSettings, ArgumentRule, DefinitionMember, NamedServer, NamingPolicy, Rewriting,
};
use fanlight_protocol::{Json, MAX_NESTING};

/// The rules for making clients' names from servers' names.
pub fn naming_policy(config: &Config) -> NamingPolicy {
    let naming = &config.naming;
    NamingPolicy {
        always: naming.safe || naming.style == NamingStyle::Always,
        separator: naming.separator.clone(),
        form: name_form(naming),
        servers: config.servers_of_clients().map(named_server).collect(),
    }
}

/// The servers in the form that rules about their items need, including those that are switched
/// off.
pub fn servers_of_rules(config: &Config) -> Arc<Servers> {
    let names = |server: &Server| ServerNames {
        name: server.name.clone(),
        prefix: server.prefix.clone(),
        renames: server.renames.clone(),
    };
    let all: Vec<_> = config.servers.iter().map(names).collect();
    Arc::new(Servers::new(
        &all,
        &config.naming.separator,
        name_form(&config.naming),
    ))
}

fn name_form(naming: &Naming) -> NameForm {
    match (naming.safe_length(), naming.max_length) {
        (Some(length), _) => NameForm::Safe(length),
        (None, Some(length)) => NameForm::AtMost(length),
        (None, None) => NameForm::Any,
    }
}

fn named_server(server: &Server) -> NamedServer {
    NamedServer {
        name: server.name.clone(),
        prefix: server.prefix.clone(),
    }
}

/// The overrides of a server's tools and prompts.
pub fn rewriting(server: &Server) -> Rewriting {
    let definition = |(tool, members): &(String, ToolOverride)| (tool.clone(), definition(members));
    let rule = |(name, argument): &(String, Argument)| (name.clone(), rule(argument));
    let arguments = server
        .arguments
        .iter()
        .map(|(tool, all)| (tool.clone(), all.iter().map(rule).collect()));
    Rewriting {
        renames: server.renames.clone(),
        definitions: server.overrides.iter().map(definition).collect(),
        arguments: arguments.collect(),
    }
}

/// The rule for which clients a server's canary serves.
pub fn canary_rule(server: &str, canary: &OtherVersion) -> CanaryRule {
    CanaryRule {
        server: server.into(),
        share: canary.share.as_f64(),
    }
}

/// The server's tool calls that need an approval, if any.
pub fn approval(config: &Config, server: &Server) -> Option<ApprovalSettings> {
    let Approval { tools, by } = &server.approval;
    if tools.is_empty() {
        return None;
    }
    // If a pattern can be read in two ways, both readings need approval.
    let without = ItemFilter::new(&servers_of_rules(config), ItemKind::Names, None, tools)
        .limit_to_server(&server.name);
    let rule = ApprovalRule {
        by: match by {
            ApproverChoice::Operator => ApprovedBy::Approver,
            ApproverChoice::Other => ApprovedBy::Other,
            ApproverChoice::Caller => ApprovedBy::Caller,
        },
        number: u64::from(fanlight_canonical::rights::hash(&format!(
            "{:?} {tools:?} {by:?}",
            server.name
        ))),
    };
    Some(ApprovalSettings { without, rule })
}

/// A number for the way in which a server and its canary are reached. An approval counts for one such
/// place, so that a call that was approved for one server does not run at another one of the same
/// name. A rotated secret changes nothing.
pub fn place(config: &Config, server: &Server) -> u64 {
    let mut hasher = DefaultHasher::new();
    let canary = server.canary.as_ref().and_then(|canary| {
        let mut servers = config.servers.iter();
        servers.find(|server| server.name == canary.server)
    });
    for server in std::iter::once(server).chain(canary) {
        let pairs = match &server.transport {
            Transport::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                (command, args, cwd).hash(&mut hasher);
                env.as_slice()
            }
            Transport::Http { headers, .. } | Transport::Sse { headers, .. } => {
                server.urls().for_each(|url| url.hash(&mut hasher));
                headers.as_slice()
            }
            Transport::Incomplete { .. } => &[],
        };
        for (name, value) in pairs {
            (name, value.as_written()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The filter on a server's tools, if any.
pub fn filter(config: &Config, server: &Server) -> Option<ItemFilter> {
    let EntryFilter { allow, deny } = &server.tools;
    let is_any = allow.is_some() || !deny.is_empty();
    let all = || {
        ItemFilter::new(
            &servers_of_rules(config),
            ItemKind::Names,
            allow.as_deref(),
            deny,
        )
    };
    is_any.then(|| all().limit_to_server(&server.name))
}

fn definition(members: &ToolOverride) -> Vec<(DefinitionMember, Option<Json>)> {
    let ToolOverride {
        title,
        description,
        annotations,
    } = members;
    let members = [
        (DefinitionMember::Title, title),
        (DefinitionMember::Description, description),
        (DefinitionMember::Annotations, annotations),
    ];
    let given = members
        .into_iter()
        .filter_map(|(member, text)| Some((member, json(text.as_ref()?))));
    given
        .map(|(member, value)| (member, Some(value).filter(|value| !value.is_null())))
        .collect()
}

fn rule(argument: &Argument) -> ArgumentRule {
    match argument {
        Argument::Value(text) => ArgumentRule::Value(json(text.expose())),
        Argument::Default(text) => ArgumentRule::Default(json(text)),
        Argument::Hidden => ArgumentRule::Hidden,
    }
}

/// Parses JSON text that the configuration has generated.
fn json(text: &str) -> Json {
    Json::parse(text.to_owned().into(), MAX_NESTING).unwrap_or_else(|_| Json::null())
}
