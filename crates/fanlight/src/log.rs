//! Logging to standard error; standard output belongs to results and, with `stdio`, to the protocol.

use std::fmt;
use std::io::IsTerminal as _;

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::{CommonArgs, LogFormat};
use crate::failure::Failure;

/// Starts logging. The filter is `--log`, else RUST_LOG, else `default`.
pub(crate) fn start(args: &CommonArgs, default: &str) -> Result<(), Failure> {
    let from_env = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let directives = args.log.clone().or(from_env).unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(&directives)
        .map_err(|error| Failure::usage(format!("--log {directives:?} is no log filter: {error}")))?;
    let terminal = std::io::stderr().is_terminal();
    // A line that cannot be written is lost. Reporting that would go to standard error as well, and panic if its reader
    // has closed it.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    let json = match args.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let started = if json {
        builder.json().map_event_format(|format| WithIds { format, json }).try_init()
    } else {
        let colored = |format: tracing_subscriber::fmt::format::Format| format.with_ansi(terminal);
        builder.with_ansi(terminal).map_event_format(|format| WithIds { format: colored(format), json }).try_init()
    };
    started.map_err(|error| Failure::usage(format!("cannot start logging: {error}")))
}

/// Appends `trace_id` and `span_id` of the current span to a line, as the OpenTelemetry log data model correlates logs
/// with traces.
///
/// The ids are looked up when a line is written, so lines that are filtered out cost nothing.
struct WithIds<F> {
    format: F,
    json: bool,
}

impl<S, N, F> FormatEvent<S, N> for WithIds<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some(ids) = fanlight_telemetry::current() else {
            return self.format.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        match line.strip_suffix('}').filter(|_| self.json) {
            Some(open) => {
                writeln!(writer, r#"{open},"trace_id":"{}","span_id":"{}"}}"#, ids.trace_id, ids.span_id)
            }
            None => writeln!(writer, "{line} {ids}"),
        }
    }
}
