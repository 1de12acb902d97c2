//! The stream on which a legacy server may ask the client outside of the stream of a call.
//!
//! "The server MAY send JSON-RPC requests and notifications on the stream" of a GET (2025-11-25 basic/transports,
//! Listening for Messages from the Server), what it needs for a running call included. A call that is sent before that
//! stream is open may wait for ever for the answer to a request that was lost, so the first one waits for the stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_canonical::ServerMessages;
use tokio::sync::SetOnce;
use tokio::time::{Instant, timeout};

use super::Connection;
use crate::request::deadline::{CallProgress, PausableDeadline};

/// How long the first call of a session waits at a server that did not open the last session's stream in time. Some servers
/// send not even the head of the stream before the first message. No option: it is what a server that opens the stream needs
/// on a slow network, and one whose stream opens in time again is waited for as before.
const LATE_OPENING: Duration = Duration::from_millis(100);

/// The stream outside of calls, and the calls that a request on it may belong to.
pub(super) struct OutsideStream {
    /// It is open, or known not to be, or a call has waited long enough.
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

/// A call that runs until this is dropped.
pub(super) struct RunningGuard<'a> {
    stream: &'a OutsideStream,
    number: u64,
}

impl OutsideStream {
    pub(super) fn new() -> Self {
        let (is_settled, calls) = (SetOnce::new(), Mutex::default());
        Self {
            is_settled,
            since: Instant::now(),
            calls,
            numbers: AtomicU64::new(0),
        }
    }

    /// Enters a call once the stream is settled.
    pub(super) async fn enter(
        &self,
        connection: &Connection,
        messages: &ServerMessages,
        progress: &CallProgress,
    ) -> RunningGuard<'_> {
        if !self.is_settled.initialized() {
            let is_late = &connection.context.stream_is_late;
            let opening = connection.context.timeouts.stream_opening;
            let limit = match is_late.load(Ordering::Relaxed) {
                true => LATE_OPENING.min(opening),
                false => opening,
            };
            if timeout(limit, self.is_settled.wait()).await.is_err() {
                is_late.store(true, Ordering::Relaxed);
                self.settle();
            }
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (messages, deadline) = (messages.clone(), Arc::clone(&progress.deadline));
        self.calls().push(RunningCall {
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

    fn calls(&self) -> MutexGuard<'_, Vec<RunningCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.stream
            .calls()
            .retain(|call| call.number != self.number);
    }
}

impl Connection {
    /// Whether the server may ask the client outside of the stream of a call.
    pub(crate) fn may_ask(&self) -> bool {
        self.outside.is_some()
    }

    /// The server has answered whether it opens the stream outside of calls.
    pub(crate) fn stream_is_settled(&self) {
        if let Some(stream) = &self.outside {
            if stream.since.elapsed() <= self.context.timeouts.stream_opening {
                self.context.stream_is_late.store(false, Ordering::Relaxed);
            }
            stream.settle();
        }
    }

    /// The oldest running call whose client can be asked: the channel to it, and its time limit.
    pub(crate) fn oldest_call(&self) -> Option<(ServerMessages, Arc<PausableDeadline>)> {
        let calls = self.outside.as_ref()?.calls();
        let oldest = calls.iter().find(|call| call.messages.is_connected())?;
        Some((oldest.messages.clone(), Arc::clone(&oldest.deadline)))
    }
}
