//! Logging to standard error; standard output belongs to results and, with `stdio`, to the protocol.
//!
//! Must not know: what is logged.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::{CommonArgs, LogFormat};
use crate::failure::Failure;

/// Starts logging. What is logged is decided by `--log`, else by RUST_LOG, else by `default`.
pub(crate) fn start(args: &CommonArgs, default: &str) -> Result<(), Failure> {
    let from_env = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let directives = args.log.clone().or(from_env).unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(&directives)
        .map_err(|error| Failure::usage(format!("--log {directives:?} is no log filter: {error}")))?;
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = match args.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let started = if json { builder.json().try_init() } else { builder.with_ansi(terminal).try_init() };
    started.map_err(|error| Failure::usage(format!("cannot start logging: {error}")))
}
