//! Measures the Fanlight program in comparison with a plain reverse proxy: processor time, latency,
//! memory and instructions. docs/performance.md describes the method.

mod access;
mod cargo;
mod check;
mod cli;
mod era;
mod error;
mod fake;
mod goals;
mod latency;
mod load;
mod peers;
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

/// Runs a command on one thread, so that load and fake server take as little of their processor as
/// possible.
fn in_runtime(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .doing("starting")?;
    runtime.block_on(async {
        let work = async {
            match command {
                Command::Serve(args) => fake::serve(&args).await,
                Command::Run(args) if args.peers.peers => peers::run(&args).await,
                Command::Run(args) => run::run(&args).await,
                Command::Check(args) => check::run(&args).await,
                Command::Echo { .. } => Ok(()),
            }
        };
        // Dropping the work kills the processes that it has started.
        tokio::select! {
            done = work => done,
            signal = stop_signal() => signal.and(Err(BenchError::Interrupted)),
        }
    })
}

async fn stop_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).doing("listening for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).doing("listening for signals")?;
    tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
    Ok(())
}
