//! Logging to standard error; standard output belongs to results and, with `stdio`, to the
//! protocol.

mod queue;

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fanlight_fair::{LogLimit, limit};
use fanlight_protocol::visible::{escaped_line, escaped_lines};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, error, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use self::queue::LogQueue;
use crate::cli::{CommonArgs, LogFormat};
use crate::starts::AboveDrawing;
use crate::{Failure, out};

/// Libraries with their own levels, unless the filter names them. The first one logs each refused
/// certificate as an error; Fanlight reports the same with a remedy. The second one traces each
/// change in watched folders, also of a log file there.
const LIBRARIES: [(&str, &str); 2] = [("rustls_platform_verifier", "off"), ("notify", "info")];

/// The lines that one party may cause at one place of the program within [`WINDOW`].
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(600);

/// The fields that name the party that causes a line.
const PARTIES: [&str; 4] = ["backend", "server", "issuer", "url"];

/// The beginnings of targets whose other lines are always written: those about the operator's
/// actions, and the audit log, which has budgets of its own.
const COMPLETE: [&str; 3] = ["audit", "fanlight::", "fanlight_cli::"];

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
    let filter = read_filter(&directives)
        .map_err(|error| usage!("--log {directives:?} is no log filter: {error}"))?;
    let (terminal, colours) = (io::stderr().is_terminal(), out::has_colours(&io::stderr()));
    let (log, writer) = if serves {
        let cannot = |error| failure!("cannot start the thread of the log: {error}");
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
    let lines = serves.then(|| LogLimit::new(LINES, WINDOW));
    let started = if json {
        builder
            .json()
            .map_event_format(|format| WithIds {
                format,
                json,
                lines,
            })
            .try_init()
    } else {
        let colored = |format: tracing_subscriber::fmt::format::Format| format.with_ansi(colours);
        builder
            .with_ansi(colours)
            .map_event_format(|format| WithIds {
                format: colored(format),
                json,
                lines,
            })
            .try_init()
    };
    started.map_err(|error| usage!("cannot start logging: {error}"))?;
    if serves {
        // The standard hook writes to standard error directly, and would wait for its reader.
        panic::set_hook(Box::new(|panic| error!("{panic}")));
    }
    Ok(log)
}

fn read_filter(directives: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::try_new(directives)?;
    let mut own = LIBRARIES.iter();
    own.try_fold(filter, |filter, (library, level)| {
        Ok(match directives.contains(library) {
            true => filter,
            false => filter.add_directive(format!("{library}={level}").parse()?),
        })
    })
}

fn say_dropped(lines: u64) {
    warn!(
        lines,
        "log lines dropped: standard error is read too slowly"
    );
}

/// A format that escapes invisible characters and appends `trace_id` and `span_id` of the current
/// span, as the OpenTelemetry log data model requires. Servers and clients cause no more lines than
/// their budgets; the next line has the number of those `omitted`.
///
/// The ids are looked up when a line is written, so filtered lines cost nothing.
struct WithIds<F> {
    format: F,
    json: bool,
    /// The budgets of a gateway.
    lines: Option<LogLimit>,
}

impl<F> WithIds<F> {
    /// Whether to write the line of an event; if so, returns the number of lines omitted before it.
    fn admit(&self, event: &Event<'_>) -> Option<u64> {
        let (metadata, mut party) = (event.metadata(), Party::default());
        event.record(&mut party);
        let is_complete = party.0.is_none()
            && COMPLETE
                .iter()
                .any(|target| metadata.target().starts_with(target));
        match &self.lines {
            Some(lines) if *metadata.level() <= Level::INFO && !is_complete => {
                lines.admit((metadata.callsite(), party.0))
            }
            _ => Some(0),
        }
    }
}

/// The party that causes an event.
#[derive(Default)]
struct Party(Option<String>);

impl Visit for Party {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if PARTIES.contains(&field.name()) {
            self.0 = Some(format!("{value:?}"));
        }
    }
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
        let Some(omitted) = self.admit(event) else {
            return Ok(());
        };
        let mut line = String::new();
        self.format
            .format_event(context, Writer::new(&mut line), event)?;
        let line = escaped_line(line.trim_end_matches('\n'));
        let open = line.strip_suffix('}').filter(|_| self.json);
        write!(writer, "{}", open.unwrap_or(&line))?;
        if omitted > 0 {
            match open {
                Some(_) => write!(writer, r#","omitted":{omitted}"#)?,
                None => write!(writer, " omitted={omitted}")?,
            }
        }
        if let Some(ids) = fanlight_telemetry::current() {
            match open {
                Some(_) => write!(
                    writer,
                    r#","trace_id":"{}","span_id":"{}""#,
                    ids.trace_id, ids.span_id
                )?,
                None => write!(writer, " {ids}")?,
            }
        }
        writeln!(writer, "{}", open.map_or("", |_| "}"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn watching_a_folder_is_traced_only_by_name() {
        let shown = |directives: &str| read_filter(directives).unwrap().to_string();
        assert!(shown("trace").contains("notify=info"));
        assert!(!shown("notify=trace").contains("notify=info"));
        assert!(read_filter("a=b=c").is_err());
    }

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn flood(server: &str) {
        warn!(backend = server, "what a server causes without end");
    }

    #[tokio::test(start_paused = true)]
    async fn server_cannot_fill_the_log_nor_hide_lines_of_others() {
        let kept = Kept::default();
        let written = Arc::clone(&kept.0);
        let log = tracing_subscriber::fmt()
            .with_writer(move || kept.clone())
            .json()
            .map_event_format(|format| WithIds {
                format,
                json: true,
                lines: Some(LogLimit::new(LINES, WINDOW)),
            })
            .finish();
        let _log = tracing::subscriber::set_default(log);
        (0..1000).for_each(|_| flood("bad"));
        flood("good");
        warn!(backend = "bad", "another line");
        (0..1000).for_each(|_| warn!("a line about what the operator does"));
        (0..1000).for_each(|_| warn!(target: "hyper", "what any client causes"));
        tokio::time::advance(WINDOW).await;
        flood("bad");
        let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let count = |text: &str| written.lines().filter(|line| line.contains(text)).count();
        assert_eq!(count(r#""backend":"bad""#), 102);
        assert_eq!(count(r#""backend":"good""#), 1);
        assert_eq!(count("the operator does"), 1000);
        assert_eq!(count("any client"), 100);
        assert!(written.trim_end().ends_with(r#","omitted":900}"#));
        assert!(written.lines().all(|line| line.ends_with("}")));
    }
}
