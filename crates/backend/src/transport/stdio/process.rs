//! The life of one process: its tasks and its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_fair::limit;
use fanlight_telemetry::recording::{Captured, To};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::child::{Process, Spawned};
use super::writer::{CountingWriter, QueuedLine};
use super::{reader, stderr, writer};
use crate::process_log::ProcessLogWriter;
use crate::settings::process_stop;
use crate::transport::channel::Shared;
use fanlight_canonical::BackendError;

/// How long to wait for the exit after the end of the output, and the reverse. A constant: it only
/// limits what follows either end.
const ALIGNMENT: Duration = Duration::from_millis(500);

/// Runs the tasks of a process, which end with it. The process ends when the channel asks it to.
pub(super) fn run(
    spawned: Spawned,
    queue: mpsc::Receiver<QueuedLine>,
    log: ProcessLogWriter,
    shared: &Arc<Shared>,
) {
    let Spawned {
        process,
        stdin,
        stdout,
        stderr,
        order,
    } = spawned;
    let tasks = &shared.context.tasks;
    let (end, replies) = (shared.end.clone(), shared.replies.clone());
    let context = Arc::clone(&shared.context);
    let (report, input) = oneshot::channel();
    tasks.spawn(async move {
        let mut stdin = CountingWriter::new(stdin);
        let orders = order.len();
        let last_replies = async {
            end.cancelled().await;
            replies.close();
            let _ = timeout(ALIGNMENT, replies.wait()).await;
        };
        let too_late = async {
            end.cancelled().await;
            sleep(2 * ALIGNMENT).await;
        };
        let record = |text: &Bytes, cause: u64| {
            context.record(text, |message| Captured {
                exchange: context.recorded_exchange(),
                to: To::Server,
                cause,
                ..message
            });
        };
        let counters = context.telemetry.metrics();
        let written = tokio::select! {
            written = writer::write(&mut stdin, order, queue, last_replies, counters, record) => written,
            // The process no longer reads its input.
            () = too_late => Ok(()),
        };
        let _ = report.send(is_unread(&stdin, orders));
        drop(stdin);
        // Dropping the pipe asks the process to end (2026-07-28 stdio, Shutdown).
        if written.is_err() {
            // Usually the end of the process is noticed next. A process that only stopped reading
            // is useless, too.
            let _ = timeout(ALIGNMENT, end.cancelled()).await;
            end.cancel();
        }
    });
    let (name, gone) = (Arc::clone(&shared.context.name), shared.gone.clone());
    let invalid = log.clone();
    let rate = limit("processLog", 4 << 20);
    let counting = Arc::clone(shared.context.telemetry.metrics());
    tasks.spawn(async move {
        let mut logging = pin!(stderr::log(&name, &log, rate, stderr, &counting));
        tokio::select! {
            () = &mut logging => {}
            // A process that was left behind may hold the pipe open for ever.
            () = gone.cancelled() => { let _ = timeout(ALIGNMENT, logging).await; }
        }
    });
    let minded = Arc::clone(shared);
    tasks.spawn(async move { watch(process, stdout, input, &invalid, &minded).await });
}

/// Whether the process certainly read no message: everything written after the `orders` bytes for
/// its guard is still in the pipe. Only Linux tells this to the writer of a pipe.
#[cfg(target_os = "linux")]
fn is_unread(stdin: &CountingWriter<ChildStdin>, orders: usize) -> bool {
    let unread = rustix::io::ioctl_fionread(stdin.get_ref()).unwrap_or_default();
    stdin.written().saturating_sub(unread) <= orders as u64
}

#[cfg(not(target_os = "linux"))]
fn is_unread(stdin: &CountingWriter<ChildStdin>, orders: usize) -> bool {
    let _ = stdin.get_ref();
    stdin.written() <= orders as u64
}

/// Reads the output until the process ends, and cleans up after it. `input` tells, after the last
/// write, whether the process read no message.
async fn watch(
    mut process: Process,
    stdout: ChildStdout,
    input: oneshot::Receiver<bool>,
    log: &ProcessLogWriter,
    shared: &Shared,
) {
    let mut reading = pin!(reader::read(stdout, log, shared));
    let mut read_all = false;
    let status = tokio::select! {
        biased;
        () = &mut reading => {
            read_all = true;
            timeout(ALIGNMENT, process.wait()).await.ok().flatten()
        }
        status = process.wait() => {
            // Output from before its end still counts.
            read_all = timeout(ALIGNMENT, &mut reading).await.is_ok();
            status
        }
        () = shared.end.cancelled() => None,
    };
    // Irrelevant once the process has sent anything.
    if status.is_some() && shared.liveness.received() == 0 {
        shared.end.cancel();
        if matches!(timeout(ALIGNMENT, input).await, Ok(Ok(true))) {
            shared.set_unread();
        }
    }
    shared.close(&BackendError::Exited {
        status: status.map(|status| status.to_string()),
    });
    let mut ending = pin!(process.end(process_stop()));
    if read_all {
        return ending.await;
    }
    // A process that cannot write cannot end.
    tokio::select! {
        biased;
        () = &mut reading => ending.await,
        // Its last output is still in the pipe.
        () = &mut ending => { let _ = timeout(ALIGNMENT, reading).await; }
    }
}
