//! One client on one pair of byte streams: newline-delimited messages, both eras side by side.
//!
//! One future reads lines, one writes them, and each request is a task of its own. A client that
//! does not read its answers holds up nobody but itself: tasks wait for room in the bounded queue
//! to the writer, and once there is no room for more requests they are refused.
//!
//! Source: 2026-07-28 basic/transports/stdio, 2025-11-25 basic/transports. Must not know: that the
//! streams are those of a process.

use std::pin::pin;
use std::sync::Arc;

use fanlight_protocol::line::LineDecoder;
use fanlight_telemetry::Telemetry;
use fanlight_telemetry::metrics::Direction;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufWriter};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::channel::{Connection, OutLine, QUEUE, Terms};
use crate::error::FrontendError;
use crate::insight::Insight;
use crate::settings::FrontendSettings;
use crate::trace::{self, Ending};
use fanlight_canonical::Core;

/// How much is read at a time, at least.
const READ: usize = 16 << 10;

/// Serves one client until its input ends or `shutdown` is cancelled; then running requests may
/// finish for as long as [`FrontendSettings::drain`]. Nothing but messages is written to `output`.
///
/// # Errors
///
/// If a stream fails or the system has no random numbers. A client that closes its end is no failure.
pub async fn serve_stdio<C: Core>(
    input: impl AsyncRead + Send,
    output: impl AsyncWrite + Send,
    core: Arc<C>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
) -> Result<(), FrontendError> {
    serve_stdio_observed(input, output, core, settings, shutdown, &Insight::default()).await
}

/// The same, while `insight` can be asked about the client.
///
/// # Errors
///
/// As for [`serve_stdio`].
pub async fn serve_stdio_observed<C: Core>(
    input: impl AsyncRead + Send,
    output: impl AsyncWrite + Send,
    core: Arc<C>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
    insight: &Insight,
) -> Result<(), FrontendError> {
    let drain = settings.drain;
    let (limit, telemetry) = (settings.max_line, settings.telemetry.clone());
    let (lines, queue) = mpsc::channel(QUEUE);
    let connection = Connection::new(core, settings, lines, Terms::default())?;
    insight.begin(&connection);
    let mut writer = pin!(write_lines(output, queue, telemetry));
    let input = tokio::select! {
        input = read_lines(input, limit, &connection) => input,
        () = shutdown.cancelled() => Ok(()),
        // The writer ends first only if it fails; then there is nobody left to work for.
        written = &mut writer => {
            connection.cut();
            connection.finished().await;
            return closed_is_fine(written).map_err(FrontendError::Output);
        }
    };
    connection.close();
    let deadline = Instant::now() + drain;
    let finished = timeout_at(deadline, async {
        tokio::select! {
            () = connection.finished() => Ok(()),
            written = &mut writer => written,
        }
    });
    let output = finished.await;
    connection.cut();
    connection.finished().await;
    // The last sender: the writer ends once it has written what is queued.
    drop(connection);
    let output = match output {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) => timeout_at(deadline, writer).await.unwrap_or(Ok(())),
        Err(_) => Ok(()),
    };
    input.map_err(FrontendError::Input)?;
    closed_is_fine(output).map_err(FrontendError::Output)
}

fn closed_is_fine(written: std::io::Result<()>) -> std::io::Result<()> {
    written.or_else(|error| if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

async fn read_lines<C: Core>(
    input: impl AsyncRead,
    limit: usize,
    connection: &Arc<Connection<C>>,
) -> std::io::Result<()> {
    let mut input = pin!(input);
    let mut decoder = LineDecoder::new(limit);
    loop {
        while let Some(line) = decoder.next_line() {
            connection.line(line).await;
        }
        let buffer = decoder.buffer_mut();
        buffer.reserve(READ);
        let read = input.read_buf(buffer).await?;
        if read == 0 {
            break;
        }
        trace::bytes(&connection.settings.telemetry, Direction::Receive, read);
    }
    if let Some(line) = decoder.finish() {
        connection.line(line).await;
    }
    Ok(())
}

async fn write_lines(
    output: impl AsyncWrite,
    mut lines: mpsc::Receiver<OutLine>,
    telemetry: Telemetry,
) -> std::io::Result<()> {
    let mut output = pin!(BufWriter::new(output));
    let mut endings = Vec::new();
    while let Some(OutLine { text, ending }) = lines.recv().await {
        output.write_all(&text).await?;
        output.write_all(b"\n").await?;
        trace::bytes(&telemetry, Direction::Transmit, text.len() + 1);
        endings.extend(ending);
        if lines.is_empty() || endings.len() == QUEUE {
            output.flush().await?;
            endings.drain(..).for_each(Ending::delivered);
        }
    }
    output.flush().await?;
    endings.into_iter().for_each(Ending::delivered);
    Ok(())
}
