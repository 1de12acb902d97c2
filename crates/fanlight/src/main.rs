//! The `fanlight` binary: reads the command line and the configuration, and connects the crates
//! (docs/architecture.md).

mod admin;
mod assembly;
mod auth;
mod cli;
mod configuration;
mod connect;
mod demo;
mod endpoints;
mod failure;
mod files;
mod guard;
mod import;
mod inputs;
mod inspect;
mod invocation;
mod judge;
mod keys;
mod list_state;
mod listening;
mod log;
mod manual;
mod memory;
mod observe;
mod out;
mod protection;
mod reload;
mod replace;
mod rewriting;
mod serve;
mod servers;
mod service_manager;
mod show;
mod standard_io;
mod starts;
mod suggestions;
mod telemetry;
mod welcome;
mod wiring;
mod workers;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use cli::{Cli, Command};
use failure::Failure;
use log::Log;
use out::{complain, say};

/// Gives memory back to the system soon after a peak; that of the C library keeps it (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(end) = guard::run() {
        return end;
    }
    let mut cli = Cli::parse();
    cli.common.demo |= matches!(cli.command, Some(Command::Demo(_)));
    let serves = matches!(cli.command, None | Some(Command::Run(_) | Command::Stdio(_) | Command::Demo(_)));
    let (log, outcome) = match log::start(&cli.common, serves) {
        Ok(mut log) => {
            guard::hide();
            let outcome = run(cli, &mut log);
            (log, outcome)
        }
        Err(failure) => (Log::Direct, Err(failure)),
    };
    log.end(outcome.as_ref().err());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit_code(),
    }
}

fn run(cli: Cli, log: &mut Log) -> Result<(), Failure> {
    let common = &cli.common;
    match &cli.command {
        Some(Command::DemoServer { era }) => return demo::serve(*era),
        Some(Command::Schema) => {
            say!("{}", fanlight_config::schema().trim_end());
            return Ok(());
        }
        Some(Command::Completions { shell }) => return manual::completions(*shell),
        Some(Command::Man { out }) => return manual::pages(out.as_deref()),
        Some(Command::Connect(args)) => return connect::connect(args, common),
        Some(Command::Import(args)) => return import::import(args),
        Some(Command::Keys { command }) => return keys::keys(command, common),
        Some(Command::Status(args)) => return in_runtime(observe::status(args, common)),
        Some(Command::Logs(args)) => return in_runtime(observe::logs(args, common)),
        Some(Command::Traces(args)) => return in_runtime(observe::traces(args, common)),
        Some(Command::Check(args)) => {
            if let Some(target) = judge::target(args)? {
                return in_runtime(judge::judge_one(&target, args));
            }
        }
        Some(Command::Validate(args)) => return inspect::validate(args, common),
        Some(Command::Reload(args)) => return in_runtime(observe::reload(args, common)),
        Some(Command::Enable(args)) => return in_runtime(observe::change_server(args, common, "enable")),
        Some(Command::Disable(args)) => return in_runtime(observe::change_server(args, common, "disable")),
        Some(Command::EndSession(args)) => return in_runtime(observe::end_session(args, common)),
        Some(Command::Restart(args)) => return in_runtime(observe::change_server(args, common, "restart")),
        _ => {}
    }
    let loaded = configuration::load(common)?;
    log.configure(&loaded.config);
    if demo::is_demo(&loaded) && !common.demo && matches!(log, Log::Direct) {
        complain(&format!("DEMO: {}\n", demo::NOTICE));
    }
    in_runtime(async {
        match cli.command {
            None => serve::http(loaded, &cli.run, &cli.common, log).await,
            Some(Command::Run(args) | Command::Demo(args)) => serve::http(loaded, &args, &cli.common, log).await,
            Some(Command::Stdio(args)) => serve::stdio(loaded, &args, &cli.common, log).await,
            Some(Command::Check(args)) => inspect::check(&loaded, args.json).await,
            Some(Command::List { what, json, endpoint }) => inspect::list(&loaded.config, what, json, &endpoint).await,
            Some(Command::Call(args)) => inspect::call(&loaded.config, &args).await,
            Some(Command::Diff(args)) => inspect::diff(&loaded.config, &args).await,
            Some(Command::TraceTest(args)) => inspect::trace_test(&loaded.config, &args, &cli.common).await,
            // Commands that need no configuration.
            Some(_) => Ok(()),
        }
    })
}

fn in_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    // One thread; `fanlight run` starts further worker threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A blocked read of standard input must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}
