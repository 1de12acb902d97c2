//! A child process behind pipes: alone, and with Fanlight over stdio in front of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::Run;
use crate::era::Era;
use crate::error::Result;
use crate::fake::payload::Tool;
use crate::load::calls::count;
use crate::load::pipe::Pipe;
use crate::load::request::Message;
use crate::results::Values;
use crate::system::{Bench, Cores, Kind, Process, folder_with, this_program};
use crate::usage::Usage;

/// Calls in flight.
const WINDOW: u64 = 64;
const TOOL: Tool = Tool::Text(200);

pub(super) async fn measure(run: &mut Run) -> Result<()> {
    for era in run.plan.eras.clone() {
        for round in 0..run.plan.rounds {
            let scenario = format!("stdio {}", era.as_str());
            let bare = bare(run.plan.window).await;
            run.add(&scenario, "pipe", round, bare);
            if run.has(Kind::Fanlight) {
                let through = over_stdio(&run.bench, era, run.plan.window).await;
                run.add(&scenario, "fanlight", round, through);
            }
        }
    }
    Ok(())
}

fn echo_args(era: Era) -> [String; 2] {
    ["echo".to_owned(), format!("--era={}", era.as_str())]
}

async fn bare(window: Duration) -> Result<Values> {
    let args: Vec<OsString> = echo_args(Era::Modern)
        .into_iter()
        .map(OsString::from)
        .collect();
    let (process, input, output) = Process::piped("the echo", &this_program()?, &args, Cores::Any)?;
    let message = Message::call(Era::Modern, &TOOL.name(), TOOL);
    let mut pipe = Pipe::new(input, output, &message);
    let values = flow(&mut pipe, &process, window).await;
    drop(pipe);
    process.stop().await?;
    values
}

async fn over_stdio(bench: &Bench, era: Era, window: Duration) -> Result<Values> {
    let (_folder, config) = config(era)?;
    let args: [OsString; 3] = ["stdio".into(), "--config".into(), config.into()];
    let (process, input, output) = Process::piped("fanlight", &bench.fanlight, &args, Cores::Any)?;
    let mut pipe = match era {
        Era::Modern => Pipe::new(input, output, &Message::call(era, &TOOL.name(), TOOL)),
        Era::Legacy => {
            let mut opening = Pipe::new(input, output, &Message::initialize());
            opening.run(1, Duration::ZERO).await?;
            opening.then(&Message::call(era, &TOOL.name(), TOOL))
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

/// The configuration with one shared stdio server: this program's echo.
fn config(era: Era) -> Result<(TempDir, PathBuf)> {
    let (program, args) = (this_program()?, echo_args(era));
    folder_with(
        "stdio.yaml",
        &format!(
            "mcpServers:\n  echo: {{ command: {program:?}, args: {args:?}, session: shared }}\n"
        ),
    )
}
