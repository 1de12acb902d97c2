//! `fanlight check`: checks the configuration, the answers of every server, and whether clients
//! accept the merged names.

pub(super) mod authentication;
mod names;
pub(super) mod sign_in;

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::{
    BackendClient, CallContext, Caller, Endpoint, Outcome, Principal, SessionKey,
};
use fanlight_config::{Config, Loaded};
use fanlight_gateway::{BackendId, Gateway, ListKind, ListView};
use fanlight_grants::oauth::Challenge;
use fanlight_protocol::visible::plain;
use fanlight_protocol::{Era, Json, ResultView as _, ServerDescription, estimated_tokens};
use http::HeaderValue;
use itertools::Itertools as _;
use serde_json::{Map, Value, json};

use self::sign_in::SignIn;
use super::failure_text;
use super::list::incomplete;
use crate::flagged::{self, Flagged, find_flagged};
use crate::known_lists::KnownLists;
use crate::list_state::ListState;
use crate::observe::columns::{self, Column};
use crate::observe::style::Style;
use crate::shown_names::{ChangedNames, NameRules};
use crate::users::Users;
use crate::{Failure, Result, counted, listeners, out, say, unmatched};

/// The least width of the column of eras: one era with its revision.
const ERA: usize = "modern 2026-07-28".len();

/// The number of the largest definitions that the report lists with their sizes.
const LARGEST: usize = 5;

/// Prints the facts that need no connection to a server.
pub fn introduce(loaded: &Loaded) {
    let config = &loaded.config;
    say!(
        "{}: valid, {}",
        loaded.path.display(),
        counted(config.servers.len(), "server")
    );
    for problem in &loaded.warnings {
        say!(
            "{}",
            problem.render(&loaded.path, false).trim_end_matches('\n')
        );
    }
    for server in config.servers.iter().filter(|server| !server.enabled) {
        say!("note: server {:?} is not enabled", server.name);
    }
    say!("{}", authentication::describe(config).join("\n"));
    authentication::warnings(config, SystemTime::now())
        .iter()
        .for_each(|warning| say!("warning: {warning}"));
    say!("");
}

/// The findings about a configuration.
#[derive(Default)]
pub struct Checked {
    servers: Vec<Server>,
    /// The counted kinds of lists.
    counted: Vec<ListKind>,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// The configured changes of entries.
    intended: Vec<String>,
    /// The names that clients saw differently until now.
    renamed: ChangedNames,
}

/// The findings about a server.
#[derive(Default)]
struct Server {
    name: String,
    transport: String,
    /// The eras that the server supports, with their revisions.
    eras: String,
    /// The server whose canary or mirror this is.
    version_of: Option<String>,
    /// The lengths of the counted lists, if clients see them; `None` if the server cannot be used.
    counts: Option<Vec<usize>>,
    /// The cost of its tools' definitions, if clients see them, and the name of each.
    tools: Vec<(usize, String)>,
    /// The bytes of all these definitions.
    tool_bytes: usize,
    /// The server's name, version and capabilities.
    summary: Option<String>,
    /// An explanation of the server's sessions.
    session: Option<String>,
    /// The server's challenge, if it has refused credentials or their absence.
    challenge: Option<Challenge>,
    /// The requirements for signing in to the server, if it has any.
    sign_in: Option<SignIn>,
    /// Whether it cannot be used before its user has signed in.
    needs_user: bool,
}

/// The names that differ from those in the gateway's last run, which stored its rules of names in
/// `stateDir`.
fn changed_names(loaded: &Loaded, known: &KnownLists) -> ChangedNames {
    let state = ListState::left_for(&loaded.config, std::slice::from_ref(&loaded.path));
    let before = state.and_then(|state| state.names::<NameRules>());
    before
        .map(|before| before.changed_by(&NameRules::from_config(&loaded.config), known))
        .unwrap_or_default()
}

impl Checked {
    /// Reads the lists of every server behind this gateway.
    pub async fn inspect(
        gateway: &Gateway,
        backends: impl Iterator<Item = (BackendId, Arc<dyn BackendClient>)>,
        users: &Users,
        loaded: &Loaded,
    ) -> Self {
        let config = &loaded.config;
        let mut lists = Vec::new();
        for kind in ListKind::ALL {
            lists.push(gateway.catalogue(kind, &Endpoint::Everything).await);
        }
        let tools = lists.first();
        // Few servers have skills.
        let is_counted =
            |(kind, list): &(ListKind, &ListView)| *kind != ListKind::Skills || !list.is_empty();
        let (kinds, counted): (Vec<_>, Vec<_>) = ListKind::ALL
            .into_iter()
            .zip(&lists)
            .filter(is_counted)
            .unzip();
        let mut checked = Self {
            counted: kinds,
            ..Self::default()
        };
        let mut down = Vec::new();
        for (id, backend) in backends {
            let status = backend.status();
            let mut eras = match (status.era, status.revision) {
                (Some(era), Some(revision)) => format!("{era} {revision}"),
                _ => "-".to_owned(),
            };
            if status.era == Some(Era::Modern)
                && let Some(revision) = legacy_revision(&*backend).await
            {
                eras.push_str(&format!(", {} {revision}", Era::Legacy));
            }
            let (name, transport) = (backend.name().to_owned(), status.transport.to_owned());
            let version_of = config
                .version_of(&name)
                .map(|(option, of)| format!("the {option} of {}", of.name));
            let mut server = Server {
                name,
                transport,
                eras,
                version_of,
                ..Server::default()
            };
            match backend.describe(&CallContext::internal()).await {
                Ok(description) => {
                    // Clients do not see the entries of a canary or mirror.
                    let is_shown = server.version_of.is_none();
                    server.counts = Some(
                        counted
                            .iter()
                            .filter(|_| is_shown)
                            .map(|list| list.entries().filter(|entry| entry.backend == id).count())
                            .collect(),
                    );
                    let tools = tools.iter().flat_map(|list| list.entries());
                    let of_server = tools.filter(|entry| entry.backend == id && is_shown);
                    let sizes = of_server
                        .filter_map(|entry| Some((entry.visible.bytes().len(), entry.name()?)));
                    server.tools = sizes.collect();
                    server.tool_bytes = server.tools.iter().map(|(bytes, _)| bytes).sum();
                    server.summary = Some(summary(&description));
                    server.session = match status.era == Some(Era::Modern) {
                        true => authentication::about_processes(config, backend.name()),
                        false => backend.session_choice().await.ok().flatten(),
                    };
                }
                Err(error) => {
                    down.push(problems_of(backend.name()));
                    server.needs_user = error.sign_in().is_some();
                    checked.errors.push(failure_text(backend.name(), &error));
                    let said = error
                        .details()
                        .and_then(|details| details.challenge.as_deref());
                    let said = said.and_then(|said| HeaderValue::from_str(said).ok());
                    server.challenge = Challenge::from_headers(&said);
                }
            }
            checked.servers.push(server);
        }
        for list in &lists {
            // The problems of a server that is down are already reported.
            let is_new = |problem: &String| {
                !checked.errors.contains(problem)
                    && !down.iter().any(|down| problem.starts_with(down))
            };
            let new = incomplete(list).filter(is_new).collect_vec();
            checked.errors.extend(new);
            for missing in list.contributions() {
                let needs_user = missing.outcome == Outcome::SignInNeeded;
                let mut servers = checked.servers.iter_mut();
                if let Some(server) = servers.find(|server| server.name == missing.backend) {
                    server.needs_user |= needs_user;
                }
            }
            checked.warnings.extend(names::warnings(list));
            checked.intended.extend(names::rewritten_entries(list));
        }
        checked.intended.extend(users.key());
        checked.warnings.extend(names::unknown_arguments(&lists));
        checked.warnings.extend(
            tools
                .iter()
                .flat_map(|list| names::refused_names(list, config)),
        );
        let known = KnownLists::from_gateway(gateway);
        checked.warnings.extend(unmatched::warnings(config, &known));
        checked.warnings.extend(
            find_flagged(&flagged::read_known(&KnownLists::for_operators(gateway)))
                .iter()
                .map(Flagged::line),
        );
        checked.renamed = changed_names(loaded, &known);
        checked
    }

    /// Prints the findings. Fails if a server cannot be used or its lists cannot be read.
    pub async fn report(mut self, loaded: &Loaded, as_json: bool) -> Result {
        let config = &loaded.config;
        self.find_sign_ins(config).await;
        let refused = listeners::refusal_reasons(config).into_iter();
        self.errors.extend(
            refused.map(|problem| format!("`fanlight run` refuses this configuration: {problem}")),
        );
        if as_json {
            let of_file = loaded
                .warnings
                .iter()
                .map(|problem| problem.message().to_owned());
            let of_authentication = authentication::warnings(config, SystemTime::now());
            self.warnings.splice(0..0, of_file.chain(of_authentication));
            out::pretty(&self.to_json(loaded));
        } else {
            self.print();
        }
        let mut others = self.errors.iter().filter(|error| {
            let users = self.servers.iter().filter(|server| server.needs_user);
            let mut prefixes = users.map(|server| problems_of(&server.name));
            !prefixes.any(|prefix| error.starts_with(&prefix))
        });
        let found = format!("{} found", counted(self.errors.len(), "problem"));
        match (self.errors.is_empty(), others.next()) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(Failure::other(found)),
            (false, None) => Err(Failure::needs_user(format!(
                "{found}: a user has to sign in"
            ))),
        }
    }

    /// Finds out the requirements for signing in.
    async fn find_sign_ins(&mut self, config: &Config) {
        let said = |name: &str| {
            self.servers
                .iter()
                .find(|server| server.name == name)?
                .challenge
                .clone()
        };
        let enabled = config.servers.iter().filter(|server| server.enabled);
        let mut found = sign_in::find_requirements(
            config,
            enabled.map(|server| (server, said(&server.name))).collect(),
        )
        .await;
        for server in &mut self.servers {
            let at = found.iter().position(|one| one.server == server.name);
            server.sign_in = at.map(|at| found.swap_remove(at));
        }
    }

    fn print(&self) {
        say!("{}", self.table(Style::for_stdout().table_width()));
        let lines = self.servers.iter().flat_map(Server::lines);
        let lines = lines.chain(self.largest_definitions()).collect_vec();
        if !lines.is_empty() {
            say!("\n{}", lines.join("\n"));
        }
        say!("");
        self.errors.iter().for_each(|error| say!("error: {error}"));
        self.warnings
            .iter()
            .for_each(|warning| say!("warning: {warning}"));
        self.intended
            .iter()
            .for_each(|line| say!("as configured: {line}"));
        self.renamed
            .lines()
            .iter()
            .for_each(|line| say!("changed since the last run: {line}"));
    }

    /// A line with the largest definitions of tools.
    fn largest_definitions(&self) -> Option<String> {
        let mut tools = self
            .servers
            .iter()
            .flat_map(|server| &server.tools)
            .collect_vec();
        tools.sort_unstable();
        let mut shown = tools.iter().rev().take(LARGEST).map(|(bytes, name)| {
            let name = plain(name, 300);
            let tokens = estimated_tokens(*bytes);
            format!("{name} ({bytes} bytes, about {tokens} tokens)")
        });
        let shown = shown.join(", ");
        (!shown.is_empty()).then(|| format!("largest definitions: {shown}"))
    }

    /// A table with a row for each server, within this many columns if possible.
    fn table(&self, width: usize) -> String {
        let servers = &self.servers;
        let mut columns = vec![
            Column::words("SERVER", servers, |server| server.name.clone()),
            Column::whole("TRANSPORT", servers, |server| server.transport.clone()),
            Column::words("ERA", servers, |server| server.eras.clone()).at_least(ERA),
        ];
        for (list, kind) in self.counted.iter().enumerate() {
            columns.push(Column::numbers(heading(*kind), servers, |server| {
                let count = server.counts.as_ref().and_then(|counts| counts.get(list));
                count.map_or_else(|| "-".to_owned(), ToString::to_string)
            }));
        }
        columns.push(Column::numbers("TOOL BYTES", servers, |server| {
            server.tool_bytes.to_string()
        }));
        columns.push(Column::numbers("~TOKENS", servers, |server| {
            estimated_tokens(server.tool_bytes).to_string()
        }));
        let dropped = ["TOOL BYTES", "TRANSPORT", "TEMPLATES", "~TOKENS"];
        columns::narrow(&mut columns, &dropped, width);
        columns::render(&columns, width)
    }

    fn to_json(&self, loaded: &Loaded) -> Value {
        let tool_json = |(bytes, name): &(usize, String)| json!({ "name": name, "bytes": bytes, "estimatedTokens": estimated_tokens(*bytes) });
        let servers = self.servers.iter().map(|server| {
            let counts = server.counts.as_ref().map(|counts| {
                let members = self.counted.iter().zip(counts);
                members
                    .map(|(kind, count)| (kind.member().to_owned(), json!(count)))
                    .collect::<Map<_, _>>()
            });
            json!({
                "name": server.name,
                "transport": server.transport,
                "eras": server.eras,
                "usable": server.counts.is_some(),
                "counts": counts,
                "toolBytes": server.tool_bytes,
                "estimatedTokens": estimated_tokens(server.tool_bytes),
                "tools": server.tools.iter().map(tool_json).collect_vec(),
                "summary": server.summary,
                "session": server.session,
                "versionOf": server.version_of,
                "signIn": server.sign_in.as_ref().map(SignIn::to_json),
            })
        });
        let problem = |severity: &'static str| move |message: &String| json!({ "severity": severity, "message": message });
        let errors = self.errors.iter().map(problem("error"));
        json!({
            "configuration": loaded.path.display().to_string(),
            "good": self.errors.is_empty(),
            "servers": servers.collect_vec(),
            "problems": errors.chain(self.warnings.iter().map(problem("warning"))).collect_vec(),
            "asConfigured": self.intended,
            "renamed": self.renamed,
            "authentication": authentication::describe(&loaded.config),
        })
    }
}

impl Server {
    fn lines(&self) -> impl Iterator<Item = String> {
        let line = |between: &str, text: &Option<String>| {
            let text = text.as_ref();
            text.map(|text| format!("{}{between}{text}", self.name))
        };
        let lines = [
            line(" is ", &self.version_of),
            line(" is ", &self.summary),
            line(": ", &self.session),
            self.sign_in.as_ref().map(SignIn::line),
        ];
        lines.into_iter().flatten()
    }
}

/// The beginning of every problem of a server.
fn problems_of(server: &str) -> String {
    format!("server {server:?} ")
}

fn heading(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "TOOLS",
        ListKind::Resources => "RESOURCES",
        ListKind::ResourceTemplates => "TEMPLATES",
        ListKind::Prompts => "PROMPTS",
        ListKind::Skills => "SKILLS",
    }
}

/// The revision in which a modern server serves legacy clients; `None` if Fanlight translates their
/// requests.
async fn legacy_revision(backend: &dyn BackendClient) -> Option<String> {
    let session = SessionKey::generate();
    let client = CallContext {
        caller: Caller::session_of(Principal::anonymous(), session),
        // Over stdio, clients that declare capabilities such as roots are served in their own era.
        capabilities: Json::literal(r#"{"roots":{}}"#),
        ..(*CallContext::internal()).clone()
    };
    let description = backend.describe(&client).await;
    backend.end_session(session);
    let revision = description.ok()?.json().get("protocolVersion")?;
    Some(plain(&revision.as_str()?, 40))
}

/// A line about a server: name, version and capabilities.
fn summary(description: &ServerDescription) -> String {
    let info = description.server_info();
    let text = |key: &str| Some(plain(&info.as_ref()?.get(key)?.as_str()?, 40));
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
    let Some(all) = description.capabilities() else {
        return String::new();
    };
    let names = all.members().filter_map(|member| member.name(&all));
    names.map(|name| plain(&name, 40)).join(", ")
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    #[test]
    fn table_fits_a_narrow_terminal_with_names_in_one_line() {
        let server = |name: &str, eras: &str| Server {
            name: name.to_owned(),
            transport: "stdio".to_owned(),
            eras: eras.to_owned(),
            version_of: None,
            counts: Some(vec![3, 1, 0, 1000]),
            ..Server::default()
        };
        let kinds = [
            ListKind::Tools,
            ListKind::Resources,
            ListKind::ResourceTemplates,
            ListKind::Prompts,
        ];
        let servers = vec![
            server("library", "modern 2026-07-28, legacy 2025-11-25"),
            server(
                "one-with-a-name-that-is-longer-than-it-has-to-be",
                "legacy 2025-11-25",
            ),
        ];
        let checked = Checked {
            servers,
            counted: kinds.to_vec(),
            ..Checked::default()
        };
        for width in [60, 72, 80, 120, 400] {
            let table = checked.table(width);
            assert!(
                table.lines().count() == 3 && table.lines().all(|line| line.width() <= width),
                "{table}"
            );
            assert!(
                table.contains("library")
                    && table.contains("modern 2026-07-2")
                    && table.contains("1000"),
                "{table}"
            );
            assert_eq!(table.contains("TRANSPORT"), width >= 120, "{table}");
        }
    }
}
