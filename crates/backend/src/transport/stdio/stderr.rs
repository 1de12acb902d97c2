//! What a process writes to its standard error is kept for operators, and logged at debug level under the server's name.

use std::time::Duration;

use fanlight_protocol::line::{Line, LineDecoder};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, sleep_until};

use crate::log::excerpt;
use crate::process_log::ProcessLogWriter;
use fanlight_canonical::ProcessStream;

/// Bytes logged of one line at most.
const LINE: usize = 4096;

/// The minimum charge for a line: logging it takes longer than reading it.
const LEAST: usize = 1 << 10;

/// The time over which the rate is measured.
const INTERVAL: Duration = Duration::from_secs(1);

/// Logs lines until the stream ends, at most `rate` bytes a second: a process that writes more waits for its pipe.
pub(super) async fn log(name: &str, log: &ProcessLogWriter, rate: usize, mut stderr: impl AsyncRead + Unpin) {
    let mut lines = LineDecoder::new(LINE);
    let (mut since, mut read) = (Instant::now(), 0);
    loop {
        lines.buffer_mut().reserve(LINE);
        match stderr.read_buf(lines.buffer_mut()).await {
            Ok(more @ 1..) => {
                log.is_writing();
                read += more;
            }
            Ok(0) | Err(_) => break,
        }
        if since.elapsed() >= INTERVAL {
            (since, read) = (Instant::now(), 0);
        } else if read >= rate {
            sleep_until(since + INTERVAL).await;
        }
        while let Some(line) = lines.next_line() {
            log_line(name, log, &line);
            read += LEAST;
        }
    }
    if let Some(line) = lines.finish() {
        log_line(name, log, &line);
    }
}

fn log_line(name: &str, log: &ProcessLogWriter, line: &Line) {
    let text = match line {
        Line::Whole(text) => excerpt(text, LINE),
        Line::TooLong { head, len, .. } => format!("{}… ({len} bytes)", excerpt(head, LINE)),
    };
    log.add(ProcessStream::Stderr, &text);
    tracing::debug!(target: "fanlight::child", backend = name, "{text}");
}
