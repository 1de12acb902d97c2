//! One client on a pair of byte streams. Messages end with a newline; both eras work side by side.
//!
//! One future reads lines, another writes them, and each request is a task. A client that does not
//! read its answers delays only itself. Its tasks wait while the writer's queue is full, and
//! further requests are refused while too many run.
//!
//! Source: 2026-07-28 basic/transports/stdio, 2025-11-25 basic/transports.

use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::Peer;
use fanlight_gateway::Gateway;
use fanlight_protocol::line::{Line, LineDecoder};
use fanlight_protocol::{Era, Json, RpcError, code, partial};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::recording::{Captured, Party, To};
use fanlight_telemetry::{Headers, Moment, Network, Telemetry};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufWriter};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{ChannelConnection, ChannelOptions, Outbound, QUEUE};
use crate::ingress::Refusal;
use crate::settings::{ByteBudget, FrontendSettings, LAST_ANSWERS, Reservation, UNCOUNTED};
use crate::trace::{self, Ending, TransportFacts};
use crate::{FrontendError, Insight};

/// The minimum size of a read.
const READ: usize = 16 << 10;

/// Serves one client, if `only` of one era, until its input ends or `shutdown` is cancelled. Running requests then get
/// [`FrontendSettings::drain`] to finish. Only messages are written to `output`.
///
/// # Errors
///
/// If a stream fails or the system has no random numbers. A client that closes its end causes no
/// error.
pub async fn serve_stdio(
    input: impl AsyncRead + Send,
    output: impl AsyncWrite + Send,
    core: Arc<Gateway>,
    settings: Arc<FrontendSettings>,
    only: Option<Era>,
    shutdown: CancellationToken,
) -> Result<(), FrontendError> {
    let insight = Insight::default();
    serve_stdio_observed(input, output, core, settings, only, shutdown, &insight).await
}

/// Like [`serve_stdio`]; `insight` shows the client meanwhile.
///
/// # Errors
///
/// As for [`serve_stdio`].
pub async fn serve_stdio_observed(
    input: impl AsyncRead + Send,
    output: impl AsyncWrite + Send,
    core: Arc<Gateway>,
    settings: Arc<FrontendSettings>,
    only: Option<Era>,
    shutdown: CancellationToken,
    insight: &Insight,
) -> Result<(), FrontendError> {
    let (drain, give_up) = (settings.drain, settings.give_up.clone());
    let (limit, telemetry) = (settings.max_line, settings.telemetry.clone());
    let (lines, queue) = mpsc::channel(QUEUE);
    let options = ChannelOptions {
        only,
        ..ChannelOptions::default()
    };
    let connection = ChannelConnection::new(core, &settings, lines, options)?;
    insight.begin(&connection);
    let (recorded, number) = (Arc::clone(&settings), connection.number);
    let record = |text: &Bytes| record(&recorded, number, text, To::Client, number);
    let mut writer = pin!(write_lines(output, queue, telemetry, record));
    let input = tokio::select! {
        input = read_lines(input, limit, &connection) => input,
        () = shutdown.cancelled() => Ok(()),
        // The writer ends first only if it fails: the client is gone.
        written = &mut writer => {
            connection.cut();
            connection.finished().await;
            return closed_is_fine(written).map_err(FrontendError::Output);
        }
    };
    connection.close();
    let mut deadline = Instant::now() + drain;
    let mut output = timeout_at(deadline, finished(&connection, writer.as_mut())).await;
    if output.is_err() {
        tracing::warn!("ending requests that did not finish in time");
        give_up.cancel();
        deadline = Instant::now() + LAST_ANSWERS;
        output = timeout_at(deadline, finished(&connection, writer.as_mut())).await;
    }
    connection.cut();
    connection.finished().await;
    // Dropping the last sender ends the writer after it has written its queue.
    drop(connection);
    let output = match output {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) => timeout_at(deadline, writer).await.unwrap_or(Ok(())),
        Err(_) => Ok(()),
    };
    input.map_err(FrontendError::Input)?;
    closed_is_fine(output).map_err(FrontendError::Output)
}

/// Waits until no request is running, or the writer has failed.
async fn finished(
    connection: &ChannelConnection,
    writer: Pin<&mut impl Future<Output = std::io::Result<()>>>,
) -> std::io::Result<()> {
    tokio::select! {
        () = connection.finished() => Ok(()),
        written = writer => written,
    }
}

fn closed_is_fine(written: std::io::Result<()>) -> std::io::Result<()> {
    written.or_else(|error| {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Ok(())
        } else {
            Err(error)
        }
    })
}

async fn read_lines(
    input: impl AsyncRead,
    limit: usize,
    connection: &Arc<ChannelConnection>,
) -> std::io::Result<()> {
    let mut input = pin!(input);
    let mut decoder = LineDecoder::new(limit);
    let mut memory = LineMemory::new(&connection.ingress.settings.request_memory);
    loop {
        while let Some(line) = decoder.next_line() {
            take_line(connection, memory.count(line)).await;
        }
        memory.count_partial(&mut decoder);
        let buffer = decoder.buffer_mut();
        buffer.reserve(READ);
        let read = input.read_buf(buffer).await?;
        if read == 0 {
            break;
        }
        trace::bytes(
            &connection.ingress.settings.telemetry,
            Direction::Receive,
            read,
        );
    }
    if let Some(line) = decoder.finish() {
        take_line(connection, memory.count(line)).await;
    }
    Ok(())
}

/// Handles one line. Returns once its requests run; waits only while sending a refusal.
async fn take_line(connection: &Arc<ChannelConnection>, line: Result<Line, NoMemory>) {
    let taken = match line {
        Ok(Line::Whole(text)) => {
            let (received, trace_context) = (Moment::now(), Headers::default());
            let settings = &connection.ingress.settings;
            let exchange = recorded_exchange(settings);
            record(settings, connection.number, &text, To::Server, exchange);
            let facts = TransportFacts {
                received,
                exchange,
                network: Network::Stdio,
                user: None,
                is_forwarded: false,
                is_proxied: false,
                trace_context,
            };
            connection
                .take(&connection.ingress.local(facts), text)
                .await
        }
        Ok(Line::TooLong { head, tail, len }) => {
            let limit = connection.ingress.settings.max_line;
            let message = format!("the message has {len} bytes; the limit here is {limit}");
            let mut refusal = Refusal::malformed(RpcError::new(code::INVALID_REQUEST, message));
            refusal.id = partial::id(&head, &tail);
            Err(refusal)
        }
        Err(NoMemory { id }) => {
            let mut refusal = Refusal::no_memory();
            refusal.id = id;
            Err(refusal)
        }
    };
    if let Err(refusal) = taken {
        connection.refuse(*refusal).await;
    }
}

async fn write_lines(
    output: impl AsyncWrite,
    mut lines: mpsc::Receiver<Outbound>,
    telemetry: Telemetry,
    record: impl Fn(&Bytes),
) -> std::io::Result<()> {
    let mut output = pin!(BufWriter::new(output));
    let mut endings: Vec<Box<Ending>> = Vec::new();
    while let Some(Outbound { text, ending }) = lines.recv().await {
        record(&text);
        output.write_all(&text).await?;
        output.write_all(b"\n").await?;
        trace::bytes(&telemetry, Direction::Transmit, text.len() + 1);
        endings.extend(ending);
        if lines.is_empty() || endings.len() == QUEUE {
            output.flush().await?;
            endings.drain(..).for_each(|ending| ending.finish());
        }
    }
    output.flush().await?;
    endings.into_iter().for_each(|ending| ending.finish());
    Ok(())
}

/// The number for a new message in the running recording; 0 if nothing records it.
#[inline]
fn recorded_exchange(settings: &FrontendSettings) -> u64 {
    let tap = settings.telemetry.tap().filter(|tap| tap.is_on());
    tap.map_or(0, |tap| tap.exchange_at(settings.endpoint.full_path()))
}

/// Gives a line of the connection with this number to the recording, if there is one.
#[inline]
fn record(settings: &FrontendSettings, connection: u64, text: &Bytes, to: To, exchange: u64) {
    let Some(tap) = settings.telemetry.tap() else {
        return;
    };
    tap.capture(|| {
        let endpoint = settings.endpoint.full_path().into();
        Captured {
            exchange,
            to,
            ..Captured::line(Party::Client { endpoint }, connection, text.clone())
        }
    });
}

/// The memory of one connection's incoming lines.
struct LineMemory<'a> {
    budget: &'a ByteBudget,
    /// The reservation for an unfinished line that exceeds the uncounted size.
    partial: Option<Reservation>,
    /// Whether the unfinished line is being dropped for lack of memory.
    is_dropping: bool,
}

/// No memory was left for a line.
pub(super) struct NoMemory {
    /// The id of the line's request, if it was readable.
    pub(super) id: Option<Json>,
}

impl<'a> LineMemory<'a> {
    fn new(budget: &'a ByteBudget) -> Self {
        Self {
            budget,
            partial: None,
            is_dropping: false,
        }
    }

    /// Counts a complete line.
    fn count(&mut self, line: Line) -> Result<Line, NoMemory> {
        let partial = self.partial.take();
        let text = match line {
            Line::TooLong { head, tail, .. } if std::mem::take(&mut self.is_dropping) => {
                return Err(NoMemory {
                    id: partial::id(&head, &tail),
                });
            }
            Line::Whole(text) if text.len() > UNCOUNTED => text,
            line => return Ok(line),
        };
        let reserved = match partial {
            Some(mut reservation) => reservation.resize(text.len()).map(|()| reservation),
            None => self.budget.reserve(&Peer::Local, text.len()),
        };
        match reserved {
            Ok(reservation) => Ok(Line::Whole(reservation.hold(text))),
            Err(_) => Err(NoMemory {
                id: partial::id(&text, &text),
            }),
        }
    }

    /// Counts an unfinished line, or drops it if no memory is left.
    fn count_partial(&mut self, decoder: &mut LineDecoder) {
        let kept = decoder.buffered();
        let fits = match &mut self.partial {
            _ if kept <= UNCOUNTED => {
                self.partial = None;
                true
            }
            Some(reservation) => reservation.resize(kept).is_ok(),
            None => {
                self.partial = self.budget.reserve(&Peer::Local, kept).ok();
                self.partial.is_some()
            }
        };
        if !fits {
            decoder.drop_line();
            (self.partial, self.is_dropping) = (None, true);
        }
    }
}

#[cfg(test)]
mod line_memory_tests {
    use super::*;
    use crate::settings::byte_budget;

    fn feed(
        decoder: &mut LineDecoder,
        memory: &mut LineMemory<'_>,
        bytes: &[u8],
    ) -> Vec<Result<Line, NoMemory>> {
        let mut lines = Vec::new();
        for piece in bytes.chunks(1 << 10) {
            decoder.buffer_mut().extend_from_slice(piece);
            while let Some(line) = decoder.next_line() {
                lines.push(memory.count(line));
            }
            memory.count_partial(decoder);
        }
        lines
    }

    #[test]
    fn line_without_memory_is_dropped_and_names_its_request() {
        let budget = byte_budget(20 << 10);
        let (mut decoder, mut memory) = (LineDecoder::new(1 << 20), LineMemory::new(&budget));
        let line = |id: u32, len: usize| format!("{{\"id\":{id},\"x\":\"{}\"}}\n", "x".repeat(len));
        let first = feed(&mut decoder, &mut memory, line(1, 9 << 10).as_bytes());
        assert!(matches!(&first[..], [Ok(Line::Whole(text))] if text.len() > 9 << 10));
        // The first line uses up the peer's share.
        let second = feed(&mut decoder, &mut memory, line(2, 9 << 10).as_bytes());
        assert!(matches!(&second[..], [Err(NoMemory { id: Some(id) })] if id.as_text() == "2"));
        let small = feed(&mut decoder, &mut memory, line(3, 10).as_bytes());
        assert!(matches!(&small[..], [Ok(Line::Whole(_))]));
        drop(first);
        let third = feed(&mut decoder, &mut memory, line(4, 15 << 10).as_bytes());
        assert!(matches!(&third[..], [Ok(Line::Whole(_))]));
    }
}
