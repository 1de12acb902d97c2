//! Logging to standard error; standard output belongs to results and, with `stdio`, to the
//! protocol.

mod queue;

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fanlight_fair::limit;
use fanlight_protocol::visible::{escaped_line, escaped_lines};
use tracing::{Event, Subscriber, error, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use self::queue::LogQueue;
use crate::cli::{CommonArgs, LogFormat};
use crate::failure::Failure;
use crate::out;
use crate::starts::AboveDrawing;

/// The log target of the library that verifies servers' certificates.
const VERIFIER: &str = "rustls_platform_verifier";

/// The time for writing the last lines on shutdown, if the reader of standard error is slow.
const FLUSH: Duration = Duration::from_millis(500);

/// The log of this process.
pub enum Log {
    /// The log of a command that ends by itself: lines are written directly, and none is lost.
    Direct,
    /// The log of a gateway, which must not wait for the reader of standard error.
    Queued(LogQueue),
}

impl Log {
    /// The counter of dropped lines.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        match self {
            Self::Direct => Arc::default(),
            Self::Queued(queue) => queue.dropped(),
        }
    }

    /// Writes the last lines: the queued ones and then `failure`. A gateway gives up if its reader
    /// is too slow.
    pub fn end(&self, failure: Option<&Failure>) {
        let text =
            failure.map(|failure| format!("{}\n", escaped_lines(failure.to_string().trim_end())));
        match self {
            Self::Direct => out::complain(text.as_deref().unwrap_or_default()),
            Self::Queued(queue) => {
                if let Some(text) = text {
                    queue.push(text.as_bytes());
                }
                queue.flush(FLUSH);
            }
        }
    }
}

/// Starts logging for a gateway (`serves`) or another command. The filter is `--log`, else
/// RUST_LOG, else the default.
pub fn start(args: &CommonArgs, serves: bool) -> Result<Log, Failure> {
    let default = if serves { "info" } else { "error" };
    let from_env = std::env::var("RUST_LOG")
        .ok()
        .filter(|filter| !filter.is_empty());
    let directives = args
        .log
        .clone()
        .or(from_env)
        .unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        Failure::usage(format!("--log {directives:?} is no log filter: {error}"))
    })?;
    // This library logs each refused certificate as an error; Fanlight reports the same with a
    // remedy.
    let filter = match directives.contains(VERIFIER) {
        true => filter,
        false => match format!("{VERIFIER}=off").parse() {
            Ok(silent) => filter.add_directive(silent),
            Err(_) => filter,
        },
    };
    let (terminal, colours) = (io::stderr().is_terminal(), out::has_colours(&io::stderr()));
    let (log, writer) = if serves {
        let cannot = |error| Failure::other(format!("cannot start the thread of the log: {error}"));
        let out: Box<dyn io::Write + Send> = if terminal {
            Box::new(AboveDrawing(io::stderr()))
        } else {
            Box::new(io::stderr())
        };
        let queue =
            LogQueue::start(out, limit("logBytes", 1 << 20), say_dropped).map_err(cannot)?;
        let log = Log::Queued(queue.clone());
        (log, BoxMakeWriter::new(queue))
    } else {
        (
            Log::Direct,
            BoxMakeWriter::new(|| AboveDrawing(io::stderr())),
        )
    };
    // A line that cannot be written is lost. Reporting it would also go to standard error, and
    // panic if its reader has closed it.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .log_internal_errors(false);
    let json = match args.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let started = if json {
        builder
            .json()
            .map_event_format(|format| WithIds { format, json })
            .try_init()
    } else {
        let colored = |format: tracing_subscriber::fmt::format::Format| format.with_ansi(colours);
        builder
            .with_ansi(colours)
            .map_event_format(|format| WithIds {
                format: colored(format),
                json,
            })
            .try_init()
    };
    started.map_err(|error| Failure::usage(format!("cannot start logging: {error}")))?;
    if serves {
        // The standard hook writes to standard error directly, and would wait for its reader.
        panic::set_hook(Box::new(|panic| error!("{panic}")));
    }
    Ok(log)
}

fn say_dropped(lines: u64) {
    warn!(
        lines,
        "log lines dropped: standard error is read too slowly"
    );
}

/// A format that escapes invisible characters and appends `trace_id` and `span_id` of the current
/// span, as the OpenTelemetry log data model requires.
///
/// The ids are looked up when a line is written, so filtered lines cost nothing.
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
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.format
            .format_event(context, Writer::new(&mut line), event)?;
        let line = escaped_line(line.trim_end_matches('\n'));
        let Some(ids) = fanlight_telemetry::current() else {
            return writeln!(writer, "{line}");
        };
        match line.strip_suffix('}').filter(|_| self.json) {
            Some(open) => {
                writeln!(
                    writer,
                    r#"{open},"trace_id":"{}","span_id":"{}"}}"#,
                    ids.trace_id, ids.span_id
                )
            }
            None => writeln!(writer, "{line} {ids}"),
        }
    }
}
