//! `fanlight replay`: sends the safe requests of a recording to a server, and compares its answers
//! and definitions with the recorded ones.

mod asking;
mod plan;
mod recorded;
mod report;
mod written;

use std::collections::BTreeMap;
use std::time::Duration;

use fanlight_canonical::comparison::{
    Difference, Severity, Tolerance, compare_answers, compare_definitions, compare_openings,
};
use fanlight_canonical::{BackendClient, CallContext};
use fanlight_config::{Config, Secret, Server, SessionPolicy, Transport};
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::{Json, Response, ResultView as _};

use super::judge_command::named_transport;
use crate::cli::ReplayArgs;
use crate::failure::{Failure, Result};
use crate::judge::Mask;
use crate::recording::Recording;
use asking::{Asker, wait_for_other_times};
use plan::{Plan, Planned, subject};
use recorded::{Definition, Recorded};
use report::{Case, Report};

/// The number of further sessions that get the requests again, which shows values that vary between processes.
const SESSIONS: usize = 3;

/// A recording to replay.
pub struct Replay<'a> {
    args: &'a ReplayArgs,
    recorded: Recorded,
    ignored: Vec<Ignored>,
}

/// A place that is not compared, of one tool or of all.
struct Ignored {
    name: Option<String>,
    pointer: String,
}

/// The definitions of the new server by list. An error is the answer to a request for the list.
type Lists = BTreeMap<&'static str, Result<Vec<(String, Json)>, String>>;

impl<'a> Replay<'a> {
    /// Reads the recording.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or the command line is wrong.
    pub fn read(args: &'a ReplayArgs) -> Result<Self> {
        let ignored = args
            .ignore
            .iter()
            .map(|text| Ignored::parse(text))
            .collect::<Result<_, _>>()?;
        let recording = Recording::read(&args.file)?;
        let recorded = Recorded::choose(&recording, args.from.as_deref(), args.server.as_deref())?;
        Ok(Self {
            args,
            recorded,
            ignored,
        })
    }

    /// The configuration of the server that the command line names; `loaded` is for `--server`.
    ///
    /// # Errors
    ///
    /// If it names no server.
    pub fn config(&self, loaded: Option<&Config>) -> Result<Config> {
        let server = find_server(self.args, loaded)?;
        let loaded = loaded.cloned().unwrap_or_default();
        let servers = vec![server];
        Ok(Config { servers, ..loaded })
    }

    /// Asks the server, compares, and prints the differences.
    ///
    /// # Errors
    ///
    /// If there are differences that matter, or nothing can be judged.
    pub async fn run(&self, server: &Server, client: &dyn BackendClient) -> Result {
        let opening = client.describe(&CallContext::internal()).await;
        let opening =
            opening.map_err(|error| usage!("nothing could be judged: the server {error}"))?;
        let recorded = &self.recorded;
        let asker = Asker::new(client, &recorded.questions, recorded.has_sessions);
        let lists = self.lists(&asker).await;
        let mut cases = self.definitions(opening.json(), &lists, &lists);
        let tools = lists.get(ListKind::Tools.member());
        let tools = tools.and_then(|tools| tools.as_deref().ok());
        let plan = match self.args.definitions {
            true => Plan::default(),
            false => Plan::new(recorded, tools.unwrap_or_default(), self.args.all),
        };
        let mut asked = Vec::new();
        for planned in &plan.planned {
            let exchange = planned.exchange;
            let answer = asker.ask(&exchange.method, &exchange.params).await;
            asked.push(self.asked(planned, answer));
        }
        let is_open = |asked: &Asked<'_>| asked.is_open(Severity::Breaking);
        if asked.iter().any(is_open) || cases.iter().any(Case::differs) {
            wait_for_other_times().await;
            let again = self.lists(&asker).await;
            cases = self.definitions(opening.json(), &lists, &again);
            ask_again(&mut asked, &asker, Severity::Breaking).await;
            for _ in 0..SESSIONS {
                let other = Asker::new(client, &recorded.questions, recorded.has_sessions);
                ask_again(&mut asked, &other, Severity::Value).await;
                other.close();
            }
        }
        cases.extend(asked.iter().map(Asked::case));
        cases.extend(plan.skipped.iter().map(Case::skipped));
        let declined = std::mem::take(&mut *asker.declined.lock());
        asker.close();
        let (args, mask, from) = (self.args, Mask::new(server), recorded.server.as_deref());
        let report = Report {
            args,
            from,
            cases,
            declined,
            mask,
        };
        written::write(&report)?;
        report.finish()
    }

    async fn lists(&self, asker: &Asker<'_>) -> Lists {
        let mut lists = Lists::new();
        for kind in ListKind::ALL {
            if self.recorded.lists.contains(&kind) {
                lists.insert(kind.member(), asker.list(kind).await);
            }
        }
        lists
    }

    /// The differences of the opening and all definitions. A difference between
    /// `now` and `again` does not count.
    fn definitions(&self, opening: &Json, now: &Lists, again: &Lists) -> Vec<Case> {
        let mut cases = Vec::new();
        if let Some((was, masked)) = &self.recorded.opening {
            let tolerance = self.tolerance("", masked);
            let found = compare_openings(was, opening, &tolerance);
            cases.push(Case::new("opening", String::new(), found));
        }
        for kind in &self.recorded.lists {
            let (Some(now), Some(again)) = (now.get(kind.member()), again.get(kind.member()))
            else {
                continue;
            };
            let is_of_kind = |one: &&Definition| one.kind == *kind;
            let before = self.recorded.definitions.iter().filter(is_of_kind);
            cases.extend(now.as_ref().err().map(|error| Case::unlisted(*kind, error)));
            let [now, again] = [now, again].map(|list| list.as_deref().unwrap_or_default());
            cases.extend(self.entries(*kind, &before.collect::<Vec<_>>(), now, again));
        }
        cases
    }

    fn entries(
        &self,
        kind: ListKind,
        before: &[&Definition],
        now: &[(String, Json)],
        again: &[(String, Json)],
    ) -> Vec<Case> {
        let noun = match kind {
            ListKind::Tools => "tool",
            ListKind::Prompts => "prompt",
            ListKind::ResourceTemplates => "template",
            ListKind::Resources | ListKind::Skills => "resource",
        };
        let find = |all: &'_ [(String, Json)], name: &str| {
            all.iter()
                .find(|(other, _)| other == name)
                .map(|(_, json)| json.clone())
        };
        let known = before.iter().map(|was| {
            let (is, other) = (find(now, &was.name), find(again, &was.name));
            let mut tolerance = self.tolerance(&was.name, &was.masked);
            if is.is_some() && other.is_some() {
                tolerance.learn(compare_definitions(is.as_ref(), other.as_ref(), &tolerance));
            }
            let found = compare_definitions(Some(&was.json), is.as_ref(), &tolerance);
            Case::new(noun, was.name.clone(), found)
        });
        let is_new = |name: &str| before.iter().all(|was| was.name != name);
        let new = now
            .iter()
            .filter(|(name, _)| is_new(name))
            .map(|(name, is)| {
                let found = compare_definitions(None, Some(is), &self.tolerance(name, &[]));
                Case::new(noun, name.clone(), found)
            });
        known.chain(new).collect()
    }

    /// The places that are not compared in an item with this name.
    fn tolerance(&self, name: &str, masked: &[String]) -> Tolerance {
        let mut tolerance = Tolerance::default();
        let is_ours = |ignored: &&Ignored| ignored.name.as_deref().is_none_or(|only| only == name);
        let ignored = self
            .ignored
            .iter()
            .filter(is_ours)
            .map(|ignored| ignored.pointer.clone());
        tolerance.exempt(masked.iter().cloned().chain(ignored));
        tolerance
    }

    fn asked<'p>(&self, planned: &'p Planned<'p>, answer: Response) -> Asked<'p> {
        let mut tolerance = self.tolerance(&subject(planned.exchange), planned.masked);
        for other in &planned.others {
            tolerance.learn(compare_answers(planned.answer, other, &tolerance));
        }
        let mut asked = Asked {
            planned,
            answer,
            tolerance,
            differences: Vec::new(),
        };
        asked.compare();
        asked
    }
}

/// Asks again where answers differ up to a severity, and learns the differences between both answers.
async fn ask_again(asked: &mut [Asked<'_>], asker: &Asker<'_>, most: Severity) {
    for asked in asked.iter_mut().filter(|asked| asked.is_open(most)) {
        let exchange = asked.planned.exchange;
        let again = asker.ask(&exchange.method, &exchange.params).await;
        let found = compare_answers(&asked.answer, &again, &asked.tolerance);
        let learnt = found
            .into_iter()
            .filter(|one| one.change.severity() <= most);
        asked.tolerance.learn(learnt);
        asked.compare();
    }
}

impl Ignored {
    fn parse(text: &str) -> Result<Self> {
        let (name, pointer) = match text.split_once(":/") {
            _ if text.starts_with('/') => (None, text.to_owned()),
            Some((name, rest)) => (Some(name.to_owned()), format!("/{rest}")),
            None => {
                return Err(usage!(
                    "--ignore {text:?} is no JSON Pointer, such as /result/structuredContent/total or TOOL:/result"
                ));
            }
        };
        Ok(Self { name, pointer })
    }
}

/// A request that was sent, and its answer.
struct Asked<'p> {
    planned: &'p Planned<'p>,
    answer: Response,
    tolerance: Tolerance,
    differences: Vec<Difference>,
}

impl Asked<'_> {
    fn compare(&mut self) {
        self.differences = compare_answers(self.planned.answer, &self.answer, &self.tolerance);
    }

    /// Whether asking again may show that a difference up to a severity means nothing.
    fn is_open(&self, most: Severity) -> bool {
        let mut differences = self.differences.iter();
        self.planned.is_safe && differences.any(|one| one.change.severity() <= most)
    }

    fn case(&self) -> Case {
        let exchange = self.planned.exchange;
        let method = exchange.method.as_str();
        Case::new(method, subject(exchange), self.differences.clone())
    }
}

/// The environment variable with the key or access token for `--url`.
const TOKEN: &str = "FANLIGHT_TOKEN";
/// The time limit for an answer of a server without a configuration.
const ANSWER: Duration = Duration::from_secs(60);

/// The server that the command line names. `loaded` is the configuration for `--server`.
fn find_server(args: &ReplayArgs, loaded: Option<&Config>) -> Result<Server> {
    let server = match loaded.zip(args.server.as_ref()) {
        Some((config, name)) => {
            let known = config.servers.iter().find(|known| known.name == *name);
            let unknown = || usage!("no server is called {name:?}");
            let known = known.ok_or_else(unknown)?.clone();
            let (canary, mirror) = (None, None);
            Server {
                enabled: true,
                canary,
                mirror,
                ..known
            }
        }
        None => server_from_args(args)?,
    };
    // Further sessions show what differs between processes.
    let session = match server.session {
        SessionPolicy::Auto => SessionPolicy::PerClient,
        other => other,
    };
    Ok(Server { session, ..server })
}

/// A server that the command line describes. A command inherits the environment.
fn server_from_args(args: &ReplayArgs) -> Result<Server> {
    let usage = "name the server to test: --server NAME, --url URL, or its command behind `--`";
    let transport = named_transport(args.url.as_ref(), &args.header, &args.command)?;
    let mut transport = transport.ok_or_else(|| Failure::usage(usage))?;
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    if let (Transport::Http { headers, .. }, Some(token)) = (&mut transport, token) {
        let shown = Secret::new(format!("Bearer {token}"));
        headers.push(("authorization".to_owned(), shown));
    }
    Ok(Server {
        timeout: ANSWER,
        inherit_env: vec!["*".to_owned()],
        ..Server::new("server", transport)
    })
}
