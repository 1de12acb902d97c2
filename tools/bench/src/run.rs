//! `run`: makes the measurements that the command line selects, and reports them.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum as _;

use crate::cargo;
use crate::cli::RunArgs;
use crate::era::Era;
use crate::error::{BenchError, Result};
use crate::report::{self, Machine};
use crate::results::Results;
use crate::scenario::{Group, Plan, Run};
use crate::system::process::{pin, processors, raise_file_limit};
use crate::system::{Bench, Cores, Kind};

/// Open files that a system may need for each idle stream, one to the client and one to a server,
/// and for everything else.
const FILES_PER_STREAM: u64 = 2;
const OTHER_FILES: u64 = 1000;

pub(crate) async fn run(args: &RunArgs) -> Result<()> {
    let mut plan = plan(args);
    let mut results = Results::default();
    let wanted = u64::try_from(plan.streams)
        .unwrap_or(u64::from(u32::MAX))
        .saturating_mul(FILES_PER_STREAM)
        + OTHER_FILES;
    let files = raise_file_limit(wanted);
    if files < wanted {
        plan.streams =
            usize::try_from(files.saturating_sub(OTHER_FILES) / FILES_PER_STREAM).unwrap_or(0);
        let why = format!(
            "more than {} idle streams: the limit on open files is {files}",
            plan.streams
        );
        results.skipped.push(why);
    }
    let needs_fanlight = plan
        .systems
        .iter()
        .any(|kind| matches!(kind, Kind::Fanlight | Kind::Fanlight10));
    let fanlight = match &args.fanlight {
        Some(path) => path.clone(),
        None if needs_fanlight => cargo::fanlight().await?,
        None => PathBuf::new(),
    };
    let (gateway, load) = cores(args, &mut results)?;
    let machine = Machine::before_load();
    let mut run = Run {
        bench: Bench {
            fanlight,
            runner: &[],
            gateway,
            load,
        },
        plan,
        results,
    };
    run.all().await;
    let machine = machine.after_load();
    let output = args.output.clone().map_or_else(
        || cargo::target_folder().map(|to| to.join("bench-results.json")),
        Ok,
    )?;
    report::write(&output, &machine, &run.plan, &run.results)?;
    println!("{}", report::tables(&machine, &run.plan, &run.results));
    println!("all results: {}", output.display());
    if run.results.failures.is_empty() {
        return Ok(());
    }
    Err(BenchError::Other(format!(
        "{} measurements failed",
        run.results.failures.len()
    )))
}

fn plan(args: &RunArgs) -> Plan {
    fn or_all<T: Clone>(chosen: &[T], all: &[T]) -> Vec<T> {
        if chosen.is_empty() {
            all.to_vec()
        } else {
            chosen.to_vec()
        }
    }
    let seconds = args.seconds.unwrap_or(if args.quick { 0.2 } else { 2.0 });
    Plan {
        groups: or_all(&args.only, Group::value_variants()),
        systems: or_all(&args.systems, &Kind::COMPARED),
        eras: or_all(&args.eras, &Era::ALL),
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 3 }).max(1),
        window: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(2)),
        connections: args.connections.max(1),
        streams: args
            .streams
            .unwrap_or(if args.quick { 200 } else { 10_000 }),
        churn: Duration::from_secs(
            args.churn_seconds
                .unwrap_or(if args.quick { 1 } else { 15 }),
        ),
    }
}

/// Keeps this process on the processor for load, if there are two.
pub(crate) fn cores(args: &RunArgs, results: &mut Results) -> Result<(Cores, Cores)> {
    let there = processors();
    let (gateway, load) = (args.gateway_core, args.load_core);
    if gateway == load || !there.contains(&gateway) || !there.contains(&load) {
        let why = format!(
            "two processors: {gateway} and {load} are not both available, so processes are not pinned"
        );
        results.skipped.push(why);
        return Ok((Cores::Any, Cores::Any));
    }
    pin(load)?;
    Ok((Cores::One(gateway), Cores::One(load)))
}
