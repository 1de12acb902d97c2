//! `fanlight check`: checks the configuration, that every backend answers, and that clients accept the merged names.

use std::collections::BTreeSet;
use std::time::SystemTime;

use comfy_table::ColumnConstraint;
use fanlight_canonical::{BackendClient, CallContext, Caller, Endpoint, Principal, SessionKey};
use fanlight_config::{Config, Loaded};
use fanlight_gateway::BackendId;
use fanlight_gateway::catalogue::{ListKind, ListView, UnknownName};
use fanlight_protocol::result::{ResultView as _, ServerDescription};
use fanlight_protocol::{Era, Json};

use super::list::incomplete;
use super::{authentication, show, with_assembly};
use crate::failure::Failure;
use crate::out::say;
use crate::wiring::Assembly;

/// Prints the findings; fails if a backend cannot be used or its lists cannot be read.
pub(crate) async fn check(loaded: &Loaded) -> Result<(), Failure> {
    say!("{}: valid, {} servers", loaded.path.display(), loaded.config.servers.len());
    for problem in &loaded.warnings {
        say!("{}", problem.render(&loaded.path, false).trim_end_matches('\n'));
    }
    for server in loaded.config.servers.iter().filter(|server| !server.enabled) {
        say!("note: server {:?} is not enabled", server.name);
    }
    say!("{}", authentication::describe(&loaded.config).join("\n"));
    authentication::warnings(&loaded.config, SystemTime::now()).iter().for_each(|warning| say!("warning: {warning}"));
    say!("");
    let config = &loaded.config;
    let errors = with_assembly(config, async |assembly| Ok(inspect(assembly, config).await)).await?;
    match errors {
        0 => Ok(()),
        1 => Err(Failure::other("1 problem found")),
        several => Err(Failure::other(format!("{several} problems found"))),
    }
}

/// Prints the state of every backend and problems of the merged lists; returns the number of errors.
async fn inspect(assembly: &Assembly, config: &Config) -> usize {
    let mut lists = Vec::new();
    for kind in ListKind::ALL {
        lists.push(assembly.gateway.catalogue(kind, &Endpoint::Everything).await);
    }
    let mut errors: Vec<String> = Vec::new();
    let mut table = show::table(&["SERVER", "TRANSPORT", "ERA", "TOOLS", "RESOURCES", "TEMPLATES", "PROMPTS"]);
    // Only names may wrap; the other columns are unreadable in parts.
    table.column_iter_mut().skip(1).for_each(|column| {
        column.set_constraint(ColumnConstraint::ContentWidth);
    });
    let (mut described, mut shared) = (Vec::new(), Vec::new());
    for (id, backend) in assembly.servers.backends() {
        let status = backend.status();
        let mut eras = match (status.era, status.revision) {
            (Some(era), Some(revision)) => format!("{era} {revision}"),
            _ => "-".to_owned(),
        };
        if status.era == Some(Era::Modern)
            && let Some(revision) = legacy_revision(&**backend).await
        {
            eras.push_str(&format!(", {} {revision}", Era::Legacy));
        }
        if status.era == Some(Era::Modern) && status.transport == "stdio" {
            shared.extend(authentication::about_shared_process(config, backend.name()));
        }
        let mut row = vec![backend.name().to_owned(), status.transport.to_owned(), eras];
        match backend.describe().await {
            Ok(description) => {
                row.extend(lists.iter().map(|list| count(list, id).to_string()));
                described.push(format!("{} is {}", backend.name(), summary(&description)));
                if let Ok(Some(choice)) = backend.session_choice().await {
                    described.push(format!("{}: {choice}", backend.name()));
                }
            }
            Err(error) => {
                errors.push(format!("backend {:?} {error}", backend.name()));
                row.extend(lists.iter().map(|_| "-".to_owned()));
            }
        }
        table.add_row(row);
    }
    show::print(&table);
    if !described.is_empty() {
        say!("\n{}", described.join("\n"));
    }
    for list in &lists {
        errors.extend(incomplete(list).filter(|problem| !errors.contains(problem)).collect::<Vec<_>>());
    }
    say!("");
    errors.iter().for_each(|error| say!("error: {error}"));
    for list in &lists {
        warnings(list).for_each(|warning| say!("warning: {warning}"));
    }
    shared.iter().for_each(|warning| say!("warning: {warning}"));
    unknown_names(&lists).iter().for_each(|warning| say!("warning: {warning}"));
    for list in &lists {
        rewritten(list).for_each(|line| say!("as configured: {line}"));
    }
    errors.len()
}

/// The revision in which a modern server serves legacy clients; `None` if their requests are translated.
async fn legacy_revision(backend: &dyn BackendClient) -> Option<String> {
    let session = SessionKey::fresh();
    let client = CallContext {
        caller: Caller::session_of(Principal::anonymous(), session),
        // Over stdio, clients that can be asked are served in their own era.
        capabilities: Json::literal(r#"{"roots":{}}"#),
        ..(*CallContext::internal()).clone()
    };
    let description = backend.describe_to(&client).await;
    backend.end_session(session);
    let revision = description.ok()?.json().get("protocolVersion")?;
    Some(show::plain(&revision.as_str()?, 40))
}

fn count(list: &ListView, backend: BackendId) -> usize {
    list.entries().filter(|entry| entry.backend == backend).count()
}

/// One line about a server: name, version and capabilities.
fn summary(description: &ServerDescription) -> String {
    let info = description.server_info();
    let text = |key: &str| Some(show::plain(&info.as_ref()?.get(key)?.as_str()?, 40));
    let mut words = text("name").unwrap_or_else(|| "a server without a name".to_owned());
    if let Some(version) = text("version") {
        words.push_str(&format!(" {version}"));
    }
    let capabilities = capabilities(description);
    if !capabilities.is_empty() {
        words.push_str(&format!(", with {capabilities}"));
    }
    words
}

fn capabilities(description: &ServerDescription) -> String {
    let Some(all) = description.capabilities() else { return String::new() };
    let names = all.members().filter_map(|member| member.name(&all));
    names.map(|name| show::plain(&name, 40)).collect::<Vec<_>>().join(", ")
}

/// The names in the configuration that no list has.
fn unknown_names(lists: &[ListView]) -> Vec<String> {
    let all = || lists.iter().flat_map(|list| list.unknown_names());
    // A name that is for tools and prompts is unknown if neither list has it.
    let is_unknown = |one: &&UnknownName| !one.may_be_prompt || all().filter(|other| other == one).count() == 2;
    all().filter(is_unknown).map(describe).collect::<BTreeSet<_>>().into_iter().collect()
}

fn describe(unknown: &UnknownName) -> String {
    let UnknownName { backend, name, tool, may_be_prompt } = unknown;
    match tool {
        Some(tool) => format!("the tool {tool:?} of {backend:?} has no argument {name:?} among its properties"),
        None if *may_be_prompt => {
            format!("{backend:?} lists no tool or prompt {name:?}, which the configuration renames")
        }
        None => format!("{backend:?} lists no tool {name:?}, which the configuration changes"),
    }
}

/// What the configuration has changed of a list, one line for each entry.
fn rewritten(list: &ListView) -> impl Iterator<Item = String> {
    let changed = list.entries().filter_map(|entry| Some((entry, entry.original.as_ref()?, entry.changes())));
    changed.filter(|(.., changes)| !changes.is_empty()).map(|(entry, original, changes)| {
        let line = format!("{original} of {:?} {}", list.backend_of(entry), changes.join(", "));
        show::plain(&line, 1000)
    })
}

fn warnings(list: &ListView) -> impl Iterator<Item = String> {
    let collisions = list.collisions().iter().map(|collision| match &collision.alias {
        Some(alias) => format!(
            "{:?} and {:?} both have {:?}; clients read the one of {:?} as {alias}",
            collision.kept, collision.other, collision.key, collision.other
        ),
        None => format!(
            "{:?} and {:?} both have {:?}; the one of {:?} cannot be called: give one of them another prefix",
            collision.kept, collision.other, collision.key, collision.other
        ),
    });
    let objections = list.name_objections().into_iter();
    collisions.chain(
        objections.map(|objection| format!("some clients will refuse tool {objection}; a shorter prefix may help")),
    )
}
