//! Reads a process's standard output line by line.

use fanlight_canonical::ProcessStream;
use fanlight_fair::limit;
use fanlight_protocol::line::{Line, LineDecoder};
use fanlight_telemetry::metrics::Direction;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::log::excerpt;
use crate::memory::Arriving;
use crate::process_log::ProcessLogWriter;
use crate::transport::channel::{Reader, Shared};

/// The bytes reserved for one read.
const READ: usize = 16 << 10;

/// The number of characters of an invalid line that are kept for operators.
const SHOWN: usize = 400;

/// The minimum charge for an invalid line: refusing it takes longer than reading it.
const INVALID_LINE: usize = 1 << 10;

/// Reads until the stream ends, or until it had no message for too long. So an endless line or
/// other output outside of the protocol does not go on for ever.
pub(super) async fn read(
    mut stdout: impl AsyncRead + Unpin,
    log: &ProcessLogWriter,
    shared: &Shared,
) {
    let mut lines = LineDecoder::new(shared.context.limits.message_bytes);
    let mut reader = Reader::new(shared);
    let mut arriving = Arriving::messages(&shared.context.memory);
    let counters = shared.context.telemetry.metrics();
    let limits = &shared.context.limits;
    let most = limits
        .message_bytes
        .saturating_add(limit("invalidOutput", 64 << 20));
    let mut without_message: usize = 0;
    loop {
        lines.buffer_mut().reserve(READ);
        match stdout.read_buf(lines.buffer_mut()).await {
            Ok(read @ 1..) => {
                counters.io(Direction::Receive, read as u64);
                without_message = without_message.saturating_add(read);
            }
            Ok(0) | Err(_) => break,
        }
        while let Some(line) = lines.next_line() {
            let before = reader.valid();
            take(&mut reader, &mut arriving, log, line);
            without_message = if reader.valid() == before {
                without_message.saturating_add(INVALID_LINE)
            } else {
                0
            };
        }
        if arriving.try_cover(lines.buffered()).is_err() {
            // Waiting would delay all other calls.
            lines.drop_line();
        }
        if without_message > most {
            shared.give_up(format!(
                "it wrote {most} bytes to its standard output without a message among them"
            ));
            return;
        }
    }
    // The last line is a message without its line break, or part of a message.
    if let Some(line) = lines.finish() {
        take(&mut reader, &mut arriving, log, line);
    }
    if reader.garbage() > 1 {
        let (backend, lines) = (&*shared.context.name, reader.garbage());
        tracing::warn!(backend, lines, "invalid messages on standard output");
    }
}

fn take(reader: &mut Reader<'_>, arriving: &mut Arriving, log: &ProcessLogWriter, line: Line) {
    match line {
        Line::Whole(text) => {
            let Ok(text) = arriving.try_hold(text.clone()) else {
                return reader.take_dropped(&text, &text, text.len());
            };
            reader.record(&text);
            let (before, shown) = (reader.garbage(), text.clone());
            reader.take_text(text);
            if reader.garbage() > before {
                log.add(ProcessStream::Stdout, &excerpt(&shown, SHOWN));
            }
        }
        Line::TooLong { head, tail, len } => reader.take_dropped(&head, &tail, len),
    }
}
