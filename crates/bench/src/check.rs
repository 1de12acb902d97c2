//! `check`: instructions per call under valgrind, against a budget that is kept beside the code.
//!
//! Time depends on the machine and on what else it does; the number of instructions hardly does. The program runs twice
//! with one kind of call done more often the second time: the difference, divided by how much more often, is what that
//! call takes, and the start and everything else cancel out.

mod budget;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use budget::Budget;

use crate::cargo;
use crate::cli::CheckArgs;
use crate::era::Era;
use crate::error::{BenchError, Result};
use crate::fake::payload::Tool;
use crate::load::calls::{Load, Pace, count};
use crate::load::events::Progress;
use crate::load::request::Message;
use crate::scenario::tracing::{Tracing, exported};
use crate::system::{Bench, Cores, Fakes, FanlightConfig, Process, TempFile};

const VALGRIND: &str = "/usr/bin/valgrind";
const TOOLS: usize = 50;
/// The same call with spans in the ring, as by default, and without any.
const TRACING_ON: &str = "call, 200 B, spans in the ring";
const TRACING_OFF: &str = "call, 200 B, no spans";
/// How many times more the first may take than the second: the goal.
const TRACING_COST: f64 = 1.10;

/// One kind of work, and how often it is done.
#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    kind: Kind,
    /// In every run.
    always: u32,
    /// More in the run that counts it.
    more: u32,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Call(Tool),
    List,
    Events,
}

/// Work behind one configuration.
struct Setup {
    era: Era,
    backends: usize,
    tracing: Tracing,
    work: &'static [Work],
}

const SETUPS: [Setup; 3] = [
    Setup {
        era: Era::Modern,
        backends: 1,
        tracing: Tracing::Ring,
        work: &[
            Work { name: "call, 200 B, modern", kind: Kind::Call(Tool::Text(200)), always: 20, more: 400 },
            Work { name: "call, 10 KiB, modern", kind: Kind::Call(Tool::Text(10 << 10)), always: 20, more: 200 },
            Work { name: "call, 1 MiB, modern", kind: Kind::Call(Tool::Text(1 << 20)), always: 2, more: 10 },
            Work { name: "call, 1 MiB rows, modern", kind: Kind::Call(Tool::Rows(1 << 20)), always: 2, more: 6 },
            structured("call, 200 B structured, modern", 200, 400),
            structured("call, 10 KiB structured, modern", 10 << 10, 200),
            structured("call, 1 MiB structured, modern", 1 << 20, 6),
            Work { name: "progress event, modern", kind: Kind::Events, always: 10, more: 200 },
        ],
    },
    Setup {
        era: Era::Legacy,
        backends: 1,
        tracing: Tracing::Ring,
        work: &[Work { name: "call, 200 B, legacy", kind: Kind::Call(Tool::Text(200)), always: 20, more: 400 }],
    },
    Setup {
        era: Era::Modern,
        backends: 10,
        tracing: Tracing::Ring,
        work: &[
            Work { name: "call, 200 B, 10 backends", kind: Kind::Call(Tool::Text(200)), always: 20, more: 400 },
            // So many that it hardly matters how often a page is written anew, which is once a second.
            Work { name: "list of 500 tools", kind: Kind::List, always: 2, more: 200 },
        ],
    },
];

/// One kind of call with each way to trace it, told from each other and held to no budget of their own.
const TRACING: [Setup; 3] = [
    traced(Tracing::Off, &[Work { name: TRACING_OFF, kind: Kind::Call(Tool::Text(200)), always: 20, more: 400 }]),
    traced(Tracing::Ring, &[Work { name: TRACING_ON, kind: Kind::Call(Tool::Text(200)), always: 20, more: 400 }]),
    traced(
        Tracing::Exported,
        &[Work { name: "call, 200 B, exported", kind: Kind::Call(Tool::Text(200)), always: 20, more: 400 }],
    ),
];

const fn structured(name: &'static str, size: usize, more: u32) -> Work {
    Work { name, kind: Kind::Call(Tool::Structured(size)), always: 2, more }
}

const fn traced(tracing: Tracing, work: &'static [Work]) -> Setup {
    Setup { era: Era::Modern, backends: 1, tracing, work }
}

pub(crate) async fn run(args: &CheckArgs) -> Result<()> {
    if !Path::new(VALGRIND).exists() {
        return Err(BenchError::Missing { program: VALGRIND.into(), hint: "install the Debian package valgrind" });
    }
    let fanlight = match &args.fanlight {
        Some(path) => path.clone(),
        None => cargo::fanlight().await?,
    };
    let tracing = tracing_cost(&count_all(&fanlight, &TRACING).await?)?;
    println!("spans in the ring: {:+.1}% instructions per call", (tracing - 1.0) * 100.0);
    if tracing > TRACING_COST {
        return Err(BenchError::Other(format!("tracing takes more than {:.0}%", (TRACING_COST - 1.0) * 100.0)));
    }
    if args.only_tracing {
        return Ok(());
    }
    let counted = count_all(&fanlight, &SETUPS).await?;
    if args.update {
        Budget::of(&counted).write(&args.budget)?;
        println!("written to {}", args.budget.display());
        return Ok(());
    }
    let budget = Budget::read(&args.budget)?;
    let over = budget.compare(&counted);
    print!("{}", over.text);
    if over.count == 0 { Ok(()) } else { Err(BenchError::OverBudget(over.count)) }
}

/// How many times more a call takes with spans in the ring than without any, both counted in one run.
fn tracing_cost(counted: &BTreeMap<String, f64>) -> Result<f64> {
    match (counted.get(TRACING_ON), counted.get(TRACING_OFF)) {
        (Some(on), Some(off)) if *off > 0.0 => Ok(on / off),
        _ => Err(BenchError::Other("calls with and without spans were not counted".into())),
    }
}

async fn count_all(fanlight: &Path, setups: &[Setup]) -> Result<BTreeMap<String, f64>> {
    let mut counted = BTreeMap::new();
    let bench = Bench { fanlight: fanlight.to_owned(), gateway: Cores::Any, load: Cores::Any };
    for setup in setups {
        let fakes = Fakes::start(&bench, setup.era, setup.backends, TOOLS, 0).await?;
        let least = instructions(&bench, setup, &fakes.addresses, None).await?;
        for (index, work) in setup.work.iter().enumerate() {
            let more = instructions(&bench, setup, &fakes.addresses, Some(index)).await?;
            let each = count(more.saturating_sub(least)) / f64::from(work.more);
            eprintln!("{:<32} {each:>12.0} instructions", work.name);
            counted.insert(work.name.to_owned(), each.round());
        }
        // What the collector never got would cost nothing.
        if setup.tracing == Tracing::Exported && exported(fakes.first()?).await? == 0 {
            return Err(BenchError::Other("no traces were exported".into()));
        }
        fakes.stop().await?;
    }
    Ok(counted)
}

/// The instructions of one run in which the work at `counted` is done more often.
async fn instructions(bench: &Bench, setup: &Setup, servers: &[SocketAddr], counted: Option<usize>) -> Result<u64> {
    let traces = (setup.tracing == Tracing::Off).then_some(0);
    let config = FanlightConfig { traces, ..FanlightConfig::default() }.file(servers)?;
    let collector = servers.first().filter(|_| setup.tracing == Tracing::Exported);
    let mut process = start(&bench.fanlight, &config, collector)?;
    let said = process.line_after("listening on http://").await?;
    let address = said.strip_suffix("/mcp").and_then(|address| address.parse().ok());
    let address = address.ok_or_else(|| BenchError::Other(format!("Fanlight listens at {said:?}")))?;
    for (index, work) in setup.work.iter().enumerate() {
        let times = work.always + if counted == Some(index) { work.more } else { 0 };
        work.run(setup, address, times).await?;
    }
    process.terminate();
    let said = process.line_after("Collected :").await?;
    process.stop().await?;
    said.trim().parse().map_err(|_| BenchError::Other(format!("valgrind counted {said:?}")))
}

/// One thread, so that nothing depends on which of several happens to find work.
fn start(fanlight: &Path, config: &TempFile, collector: Option<&SocketAddr>) -> Result<Process> {
    let mut args: Vec<OsString> = Vec::new();
    args.extend(collector.map(|at| format!("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://{at}/v1/traces").into()));
    args.extend([VALGRIND, "--tool=callgrind"].map(OsString::from));
    args.extend(["--callgrind-out-file=/dev/null".into(), fanlight.into()]);
    args.extend(["run", "--listen", "127.0.0.1:0", "--admin", "off", "--config"].map(OsString::from));
    args.push(config.path().into());
    Process::start("Fanlight under valgrind", &PathBuf::from("/usr/bin/env"), &args, Cores::One(0))
}

impl Work {
    async fn run(&self, setup: &Setup, address: SocketAddr, times: u32) -> Result<()> {
        let prefix = if setup.backends > 1 { "s0__" } else { "" };
        let message = match self.kind {
            Kind::Call(tool) => Message::call(setup.era, &format!("{prefix}{}", tool.name()), tool),
            Kind::List => Message::list(setup.era, None, TOOLS * setup.backends),
            // Not as fast as they go: how many arrive together would be chance.
            Kind::Events => {
                let tool = format!("{prefix}{}", Tool::Progress.name());
                let progress = Progress { address, era: setup.era, tool, streams: 1, events: times, every_ms: 5 };
                return progress.run().await.map(drop);
            }
        };
        let load = Load { address, era: setup.era, connections: 1, messages: std::sync::Arc::new(vec![message]) };
        load.open().await?.run(Pace::Count(times.into()), Duration::from_secs(60)).await.map(drop)
    }
}
