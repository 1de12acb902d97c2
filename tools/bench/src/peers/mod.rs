//! `run --peers`: compares other gateways with Fanlight in front of the same servers. It measures a
//! call's cost and latency, the memory, and messages that arrive changed or incomplete. A gateway
//! that cannot be installed, started or used is noted.

mod client;
mod fidelity;
mod install;
mod launch;
mod measure;
mod page;
mod raw;
mod roster;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fidelity::{Finding, examine};
use install::{Installed, version_of};
use launch::Server;
use roster::{Link, Peer, Source};
use serde::Serialize;

use crate::cargo;
use crate::cli::RunArgs;
use crate::era::Era;
use crate::error::{BenchError, Doing, Result};
use crate::fake::FakeArgs;
use crate::report::Machine;
use crate::results::{Results, Values};
use crate::run::cores;
use crate::system::process::raise_file_limit;
use crate::system::{Bench, Fakes, this_program};

/// The measurements and their durations.
#[derive(Clone, Debug)]
struct Plan {
    eras: Vec<Era>,
    rounds: usize,
    window: Duration,
    connections: usize,
    sessions: usize,
    /// Calls per second of the fixed rate.
    rate: f64,
}

/// A gateway in the comparison, and its package.
struct Entrant {
    peer: Peer,
    /// The package: `None` if there is nothing to install; the error's text if the installation
    /// failed.
    package: Option<std::result::Result<Installed, String>>,
    version: String,
}

/// A measurement that was not made, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Note {
    system: String,
    era: Era,
    text: String,
}

/// The parts of one era's messages that a gateway preserves.
#[derive(Clone, Debug, Serialize)]
struct Examined {
    system: String,
    era: Era,
    findings: Vec<Finding>,
}

/// One run: its tools and its findings.
struct Contest {
    bench: Bench,
    plan: Plan,
    results: Results,
    notes: Vec<Note>,
    examined: Vec<Examined>,
}

/// Open files for sessions and for everything else.
const FILES: u64 = 20_000;

pub(crate) async fn run(args: &RunArgs) -> Result<()> {
    let begun = Instant::now();
    let peers = Peer::all(&args.peers)?;
    let mut results = Results::default();
    raise_file_limit(FILES);
    let fanlight = match &args.fanlight {
        Some(path) => path.clone(),
        None if peers.iter().any(|peer| peer.source == Source::Fanlight) => {
            cargo::fanlight().await?
        }
        None => PathBuf::new(),
    };
    let (gateway, load) = cores(args, &mut results)?;
    let bench = Bench {
        fanlight,
        runner: &[],
        gateway,
        load,
    };
    let root = cargo::target_folder()?.join("peers");
    let mut entrants = Vec::new();
    for peer in peers {
        entrants.push(Entrant::prepare(peer, &root, &bench).await);
    }
    let machine = Machine::before_load();
    let mut contest = Contest {
        bench,
        plan: plan(args),
        results,
        notes: Vec::new(),
        examined: Vec::new(),
    };
    for era in contest.plan.eras.clone() {
        for link in [Link::Http, Link::Stdio] {
            let entrants: Vec<&Entrant> = entrants
                .iter()
                .filter(|entrant| entrant.peer.link == link)
                .collect();
            if !entrants.is_empty() {
                contest.measure(&entrants, link, era).await?;
                contest.examine(&entrants, era).await;
            }
        }
    }
    let machine = machine.after_load();
    let took = begun.elapsed();
    let output = args.output.clone().map_or_else(
        || cargo::target_folder().map(|to| to.join("peers-results.json")),
        Ok,
    )?;
    std::fs::write(&output, page::json(&machine, &entrants, &contest))
        .doing(format!("writing {}", output.display()))?;
    let text = page::text(&machine, &entrants, &contest, took);
    match &args.peers.write {
        Some(file) => std::fs::write(file, &text).doing(format!("writing {}", file.display()))?,
        None => println!("{text}"),
    }
    eprintln!("all results: {}; {} s", output.display(), took.as_secs());
    Ok(())
}

fn plan(args: &RunArgs) -> Plan {
    let seconds = args.seconds.unwrap_or(if args.quick { 0.3 } else { 2.0 });
    Plan {
        eras: if args.eras.is_empty() {
            Era::ALL.to_vec()
        } else {
            args.eras.clone()
        },
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 3 }).max(1),
        window: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(2)),
        connections: args.connections.max(1),
        sessions: args
            .peers
            .sessions
            .unwrap_or(if args.quick { 10 } else { 100 })
            .max(1),
        rate: args.peers.rate.max(1.0),
    }
}

impl Entrant {
    async fn prepare(peer: Peer, root: &Path, bench: &Bench) -> Self {
        let package = match peer.package() {
            Some(package) => Some(
                package
                    .install(root)
                    .await
                    .map_err(|error| error.to_string()),
            ),
            None => None,
        };
        let version = match (&package, &peer.source) {
            (Some(Ok(installed)), _) => installed.version.clone(),
            (None, Source::Fanlight) => version_of(&bench.fanlight, "--version").await,
            (None, Source::Nginx) => version_of(Path::new("/usr/sbin/nginx"), "-v").await,
            _ => "–".to_owned(),
        };
        eprintln!("  {}: {version}", peer.title());
        Self {
            peer,
            package,
            version,
        }
    }

    fn installed(&self) -> Result<Option<&Installed>> {
        match &self.package {
            None => Ok(None),
            Some(Ok(installed)) => Ok(Some(installed)),
            Some(Err(error)) => Err(BenchError::Unsupported(format!(
                "it could not be installed: {error}"
            ))),
        }
    }
}

impl Contest {
    async fn measure(&mut self, entrants: &[&Entrant], link: Link, era: Era) -> Result<()> {
        let (server, fakes) = server(link, FakeArgs::plain(era, 1)).await?;
        measure::all(self, entrants, &server, era).await;
        stop(fakes).await
    }

    /// Lets the witness examine each gateway that has a command.
    async fn examine(&mut self, entrants: &[&Entrant], era: Era) {
        if self.bench.fanlight.as_os_str().is_empty() {
            return;
        }
        let has_command =
            |entrant: &&&Entrant| !matches!(entrant.peer.source, Source::Direct | Source::Nginx);
        for entrant in entrants.iter().filter(has_command) {
            let system = entrant.peer.title();
            eprintln!("  examining {system}, {}", era.as_str());
            let examined = examine(&self.bench.fanlight, entrant, era).await;
            if let Some(findings) = self.value_or_note(&system, era, examined) {
                self.examined.push(Examined {
                    system,
                    era,
                    findings,
                });
            }
        }
    }

    /// The value, or `None` with a note of the error.
    fn value_or_note<T>(&mut self, system: &str, era: Era, done: Result<T>) -> Option<T> {
        let error = match done {
            Ok(value) => return Some(value),
            Err(error) => error.to_string(),
        };
        eprintln!("  {system}, {}: {error}", era.as_str());
        let note = Note {
            system: system.to_owned(),
            era,
            text: error,
        };
        let is_new = self.notes.iter().all(|known| *known != note);
        self.notes.extend(is_new.then_some(note));
        None
    }

    fn add(&mut self, what: &str, era: Era, system: &str, round: usize, measured: Result<Values>) {
        let named = measured.map_err(|error| BenchError::Other(format!("{what}: {error}")));
        if let Some(values) = self.value_or_note(system, era, named) {
            self.results
                .add(&measure::scenario(what, era), system, round, values);
        }
    }
}

/// The server of `args`: over HTTP in this process, or over stdio as a command.
async fn server(link: Link, args: FakeArgs) -> Result<(Server, Option<Fakes>)> {
    match link {
        Link::Http => {
            let fakes = Fakes::here(args).await?;
            Ok((Server::Http(fakes.first()?), Some(fakes)))
        }
        Link::Stdio => {
            let mut words = vec![this_program()?.display().to_string(), "echo".to_owned()];
            words.push(format!("--era={}", args.era.as_str()));
            Ok((Server::Stdio(words), None))
        }
    }
}

async fn stop(fakes: Option<Fakes>) -> Result<()> {
    match fakes {
        Some(fakes) => fakes.stop().await,
        None => Ok(()),
    }
}
