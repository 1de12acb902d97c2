//! A child process behind pipes: the bare pipes, Fanlight over stdio in front of it, and Fanlight over HTTP.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use super::Run;
use crate::era::Era;
use crate::error::{BenchError, Result};
use crate::fake::payload::Tool;
use crate::load::calls::{Load, Pace, count};
use crate::load::pipe::Pipe;
use crate::load::request::Message;
use crate::results::Values;
use crate::system::{Bench, Cores, Kind, Process, TempFile, this_program};
use crate::usage::Usage;

/// Calls in flight.
const WINDOW: u64 = 64;
const TOOL: Tool = Tool::Text(200);

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        for round in 0..run.plan.rounds {
            let scenario = format!("stdio {}", era.as_str());
            let bare = bare(run.plan.window).await;
            if let Some(values) = run.told("a bare pipe", bare) {
                run.results.add(&scenario, "pipe", round, values);
            }
            if run.has(Kind::Fanlight) {
                let through = over_stdio(&run.bench, era, run.plan.window).await;
                if let Some(values) = run.told("Fanlight over stdio", through) {
                    run.results.add(&scenario, "fanlight", round, values);
                }
                if era == Era::Modern {
                    over_http(run, round).await?;
                }
            }
        }
    }
    Ok(())
}

fn echo_args(era: Era) -> [String; 2] {
    ["echo".to_owned(), format!("--era={}", era.as_str())]
}

async fn bare(window: Duration) -> Result<Values> {
    let args: Vec<OsString> = echo_args(Era::Modern).into_iter().map(OsString::from).collect();
    let (process, input, output) = Process::piped("the echo", &this_program()?, &args, Cores::Any)?;
    let message = Message::call(Era::Modern, &TOOL.name(), TOOL);
    let mut pipe = Pipe::new(input, output, &message, WINDOW as usize);
    let values = flow(&mut pipe, &process, window).await;
    drop(pipe);
    process.stop().await?;
    values
}

async fn over_stdio(bench: &Bench, era: Era, window: Duration) -> Result<Values> {
    let config = config(era)?;
    let args: [OsString; 3] = ["stdio".into(), "--config".into(), config.path().into()];
    let (process, input, output) = Process::piped("fanlight", &bench.fanlight, &args, Cores::Any)?;
    let mut pipe = match era {
        Era::Modern => Pipe::new(input, output, &Message::call(era, &TOOL.name(), TOOL), WINDOW as usize),
        Era::Legacy => {
            let mut opening = Pipe::new(input, output, &Message::initialize(), 1);
            opening.run(1, Duration::ZERO).await?;
            opening.then(&Message::call(era, &TOOL.name(), TOOL), WINDOW as usize)
        }
    };
    let values = flow(&mut pipe, &process, window).await;
    drop(pipe);
    process.stop().await?;
    values
}

async fn flow(pipe: &mut Pipe, process: &Process, window: Duration) -> Result<Values> {
    pipe.run(WINDOW, window / 5).await?;
    let before = Usage::of_tree(process.pid())?;
    let (calls, took) = pipe.run(WINDOW, window).await?;
    let cpu = (Usage::of_tree(process.pid())?.cpu - before.cpu).as_secs_f64();
    Ok(Values::from([
        ("calls_per_s", count(calls) / took.as_secs_f64()),
        ("cpu_us_per_call", cpu * 1e6 / count(calls).max(1.0)),
    ]))
}

fn config(era: Era) -> Result<TempFile> {
    let program = this_program()?;
    let program = program.to_str().ok_or_else(|| BenchError::Other("this program's path is not text".into()))?;
    let args = echo_args(era);
    TempFile::new("stdio.yaml", &crate::system::stdio_config(program, &args.each_ref().map(String::as_str)))
}

/// Clients over HTTP in front of the same child. Fanlight and its child share a processor here.
async fn over_http(run: &mut Run, round: usize) -> Result<()> {
    let config = config(Era::Modern)?;
    let args: Vec<OsString> =
        ["run", "--listen", "127.0.0.1:0", "--admin", "off", "--config"].into_iter().map(OsString::from).collect();
    let args = [args, vec![config.path().into()]].concat();
    let mut process = Process::start("fanlight", &run.bench.fanlight, &args, Cores::Any)?;
    let said = process.line_after("listening on http://").await?;
    let address = said.strip_suffix("/mcp").and_then(|address| address.parse().ok());
    let address = address.ok_or_else(|| BenchError::Other(format!("Fanlight listens at {said:?}")))?;
    let messages = Arc::new(vec![Message::call(Era::Modern, &TOOL.name(), TOOL)]);
    let load = Load { address, era: Era::Modern, connections: run.plan.connections, messages };
    let mut ready = load.open().await?;
    ready.run(Pace::Closed, run.plan.window / 5).await?;
    let before = Usage::of_tree(process.pid())?;
    let served = ready.run(Pace::Closed, run.plan.window).await?;
    let cpu = (Usage::of_tree(process.pid())?.cpu - before.cpu).as_secs_f64();
    let values = Values::from([
        ("calls_per_s", served.per_second()),
        ("cpu_us_per_call", cpu * 1e6 / count(served.calls).max(1.0)),
    ]);
    run.results.add("stdio behind HTTP", "fanlight", round, values);
    process.stop().await
}
