//! What a process writes to its standard error goes to the log, under the server's name.

use fanlight_protocol::line::{Line, LineDecoder};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::log::excerpt;

/// Bytes logged of one line at most.
const LINE: usize = 4096;

/// Logs lines until the stream ends.
pub(super) async fn log(name: &str, mut stderr: impl AsyncRead + Unpin) {
    let mut lines = LineDecoder::new(LINE);
    loop {
        lines.buffer_mut().reserve(LINE);
        if !matches!(stderr.read_buf(lines.buffer_mut()).await, Ok(1..)) {
            break;
        }
        while let Some(line) = lines.next_line() {
            log_line(name, &line);
        }
    }
    if let Some(line) = lines.finish() {
        log_line(name, &line);
    }
}

fn log_line(name: &str, line: &Line) {
    match line {
        Line::Whole(text) => {
            let text = excerpt(text, LINE);
            tracing::info!(target: "fanlight::child", backend = name, "{text}");
        }
        Line::TooLong { head, len, .. } => {
            let text = excerpt(head, LINE);
            tracing::info!(target: "fanlight::child", backend = name, "{text}… ({len} bytes)");
        }
    }
}
