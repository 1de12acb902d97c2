//! Measures Fanlight: what a call costs beside a plain reverse proxy, how long it takes, what it holds in memory, and how
//! many instructions it takes. docs/performance.md says how to run it and how to read it.

mod cargo;
mod check;
mod cli;
mod era;
mod error;
mod fake;
mod goals;
mod latency;
mod load;
mod report;
mod results;
mod run;
mod scenario;
mod system;
mod usage;

use std::process::ExitCode;

use clap::Parser as _;
use cli::{Cli, Command};
use error::{BenchError, Doing, Result};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let done = match command {
        Command::Echo { era, tools } => fake::stdio::serve(era, tools),
        command => in_runtime(command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// One thread: the load and the fake server are to take as little of their processor as they can.
fn in_runtime(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().doing("starting")?;
    runtime.block_on(async {
        let work = async {
            match command {
                Command::Serve(args) => fake::serve(&args).await,
                Command::Run(args) => run::run(&args).await,
                Command::Check(args) => check::run(&args).await,
                Command::Echo { .. } => Ok(()),
            }
        };
        // What is dropped takes its processes with it.
        tokio::select! {
            done = work => done,
            asked = asked_to_stop() => asked.and(Err(BenchError::Interrupted)),
        }
    })
}

async fn asked_to_stop() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).doing("listening for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).doing("listening for signals")?;
    tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
    Ok(())
}
