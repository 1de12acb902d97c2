//! The stream on which a legacy server sends messages outside of a call's stream.
//!
//! "The server MAY send JSON-RPC requests and notifications on the stream" of a GET (2025-11-25
//! basic/transports, Listening for Messages from the Server), even requests for a running call. If
//! a call began before that stream is open, such a message could get lost, and a call with a
//! question would wait for ever. So the first call waits for the stream if its client can be asked
//! or listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::ServerMessages;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use tokio::time::{Instant, timeout};

use super::Connection;
use crate::request::deadline::{CallProgress, PausableDeadline};
use crate::settings::stream_opening;

/// How long a session's first call waits if the server did not open the last session's stream in
/// time. Some servers do not even send the stream's head before the first message. A constant: it
/// is enough for a server that opens the stream, on a slow network. After a stream that opens in
/// time, the full wait applies again.
const LATE_OPENING: Duration = Duration::from_millis(100);

/// The stream outside of calls, and the running calls that a request on it may belong to.
pub(super) struct OutsideStream {
    /// Set once the stream is open, will not open, or a call has waited long enough.
    is_settled: SetOnce<()>,
    since: Instant,
    calls: Mutex<Vec<RunningCall>>,
    numbers: AtomicU64,
}

struct RunningCall {
    number: u64,
    messages: ServerMessages,
    deadline: Arc<PausableDeadline>,
}

/// A call that counts as running until this is dropped.
pub(super) struct RunningGuard<'a> {
    stream: &'a OutsideStream,
    number: u64,
}

impl OutsideStream {
    pub(super) fn new() -> Self {
        Self {
            is_settled: SetOnce::new(),
            since: Instant::now(),
            calls: Mutex::default(),
            numbers: AtomicU64::new(0),
        }
    }

    /// Adds a call once the stream is settled.
    pub(super) async fn enter(
        &self,
        connection: &Connection,
        messages: &ServerMessages,
        progress: &CallProgress,
    ) -> RunningGuard<'_> {
        let is_awaited = connection.may_ask() || connection.context.outlet.is_of_listener();
        if is_awaited && !self.is_settled.initialized() {
            let is_late = &connection.context.stream_is_late;
            let opening = stream_opening();
            let limit = if is_late.load(Ordering::Relaxed) {
                LATE_OPENING.min(opening)
            } else {
                opening
            };
            if timeout(limit, self.is_settled.wait()).await.is_err() {
                is_late.store(true, Ordering::Relaxed);
                self.settle();
            }
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (messages, deadline) = (messages.clone(), Arc::clone(&progress.deadline));
        self.calls.lock().push(RunningCall {
            number,
            messages,
            deadline,
        });
        RunningGuard {
            stream: self,
            number,
        }
    }

    fn settle(&self) {
        // An error means that it is settled already.
        let _ = self.is_settled.set(());
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.stream
            .calls
            .lock()
            .retain(|call| call.number != self.number);
    }
}

impl Connection {
    /// Whether the server may ask the client outside of a call's stream.
    pub(crate) fn may_ask(&self) -> bool {
        self.context.declared.can_be_asked()
    }

    /// Reports that the server has answered whether it opens the stream.
    pub(crate) fn stream_is_settled(&self) {
        if let Some(stream) = &self.outside {
            if stream.since.elapsed() <= stream_opening() {
                self.context.stream_is_late.store(false, Ordering::Relaxed);
            }
            stream.settle();
        }
    }

    /// The oldest running call whose client can be asked, with the channel to it and its time
    /// limit.
    pub(crate) fn oldest_call(&self) -> Option<(ServerMessages, Arc<PausableDeadline>)> {
        let calls = self.outside.as_ref()?.calls.lock();
        let oldest = calls
            .iter()
            .filter(|call| call.messages.is_connected())
            .min_by_key(|call| call.deadline.is_paused())?;
        Some((oldest.messages.clone(), Arc::clone(&oldest.deadline)))
    }
}
