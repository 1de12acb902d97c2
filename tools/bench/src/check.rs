//! `check`: instructions per call under valgrind, compared with a budget that is committed with the
//! code.
//!
//! Time depends on the machine and its other load; the number of instructions hardly does. Fanlight
//! runs twice, the second time with more calls of one kind. The difference, divided by the number
//! of further calls, is the cost of one call. Start and stop cancel out. Fanlight's work once a
//! second does not: on a busy machine more of it falls into the longer run. It only adds, so the
//! least of several counts is the best.
//!
//! Other benchmark harnesses over callgrind, such as gungraun, count whole runs of one process.
//! This one needs a client and servers outside of the counted process.

mod budget;

use std::collections::BTreeMap;
use std::path::Path;
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
use crate::scenario::lists::stats;
use crate::scenario::{access, tracing};
use crate::system::{Bench, Cores, FILTERED, Fakes, FanlightConfig, Kind, System};

const VALGRIND: &str = "/usr/bin/valgrind";
/// Counts the bytes that `memcpy` and its like copy, instead of instructions.
const COPYING: &[&str] = &[
    VALGRIND,
    "--tool=dhat",
    "--mode=copy",
    "--dhat-out-file=/dev/null",
];
const TOOLS: usize = 50;
/// The goal for the ratio of a call's cost with spans in the ring to its cost without spans.
const TRACING_COST: f64 = 1.10;
/// The goal for the ratio of a call's cost with its content kept to its cost without.
const CONTENT_COST: f64 = 1.15;

/// The goal for the ratio of a call's or a list's cost with endpoints and changed tools to its cost
/// without.
const REWRITING_COST: f64 = 1.03;
/// The goal for the ratio of a small call's or a list's cost with `results` to its cost without.
const RESULTS_COST: f64 = 1.02;
/// The MiB of a large result.
const LARGE_MIB: usize = 10;
/// The permitted ratio of a call's instructions with a token to those without. It exceeds the goal
/// for time: valgrind lacks the processor's SHA-256 instructions, so the token's hash, its key in
/// the cache, costs more.
const TOKEN_INSTRUCTIONS: f64 = 1.35;
/// The permitted ratio of a call's instructions with its user's grant to those with a configured
/// header. Half of the time is the kernel's, which both cases share.
const GRANT_INSTRUCTIONS: f64 = 1.12;

/// The tolerance of such a ratio, which varies between machines and runs.
const VARIATION: f64 = 0.01;

/// The number of counts of the same work, of which the least is used: for small differences, and
/// for a count over its budget.
const COUNTS: usize = 3;

/// One kind of work, and its repetitions.
#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    what: What,
    /// Repetitions in every run.
    always: u32,
    /// Further repetitions in the run that counts it.
    more: u32,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Call(Tool),
    /// A call whose result may be shortened.
    Large(Tool),
    List,
    Events,
}

/// Work in front of one kind of Fanlight.
struct Setup {
    era: Era,
    kind: Kind,
    work: &'static [Work],
}

const SETUPS: [Setup; 3] = [
    Setup {
        era: Era::Modern,
        kind: Kind::Fanlight,
        work: &[
            call("call, 200 B, modern", Tool::Text(200), 400),
            call("call, 10 KiB, modern", Tool::Text(10 << 10), 200),
            call("call, 1 MiB, modern", Tool::Text(1 << 20), 10),
            call("call, 1 MiB rows, modern", Tool::Rows(1 << 20), 6),
            call("call, 200 B structured, modern", Tool::Structured(200), 400),
            call(
                "call, 10 KiB structured, modern",
                Tool::Structured(10 << 10),
                200,
            ),
            call(
                "call, 1 MiB structured, modern",
                Tool::Structured(1 << 20),
                6,
            ),
            Work {
                name: "progress event, modern",
                what: What::Events,
                always: 10,
                more: 200,
            },
        ],
    },
    Setup {
        era: Era::Legacy,
        kind: Kind::Fanlight,
        work: &[call("call, 200 B, legacy", Tool::Text(200), 400)],
    },
    Setup {
        era: Era::Modern,
        kind: Kind::Fanlight10,
        work: &[call("call, 200 B, 10 backends", Tool::Text(200), 400), LIST],
    },
];

/// The same call for each kind of Fanlight; only the ratios count.
const COMPARED: &[Work] = &[call("call, 200 B", Tool::Text(200), 400)];
/// Calls with a large result, which `results` shortens; only the ratios count.
const LARGE: &[Work] = &[Work {
    name: "call, 10 MiB",
    what: What::Large(Tool::Text(LARGE_MIB << 20)),
    always: 2,
    more: 4,
}];
/// So many repetitions that start and stop, which vary by more than the small differences, hardly
/// matter.
const COMPARED_CLOSELY: &[Work] = &[MANY_CALLS, LIST];
/// With `results`, a list has one more tool and is another one.
const COMPARED_CALLS: &[Work] = &[MANY_CALLS];
const MANY_CALLS: Work = call("call, 200 B", Tool::Text(200), 2000);

/// So many repetitions that the renewal of a page hardly matters: once a second, for some two
/// million instructions.
const LIST: Work = Work {
    name: "list of 500 tools",
    what: What::List,
    always: 2,
    more: 2000,
};

const fn call(name: &'static str, tool: Tool, more: u32) -> Work {
    Work {
        name,
        what: What::Call(tool),
        always: if more > 100 { 20 } else { 2 },
        more,
    }
}

pub(crate) async fn run(args: &CheckArgs) -> Result<()> {
    if !Path::new(VALGRIND).exists() {
        return Err(BenchError::Missing {
            program: VALGRIND.into(),
            hint: "install the Debian package valgrind",
        });
    }
    let fanlight = match &args.fanlight {
        Some(path) => path.clone(),
        None => cargo::fanlight().await?,
    };
    let runner = &[
        VALGRIND,
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--cache-sim=yes",
        // The instruction cache of small processors.
        "--I1=32768,8,64",
    ];
    let bench = Bench {
        fanlight,
        runner,
        gateway: Cores::One(0),
        load: Cores::Any,
    };
    if args.only_access {
        return check_access(&bench).await;
    }
    if args.only_results {
        return check_results(&bench).await;
    }
    if !args.only_tracing {
        check_rewriting(&bench).await?;
        check_results(&bench).await?;
    }
    check_tracing(&bench).await?;
    if args.only_tracing {
        return Ok(());
    }
    check_access(&bench).await?;
    let budget = if args.update {
        None
    } else {
        Some(Budget::read(&args.budget)?)
    };
    let mut counted = BTreeMap::new();
    for setup in &SETUPS {
        let mut least = BTreeMap::new();
        for _ in 0..COUNTS {
            take_least(&mut least, count_all(&bench, setup).await?);
            if budget
                .as_ref()
                .is_some_and(|budget| budget.has_room_for(&least))
            {
                break;
            }
        }
        counted.append(&mut least);
    }
    let Some(budget) = budget else {
        Budget::new(&counted).write(&args.budget)?;
        println!("written to {}", args.budget.display());
        return Ok(());
    };
    let over = budget.compare(&counted);
    print!("{}", over.text);
    if over.count == 0 {
        Ok(())
    } else {
        Err(BenchError::OverBudget(over.count))
    }
}

/// Fails if spans in the ring, or the content of calls, exceed the goal for a call's cost.
async fn check_tracing(bench: &Bench) -> Result<()> {
    let mut counts = Vec::new();
    for kind in tracing::KINDS {
        eprintln!("{}", kind.as_str());
        let counted = count_all(
            bench,
            &Setup {
                era: Era::Modern,
                kind,
                work: COMPARED,
            },
        )
        .await?;
        counts.extend(counted.into_values());
    }
    let [no_spans, no_content, whole, no_record, ..] = counts.as_slice() else {
        return Err(BenchError::Other("nothing was counted".into()));
    };
    let mut over = Vec::new();
    for (what, with, without, most) in [
        ("spans in the ring", no_content, no_spans, TRACING_COST),
        ("content of calls", whole, no_content, CONTENT_COST),
        ("audit log", whole, no_record, f64::INFINITY),
    ] {
        let ratio = with / without;
        println!(
            "{what}: {:+.0} instructions per call ({:+.1}%)",
            with - without,
            (ratio - 1.0) * 100.0
        );
        if ratio > most {
            over.push(format!(
                "{what} take more than {:.0}%",
                (most - 1.0) * 100.0
            ));
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    Err(BenchError::Other(over.join("; ")))
}

/// Fails if tokens, TLS or users' grants exceed the permitted instructions of a call. Signatures
/// and handshakes are in both runs of a count, so the count does not contain them.
async fn check_access(bench: &Bench) -> Result<()> {
    let mut counts = Vec::new();
    for kind in access::KINDS {
        eprintln!("{}", kind.as_str());
        let counted = count_all(
            bench,
            &Setup {
                era: Era::Modern,
                kind,
                work: COMPARED,
            },
        )
        .await?;
        counts.extend(counted.into_values());
    }
    let [without, token, tls, header, grant] = counts.as_slice() else {
        return Err(BenchError::Other("nothing was counted".into()));
    };
    let mut over = Vec::new();
    for (what, ratio, most) in [
        ("a token", token / without, TOKEN_INSTRUCTIONS),
        ("TLS", tls / without, access::TLS_COST),
        (
            "a user's grant instead of a header",
            grant / header,
            GRANT_INSTRUCTIONS,
        ),
    ] {
        println!(
            "{what}: {:+.1}% instructions per call",
            (ratio - 1.0) * 100.0
        );
        if ratio > most {
            over.push(format!(
                "{what} takes more than {:.0}%",
                (most - 1.0) * 100.0
            ));
        }
    }
    if over.is_empty() {
        Ok(())
    } else {
        Err(BenchError::Other(over.join("; ")))
    }
}

/// Fails if endpoints and changed tools exceed the goal for the cost of a call or a list.
async fn check_rewriting(bench: &Bench) -> Result<()> {
    let kinds = [Kind::Fanlight10, Kind::FanlightRewriting];
    check_beside(
        bench,
        "endpoints and changed tools",
        kinds,
        COMPARED_CLOSELY,
        REWRITING_COST,
    )
    .await
}

/// Fails if `results`, of the endpoint or of the server, exceeds the goal for the cost of a small
/// call, or for the copied bytes of a large result.
async fn check_results(bench: &Bench) -> Result<()> {
    check_copies(bench).await?;
    for (what, kind) in [
        ("results of the endpoint", Kind::FanlightResults),
        ("results of the server", Kind::FanlightServerResults),
    ] {
        let kinds = [Kind::Fanlight, kind];
        check_beside(bench, what, kinds, COMPARED_CALLS, RESULTS_COST).await?;
    }
    Ok(())
}

/// Fails if a large result is copied more often with `results` than without. With them it is copied
/// once to be kept, and a short one goes to the client. Without, the kernel copies it to the socket.
async fn check_copies(bench: &Bench) -> Result<()> {
    let bench = Bench {
        runner: COPYING,
        ..bench.clone()
    };
    let mut copied = Vec::new();
    for kind in [Kind::Fanlight, Kind::FanlightResults] {
        let setup = Setup {
            era: Era::Modern,
            kind,
            work: LARGE,
        };
        let fakes = Fakes::start(&bench, setup.era, kind.backends(), TOOLS, 0).await?;
        let mut totals = Vec::new();
        for counted in [None, Some(0)] {
            let said = totals_of(&bench, &setup, &fakes, counted, "Total:").await?;
            let bytes = said.split_whitespace().next().unwrap_or_default();
            let bytes: Option<f64> = bytes.replace(',', "").parse().ok();
            totals.push(bytes.ok_or_else(|| BenchError::Other(format!("{said:?} is no total")))?);
        }
        fakes.stop().await?;
        let more: u32 = LARGE.iter().map(|work| work.more).sum();
        let each = totals
            .iter()
            .rev()
            .copied()
            .reduce(|more, least| more - least);
        copied.push(each.unwrap_or_default() / f64::from(more) / f64::from(1 << 20));
    }
    let [without, with] = copied.as_slice() else {
        return Err(BenchError::Other("nothing was counted".into()));
    };
    println!(
        "a result of {LARGE_MIB} MiB: {without:.1} MiB are copied, and {with:.1} MiB where results keeps it"
    );
    if with - without <= LARGE_MIB as f64 * (1.0 + VARIATION) {
        return Ok(());
    }
    Err(BenchError::Other(
        "results: a large result is copied more than once".into(),
    ))
}

/// Fails if the second kind takes more than `goal` times what the first one takes.
async fn check_beside(
    bench: &Bench,
    what: &str,
    kinds: [Kind; 2],
    work: &'static [Work],
    goal: f64,
) -> Result<()> {
    let mut least = [BTreeMap::new(), BTreeMap::new()];
    for _ in 0..COUNTS {
        for (least, kind) in least.iter_mut().zip(kinds) {
            eprintln!("{}", kind.as_str());
            take_least(
                least,
                count_all(
                    bench,
                    &Setup {
                        era: Era::Modern,
                        kind,
                        work,
                    },
                )
                .await?,
            );
        }
    }
    let [without, with] = &least;
    let mut over = Vec::new();
    for (name, without) in without {
        let ratio = with.get(name).map_or(f64::INFINITY, |with| with / without);
        println!(
            "{what}: {:+.1}% instructions per {name}",
            (ratio - 1.0) * 100.0
        );
        if ratio > goal + VARIATION {
            over.push(name.as_str());
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    Err(BenchError::Other(format!(
        "{what}: more than {:.0}%: {}",
        (goal - 1.0) * 100.0,
        over.join("; ")
    )))
}

/// Replaces counts that exceed a further count of the same work.
fn take_least(least: &mut BTreeMap<String, f64>, counted: BTreeMap<String, f64>) {
    for (name, count) in counted {
        let least = least.entry(name).or_insert(count);
        *least = least.min(count);
    }
}

/// The instructions of each kind of work in one setup, by name.
async fn count_all(bench: &Bench, setup: &Setup) -> Result<BTreeMap<String, f64>> {
    let mut counted = BTreeMap::new();
    let fakes = Fakes::start(bench, setup.era, setup.kind.backends(), TOOLS, 0).await?;
    let least = events(bench, setup, &fakes, None).await?;
    for (index, work) in setup.work.iter().enumerate() {
        let more = events(bench, setup, &fakes, Some(index)).await?;
        let of_each =
            |least: u64, more: u64| count(more.saturating_sub(least)) / f64::from(work.more);
        let each = of_each(least.instructions, more.instructions);
        let misses = of_each(least.misses, more.misses);
        eprintln!(
            "{:<32} {each:>12.0} instructions, {misses:.0} misses of the instruction cache",
            work.name
        );
        counted.insert(work.name.to_owned(), each.round());
    }
    // Spans that did not reach the collector would cost nothing.
    if setup.kind == Kind::FanlightExporting && stats(fakes.first()?).await?.exported == 0 {
        return Err(BenchError::Other("the collector received no spans".into()));
    }
    fakes.stop().await?;
    Ok(counted)
}

/// The events of one run.
#[derive(Clone, Copy)]
struct Events {
    instructions: u64,
    /// The misses of the instruction cache.
    misses: u64,
}

impl Events {
    /// Parses valgrind's totals: instructions, reads, writes, and misses of the instruction cache.
    fn parse(totals: &str) -> Option<Self> {
        let mut numbers = totals.split_whitespace().map(|number| number.parse().ok());
        let instructions = numbers.next()??;
        let misses = numbers.nth(2)??;
        Some(Self {
            instructions,
            misses,
        })
    }
}

/// The events of one run in which the work at `counted` is repeated more often.
async fn events(
    bench: &Bench,
    setup: &Setup,
    fakes: &Fakes,
    counted: Option<usize>,
) -> Result<Events> {
    let totals = totals_of(bench, setup, fakes, counted, "Collected :").await?;
    Events::parse(&totals).ok_or_else(|| BenchError::Other(format!("valgrind counted {totals:?}")))
}

/// The totals that valgrind prints after `part` at the end of such a run.
async fn totals_of(
    bench: &Bench,
    setup: &Setup,
    fakes: &Fakes,
    counted: Option<usize>,
    part: &str,
) -> Result<String> {
    // On one processor Fanlight has one worker, so the result does not depend on which worker finds
    // work first.
    let system = System::start(
        bench,
        setup.kind,
        &fakes.addresses,
        &FanlightConfig::default(),
    )
    .await?;
    for (index, work) in setup.work.iter().enumerate() {
        let times = work.always + if counted == Some(index) { work.more } else { 0 };
        work.run(setup, &system, times).await?;
    }
    system.stop_and_read(part).await
}

impl Work {
    async fn run(&self, setup: &Setup, system: &System, times: u32) -> Result<()> {
        let prefix = if setup.kind.backends() > 1 {
            "s0__"
        } else {
            ""
        };
        let message = match self.what {
            What::Call(tool) => Message::call(setup.era, &format!("{prefix}{}", tool.name()), tool),
            What::Large(tool) => Message::call(setup.era, &tool.name(), tool).unchecked(),
            What::List => {
                let list = Message::list(setup.era, None, TOOLS * setup.kind.backends());
                if setup.kind == Kind::FanlightRewriting {
                    list.to(FILTERED)
                } else {
                    list
                }
            }
            // Events are paced, since otherwise a random number of them would arrive together.
            What::Events => {
                let tool = format!("{prefix}{}", Tool::Progress.name());
                let progress = Progress {
                    address: system.address,
                    era: setup.era,
                    tool,
                    streams: 1,
                    events: times,
                    every_ms: 5,
                };
                return progress.run().await.map(drop);
            }
        };
        let load = Load::on(system, setup.era, 1, vec![message]);
        load.open()
            .await?
            .run(Pace::Count(times.into()), Duration::from_secs(60))
            .await
            .map(drop)
    }
}
